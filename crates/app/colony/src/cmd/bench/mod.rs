// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony bench`.

mod checkpoint;
mod lb;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use colony_bench::{Launch, LauncherChoice, Options, Program};
use colony_node::cpu::CpuSet;
use colony_view::progress::Progress;

use crate::exit::wrong;
use crate::words::cpus;

/// Run one of the seeds' MPI programs, with mpirun or under Slurm with srun; or load balancing (lb),
/// or checkpoints in memory (checkpoint)
///
/// barrier, allreduce, myallreduce (a user-defined operation), alltoall, ring; glob (allreduce on
/// sub-communicators of every power of two); bsp (work, then a barrier). Each can make detours in its own
/// ranks by a timer signal, and keeps a histogram of single operations.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  colony bench allreduce -n 2 --ops 100000
  colony bench barrier -n 2 --detour 16us --every 1ms --phase random
  colony bench bsp -n 2 --ops 1000 --json
  colony bench allreduce -n 2 --compare-c        the same loop in C, in the same run
  colony bench lb                                load balancing of migrating objects, without MPI
  colony bench checkpoint                        checkpoints in memory, without MPI")]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// The program
    #[arg(required = true)]
    program: Option<Program>,
    /// Ranks
    #[arg(short, long, default_value_t = 2, value_name = "N")]
    n: u32,
    /// CPUs of the ranks on each node, such as 0-3,5
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Launcher of the ranks
    #[arg(long, value_enum, default_value_t)]
    launcher: LauncherChoice,
    /// Nodes to run on, mpirun's host file
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// End the run after so many seconds as failed
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Keep the result as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

/// Benchmarks that need no MPI.
#[derive(clap::Subcommand)]
enum Other {
    Lb(lb::Args),
    Checkpoint(checkpoint::Args),
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    match args.other {
        Some(Other::Lb(args)) => return lb::run(args),
        Some(Other::Checkpoint(args)) => return checkpoint::run(args),
        None => {}
    }
    let Some(program) = args.program.take() else {
        return Err(wrong("no program is given: colony bench PROGRAM"));
    };
    let stop = super::stop_flag()?;
    let launch = Launch {
        params: args.options.params(program)?,
        ranks: args.n,
        cpus: args.cpus,
        launcher: args.launcher,
        hostfile: args.hostfile,
        out: None,
        timeout: args.timeout.map(Duration::from_secs),
    };
    if let Some(out) = &args.out {
        super::can_write(out)?;
    }
    let bar = Progress::busy(&format!(
        "{} on {}",
        program.name(),
        colony_view::units::counted(args.n.into(), "rank")
    ));
    let result = launch.run_while(|| !stop.load(Ordering::Relaxed))?;
    drop(bar);
    if let Some(out) = &args.out {
        super::keep(out, &result)?;
    }
    super::print(args.json, &result, ToString::to_string)?;
    Ok(ExitCode::SUCCESS)
}
