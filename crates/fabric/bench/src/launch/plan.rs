// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a launch: program, CPUs and launcher.

use std::path::PathBuf;
use std::time::Duration;

use colony_node::cpu::CpuSet;

use crate::Params;

/// The launcher of the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LauncherChoice {
    /// srun inside a Slurm job, else mpirun
    #[default]
    Auto,
    /// mpirun or mpiexec of Open MPI or MPICH
    Mpirun,
    /// Slurm's srun
    Srun,
}

/// A run of a benchmark program to be.
///
/// ```no_run
/// use colony_bench::{Launch, Options, Program};
/// let params = Options { ops: Some(10_000), ..Options::default() }.params(Program::Allreduce)?;
/// print!("{}", Launch::new(params, 2).run()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Launch {
    /// The benchmark and its parameters.
    pub params: Params,
    /// Number of ranks.
    pub ranks: u32,
    /// CPUs of the ranks, on each node; `None` leaves the choice to the launch (see
    /// [`command`](Self::command)).
    pub cpus: Option<CpuSet>,
    /// The launcher.
    pub launcher: LauncherChoice,
    /// Nodes to run on (mpirun's host file); `None` is this node, or what Slurm has allocated.
    pub hostfile: Option<PathBuf>,
    /// Write the result to this file; `None` brings it to [`run`](Self::run) on standard output.
    pub out: Option<PathBuf>,
    /// The longest the run may take; `None` is any time.
    pub timeout: Option<Duration>,
}

impl Launch {
    /// A run of `ranks` ranks on this node, by the launcher at hand, for any time.
    #[must_use]
    pub fn new(params: Params, ranks: u32) -> Self {
        Self {
            params,
            ranks,
            cpus: None,
            launcher: LauncherChoice::Auto,
            hostfile: None,
            out: None,
            timeout: None,
        }
    }
}
