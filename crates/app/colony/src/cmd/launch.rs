// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony launch`: the ranks of a program of objects.

use std::ffi::OsString;
use std::process::ExitCode;

use colony_runtime::launch::Launch;

use crate::exit::wrong;

/// Start a program of objects (colony-runtime) on several processes, without MPI
///
/// The processes find each other over Unix sockets, with --hosts over TCP. If one of them fails or is killed, all end;
/// none outlives this command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  colony launch -n 4 -- ./stencil 64 4 100
  colony launch -n 8 --hosts node1,node2 --this-host login -- /shared/stencil 256 8 100
Under MPI, the same program is started by mpirun or srun instead.")]
pub(crate) struct Args {
    /// Processes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2)]
    ranks: u32,
    /// Hosts that take turns, reached by ssh without a password; the program has the same path on each
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Name under which those hosts reach this one
    #[arg(long, value_name = "HOST", requires = "hosts")]
    this_host: Option<String>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Starts the ranks and waits for their end.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { ranks, hosts, this_host, command } = args;
    if !hosts.is_empty() && this_host.is_none() {
        return Err(wrong("--hosts needs --this-host NAME, the name under which those hosts reach this one"));
    }
    let Some((program, arguments)) = command.split_first() else {
        return Err(wrong("no program is given: colony launch -n 4 -- CMD"));
    };
    let launch = Launch { ranks, hosts, this_host, program: program.clone(), arguments: arguments.to_vec() };
    let code = launch.run().map_err(|error| wrong(error.to_string()))?;
    Ok(ExitCode::from(code))
}
