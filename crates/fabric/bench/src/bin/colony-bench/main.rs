// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs of the seeds, over MPI.
//!
//! Started by an MPI launcher (`mpirun`, `srun`), best through `colony bench`, which knows their options.

mod cli;
mod compare;

use std::process::ExitCode;

use clap::Parser;
use colony_bench::programs::Session;
use colony_bench::{MpiRecord, Params};
use colony_comm::Comm;
use colony_comm::mpi::Mpi;
use colony_time::tsc::Calibration;

use cli::Cli;

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
    let mpi = Mpi::initialize().map_err(|e| (1, e.to_string()))?;
    let world = mpi.world();
    let rank = world.rank();
    // the others wait for a rank that fails: it ends them, and may end itself, so it speaks first
    let failed = |e: String| {
        eprintln!("colony-bench: rank {rank}: {e}");
        world.abort();
        (1, String::new())
    };
    let host = mpi.processor_name().map_err(|e| failed(e.to_string()))?;
    let session = session
        .join(&world, host, Calibration::measure())
        .map_err(|e| (2, if rank == 0 { e } else { String::new() }))?;
    let mine = session.run(&world).map_err(failed)?;
    let comparison = compare::run(&session, &world).map_err(|e| failed(e.to_string()))?;
    let library = MpiRecord { library: mpi.library(), standard: mpi.standard() };
    let result = session.result(&world, mine, comparison, library).map_err(failed)?;
    result.map_or(Ok(()), |result| cli.output.write(&result)).map_err(|e| (1, e))
}
