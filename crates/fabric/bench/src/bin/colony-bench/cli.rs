// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line, and what is done with it before MPI starts and after it ends.

use colony_bench::programs::Output;
use colony_bench::{Options, Program};
use colony_node::cpu::{self, CpuSet};
use colony_node::parent;
use nix::sys::signal::Signal;

/// The benchmark programs of the seeds, over MPI.
///
/// Start it with an MPI launcher: mpirun -n 2 colony-bench allreduce
#[derive(Debug, clap::Parser)]
#[command(name = "colony-bench", version)]
pub(crate) struct Cli {
    /// The program to run
    pub(crate) program: Program,
    #[command(flatten)]
    pub(crate) options: Options,
    /// Bind rank i of each node to the i-th of these CPUs
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Variables in which launchers give a process its rank on its node: Open MPI, Hydra, Slurm, PALS.
const LOCAL_RANK: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PALS_LOCAL_RANKID"];

/// Variables in which launchers give a process its rank in the world.
const WORLD_RANK: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

fn number(names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// True if this process prints for all of them, before MPI has given it a rank.
pub(crate) fn speaks() -> bool {
    number(&WORLD_RANK).unwrap_or(0) == 0
}

impl Cli {
    /// Takes this rank's CPU, before MPI allocates memory near it; and makes sure that it does not outlive
    /// its launcher.
    pub(crate) fn bind(&self) -> Result<(), String> {
        let local = number(&LOCAL_RANK);
        if local.is_some() {
            // MPI notices when it begins that a launcher has ended before this line
            parent::follow(nix::unistd::getppid(), Signal::SIGKILL)
                .map_err(|e| format!("the launcher of this rank has ended: {e}"))?;
        }
        let Some(cpus) = &self.cpus else { return Ok(()) };
        let local = local.unwrap_or(0);
        let cpu = cpus.iter().nth(local).ok_or_else(|| {
            format!("--cpus {cpus} names {} CPUs; rank {local} of this node gets none", cpus.len())
        })?;
        cpu::check(&std::iter::once(cpu).collect()).and_then(|()| cpu::pin(cpu)).map_err(|e| e.to_string())
    }
}
