// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs of the seeds, over MPI.
//!
//! Started by an MPI launcher (`mpirun`, `srun`), best through `colony bench`, which knows their options.

mod cli;
mod compare;
mod mpi_comm;

use std::process::ExitCode;

use clap::Parser;
use colony_bench::programs::Session;
use colony_bench::{MpiRecord, Params};
use colony_time::tsc::Calibration;
use mpi::traits::Communicator;

use cli::Cli;
use mpi_comm::Mpi;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // every rank is wrong in the same way: one of them says so
            if cli::speaks() {
                let _ = e.print();
            }
            return ExitCode::from(e.exit_code() as u8);
        }
    };
    let ready = cli.options.params(cli.program).map_err(|e| e.to_string());
    let params = match ready.and_then(|params| cli.bind().map(|()| params)) {
        Ok(params) => params,
        Err(e) => {
            if cli::speaks() {
                eprintln!("colony-bench: {e}");
            }
            return ExitCode::from(2);
        }
    };
    match run(&cli, params) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, e)) => {
            if !e.is_empty() {
                eprintln!("colony-bench: {e}");
            }
            ExitCode::from(code)
        }
    }
}

/// Exit code and what to say; ranks that have nothing to say of their own are silent.
type Failure = (u8, String);

fn run(cli: &Cli, params: Params) -> Result<(), Failure> {
    let session = Session::begin(params);
    let universe = mpi::initialize().ok_or((1, "MPI cannot be initialized".to_owned()))?;
    let world = Mpi(universe.world());
    let rank = world.0.rank();
    // the others wait for a rank that fails: it ends them
    let abort = |e: String| -> ! {
        eprintln!("colony-bench: rank {rank}: {e}");
        world.0.abort(1)
    };
    let host =
        mpi::environment::processor_name().unwrap_or_else(|e| abort(format!("asking MPI for the node: {e}")));
    let session = session
        .join(&world, host, Calibration::measure())
        .map_err(|e| (2, if rank == 0 { e } else { String::new() }))?;
    let mine = session.run(&world).unwrap_or_else(|e| abort(e));
    let comparison = compare::run(&session, &world);
    let result = session.result(&world, mine, comparison, mpi_record()).unwrap_or_else(|e| abort(e));
    result.map_or(Ok(()), |result| cli.output.write(&result)).map_err(|e| (1, e))
}

fn mpi_record() -> MpiRecord {
    let text = mpi::environment::library_version().unwrap_or_default();
    let first = text.lines().next().unwrap_or_default().trim_end_matches('\0');
    let (major, minor) = mpi::environment::version();
    MpiRecord {
        library: first.split_whitespace().collect::<Vec<_>>().join(" "),
        standard: format!("{major}.{minor}"),
    }
}
