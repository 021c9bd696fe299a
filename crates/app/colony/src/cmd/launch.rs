// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony launch`: the ranks of a program of objects.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use colony_runtime::launch::Launch;

use crate::exit::wrong;

/// Start a program of objects (colony-runtime) on several processes, without MPI
///
/// The processes find each other over Unix sockets, with --hosts or --slurm over TCP. If one of them fails, all end. So they do if
/// one is killed, unless --restarts allows to replace it. None outlives this command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  colony launch -n 4 -- ./stencil 64 4 100
  salloc -n 8 colony launch -n 8 --slurm -- /shared/stencil 256 8 100
  COLONY_CHECKPOINT=memory:every=60s colony launch -n 8 --restarts 5 \
    --hosts node1,node2 --spares node3 --this-host login -- /shared/stencil 256 8 100 10
  colony launch -n 8 --hosts node1,node2 --this-host login -- /shared/stencil 256 8 100
  COLONY_CHECKPOINT=memory:every=60s colony launch -n 8 --mpi --restarts 5 -- ./stencil 256 8 100 10
Under MPI, the same program is started by mpirun or srun, too.")]
pub(crate) struct Args {
    /// Processes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2)]
    ranks: u32,
    /// Hosts that take turns, reached by ssh without a password; the program has the same path on each
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Hosts for the ranks of those that are lost; without spares, such ranks go to the other hosts
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', requires_all = ["hosts", "restarts"])]
    spares: Vec<String>,
    /// Name under which those hosts reach this one [default with --slurm and --mpi: the host's own]
    #[arg(long, value_name = "HOST")]
    this_host: Option<String>,
    /// Start the ranks by srun, on the hosts of this Slurm allocation
    #[arg(long, conflicts_with = "hosts")]
    slurm: bool,
    /// Start the ranks by mpirun; with --restarts, one that dies is replaced, and all go on over sockets
    #[arg(long, conflicts_with_all = ["hosts", "slurm"])]
    mpi: bool,
    /// Replace ranks that are killed or stop responding, up to N times; the program goes on from its last checkpoint
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "slurm")]
    restarts: u32,
    /// Seconds of silence after which a rank counts as dead, unless it runs or waits for a CPU [default: 0.5 to 2, by its heartbeats; 5 if it is stopped]
    #[arg(long, value_name = "SECONDS", requires = "restarts", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A time that is longer than the interval between two heartbeats.
fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write a number of seconds from 0.1 to 86400".to_owned())
}

/// Starts the ranks and waits for their end.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { ranks, hosts, spares, this_host, slurm, mpi, restarts, timeout, command } = args;
    if hosts.is_empty() && !slurm && !mpi && this_host.is_some() {
        return Err(wrong("--this-host has no meaning without --hosts, --slurm or --mpi"));
    }
    if !hosts.is_empty() && this_host.is_none() {
        return Err(wrong("--hosts needs --this-host NAME, the name under which those hosts reach this one"));
    }
    let Some((program, arguments)) = command.split_first() else {
        return Err(wrong("no program is given: colony launch -n 4 -- CMD"));
    };
    let (program, arguments) = (program.clone(), arguments.to_vec());
    let launch =
        Launch { ranks, hosts, spares, this_host, slurm, mpi, restarts, timeout, program, arguments };
    let code = launch.run().map_err(|error| wrong(error.to_string()))?;
    Ok(ExitCode::from(code))
}
