// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{path::PathBuf, process::ExitStatus, time::Duration};

use crate::Program;

/// Parameters with which a program cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be run with this {option}: {why}", .program.name())]
pub struct ParamsError {
    /// The program.
    pub program: Program,
    /// The option that is wrong.
    pub option: &'static str,
    /// The reason, and the remedy.
    pub why: String,
}

/// Errors of the launch of a benchmark.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The parameters make no run.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// The ranks asked for make no run.
    #[error("{} cannot run on {ranks} rank(s); it needs at least {least}", .program.name())]
    Ranks {
        /// The program.
        program: Program,
        /// Ranks asked for.
        ranks: u32,
        /// The fewest it runs on.
        least: u32,
    },
    /// The CPUs asked for cannot be used, or the node cannot be asked.
    #[error(transparent)]
    Node(#[from] colony_node::NodeError),
    /// There is no MPI to launch with.
    #[error(
        "no MPI launcher found: looked for {} in $PATH; install one with `./x setup` or \
         `apt install openmpi-bin`, or name yours in $COLONY_MPIRUN", .looked_for.join(" and ")
    )]
    NoMpi {
        /// The names looked for.
        looked_for: Vec<String>,
    },
    /// A launcher of a kind that is not known: its options would be a guess.
    #[error(
        "unknown MPI launcher {}: `--version` says `{says}`; set COLONY_MPIRUN_KIND to openmpi4, openmpi5, hydra, \
         pals or srun if it takes the options of one of these, or name another launcher in COLONY_MPIRUN",
        .launcher.display()
    )]
    UnknownLauncher {
        /// The launcher.
        launcher: PathBuf,
        /// The first line of its version.
        says: String,
    },
    /// A kind of launcher that there is not.
    #[error("COLONY_MPIRUN_KIND is `{kind}`; expected openmpi4, openmpi5, hydra, pals or srun")]
    LauncherKind {
        /// The value found.
        kind: String,
    },
    /// The program `colony-bench` is not there.
    #[error(
        "the program colony-bench was not found; looked at {}; build it with \
         `cargo build -p colony-bench --features mpi` (`./x setup` installs what that needs), or name it in \
         $COLONY_BENCH", .looked_at.join(", ")
    )]
    NoProgram {
        /// Places looked at.
        looked_at: Vec<String>,
    },
    /// The launcher could not be started.
    #[error("cannot start `{command}`: {source}")]
    Spawn {
        /// The command line.
        command: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The launcher ended with an error.
    #[error("`{command}` ended with {status}{}", said(.stderr))]
    Failed {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// The last of what it said.
        stderr: String,
    },
    /// The run took too long and was ended.
    #[error(
        "`{command}` was not done after {} s and was ended; give it fewer operations or more time",
        .after.as_secs_f64()
    )]
    Timeout {
        /// The command line.
        command: String,
        /// The time it had.
        after: Duration,
    },
    /// The caller wanted no more.
    #[error("`{command}` was interrupted and has been ended")]
    Interrupted {
        /// The command line.
        command: String,
    },
    /// The run gave no result that can be read.
    #[error("{from} holds no result of colony-bench: {reason}")]
    Output {
        /// The command line or file.
        from: String,
        /// The fault found.
        reason: String,
    },
    /// The run came out with another number of ranks.
    #[error(
        "`{command}` was to run {wanted} ranks and ran {got}: the ranks did not find each other, since the \
         launcher is not the one of colony-bench's MPI library ({library}); name the right one in \
         $COLONY_MPIRUN, build colony-bench for the other (MPICC), or under srun choose the plugin \
         (SLURM_MPI_TYPE=pmix)"
    )]
    WorldSize {
        /// The command line.
        command: String,
        /// Ranks asked for.
        wanted: u32,
        /// Ranks in the result.
        got: u32,
        /// The MPI library colony-bench says it runs on.
        library: String,
    },
    /// A result file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl BenchError {
    /// True if the caller's request is impossible (exit code 2), false if the run failed (exit code 1).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Params(_) | Self::Ranks { .. } | Self::LauncherKind { .. } => true,
            Self::Node(e) => e.is_wrong_use(),
            _ => false,
        }
    }
}

fn said(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() { String::new() } else { format!("; it said: {text}") }
}
