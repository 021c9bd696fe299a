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

/// Iterations of the flow solvers in class A. Emulated, all of them would take most of an hour.
const ITERATIONS_OF_A: [(&str, u32); 3] = [("lu", 250), ("sp", 400), ("bt", 200)];
/// Iterations after which they are stopped instead: the difference is that of iterations alone, without start and end.
const STOPPED_AFTER: [u32; 2] = [1, 3];

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
    /// Iterations for which the counts stand, if they were continued from runs of fewer: an iteration touches the same
    /// addresses as the one before.
    pub continued_to: Option<u32>,
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
    let count = |kernel: &str, class: &str, iterations: Option<u32>| {
        let failed = |e: &dyn std::fmt::Display| step(WHAT, &format!("{kernel}.{class}: {e}"));
        let config = Config::new(worker.clone());
        let mut partition = Partition::boot(machine.clone(), 1, config).map_err(|e| failed(&e))?;
        let ran = compute_node::on_node(WHAT, &mut partition, &nas, kernel, class, iterations)?;
        if iterations.is_none() && !ran.verified {
            return Err(failed(&"it has a wrong result"));
        }
        let counts = partition.tlb_counts().map_err(|e| failed(&e))?;
        counts.ok_or_else(|| failed(&"its node has no modelled TLB"))
    };
    let run = |&(kernel, class): &(&str, &str)| -> Result<TlbRun, StudyError> {
        let long = ITERATIONS_OF_A.iter().find(|(name, _)| *name == kernel && class == "A");
        let continued_to = long.map(|(_, iterations)| *iterations);
        let counts = match continued_to {
            None => count(kernel, class, None)?,
            Some(all) => {
                let [first, second] = STOPPED_AFTER;
                let [fewer, more] = [count(kernel, class, Some(first))?, count(kernel, class, Some(second))?];
                continued(fewer, more, f64::from(all - first) / f64::from(second - first))
            }
        };
        Ok(TlbRun { kernel: kernel.into(), class: class.into(), setup: setup.clone(), counts, continued_to })
    };
    kernels.iter().map(run).collect()
}

/// Counts that grow on by the difference of two runs, `times` of it.
fn continued(fewer: Counts, more: Counts, times: f64) -> Counts {
    let grow = |a: u64, b: u64| a + (b.saturating_sub(a) as f64 * times).round() as u64;
    let mut misses = fewer.misses;
    misses.iter_mut().zip(more.misses).for_each(|(a, b)| *a = grow(*a, b));
    Counts {
        cpus: fewer.cpus,
        instructions: grow(fewer.instructions, more.instructions),
        accesses: grow(fewer.accesses, more.accesses),
        fetches: grow(fewer.fetches, more.fetches),
        misses,
        // nothing is predicted from loads and stores
        ..Counts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_continued_by_those_of_an_iteration() {
        let counts = |instructions, misses| Counts { instructions, misses: [misses; 8], ..Counts::default() };
        let all = continued(counts(100, 7), counts(300, 7), 249.0 / 2.0);
        assert_eq!(all, counts(25_000, 7));
    }
}
