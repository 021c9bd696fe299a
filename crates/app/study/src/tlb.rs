// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLB misses of the NAS kernels on a compute node, counted by a model of the PowerPC 440 that their addresses feed.
//!
//! Time is counted in instructions, so that the counts are the same in every run.

use colony_nodes::ciod::Config;
use colony_nodes::tlb::{Counts, Setup};
use colony_nodes::{Accel, Machine, Partition, programs};

use crate::StudyError;
use crate::compute_node::{self, SHIFT};
use crate::error::step;

/// Name of this step in errors.
pub const WHAT: &str = "counting the TLB misses of the NAS kernels on a compute node";

/// The counts of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct TlbRun {
    /// `is`, `ep`, `cg` or another of `colony-nas`.
    pub kernel: String,
    /// `S`, `W` or `A`.
    pub class: String,
    /// The TLB.
    pub setup: Setup,
    /// The counts of the whole program, also of what its timed part leaves out.
    pub counts: Counts,
}

impl TlbRun {
    /// Misses with pages of 2 to the power of `shift` bytes; `None` if these were not modelled.
    #[must_use]
    pub fn misses(&self, shift: u32) -> Option<u64> {
        let index = self.setup.page_shifts().iter().position(|&of| of == shift)?;
        self.counts.misses.get(index).copied()
    }
}

/// Runs these kernels and classes, one after another, each on a node of its own.
///
/// # Errors
/// [`StudyError::Step`] where nodes cannot be had here, with what to install, or a run failed.
pub fn run(kernels: &[(&str, &str)]) -> Result<Vec<TlbRun>, StudyError> {
    if let Some(reason) = colony_vm::testing::missing() {
        return Err(step(WHAT, &reason));
    }
    let nas = programs::static_program("colony-nas").map_err(|e| step(WHAT, &e))?;
    let worker = programs::ciod().map_err(|e| step(WHAT, &e))?;
    let setup = Setup::ppc440();
    let machine = Machine {
        cpus: 1,
        memory: compute_node::memory(kernels),
        torus: Some(0),
        accel: Accel::Counted { shift: SHIFT },
        tlb: Some(setup.clone()),
        ..Machine::default()
    };
    let run = |&(kernel, class): &(&str, &str)| {
        let failed = |e: &dyn std::fmt::Display| step(WHAT, &format!("{kernel}.{class}: {e}"));
        let config = Config::new(worker.clone());
        let mut partition = Partition::boot(machine.clone(), 1, config).map_err(|e| failed(&e))?;
        let ran = compute_node::on_node(WHAT, &mut partition, &nas, kernel, class)?;
        if !ran.verified {
            return Err(failed(&"it has a wrong result"));
        }
        let counts = partition.tlb_counts().map_err(|e| failed(&e))?;
        let counts = counts.ok_or_else(|| failed(&"its node has no modelled TLB"))?;
        Ok(TlbRun { kernel: kernel.into(), class: class.into(), setup: setup.clone(), counts })
    };
    kernels.iter().map(run).collect()
}
