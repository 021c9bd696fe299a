//! The benchmark programs of the seeds, over MPI.
//!
//! Started by an MPI launcher (`mpirun`, `srun`), best through `colony bench`, which knows their options.

mod cli;
mod compare;
mod detour;
mod gather;
mod measure;
mod operation;
mod programs;
mod work;

use std::process::ExitCode;

use clap::Parser;
use colony_bench::{BenchResult, MpiRecord, Params, Program};
use colony_node::record::NodeRecord;
use colony_time::clock::Clock;
use mpi::traits::Communicator;

use cli::Cli;
use measure::Context;

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
    let (start_ns, node) = (Clock::Tai.now_ns(), NodeRecord::now());
    let universe = mpi::initialize().ok_or((1, "MPI cannot be initialized".to_owned()))?;
    let world = universe.world();
    let (rank, ranks) = (world.rank() as u32, world.size() as u32);
    let least = params.program.min_ranks();
    if ranks < least {
        let text = format!("{} needs at least {least} ranks and has {ranks}", params.program.name());
        return Err((2, if rank == 0 { text } else { String::new() }));
    }
    // the others wait for a rank that fails: it ends them
    let abort = |e: String| -> ! {
        eprintln!("colony-bench: rank {rank}: {e}");
        world.abort(1)
    };
    let context = Context::new(params, &world).unwrap_or_else(|e| abort(e));
    let mine = programs::run(&context, &world).unwrap_or_else(|e| abort(e));
    let comparison = compare::run(&context, &world);
    let gathered = gather::to_root(&world, mine, context.params.slowest as usize);
    let Some(results) = gathered.unwrap_or_else(|e| abort(e)) else { return Ok(()) };
    let mut result = BenchResult {
        schema: BenchResult::SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ranks,
        hosts: Vec::new(),
        mpi: mpi_record(),
        node,
        counter: context.calibration,
        start_ns,
        wall_s: (Clock::Tai.now_ns() - start_ns) as f64 / 1e9,
        results,
        comparison,
        params: context.params,
    };
    complete(&mut result);
    cli.write(&result).map_err(|e| (1, e))?;
    let wrong: u64 = result.results.iter().map(|m| m.wrong).sum();
    match wrong {
        0 => Ok(()),
        n => Err((1, format!("{n} stretches left a wrong value: this MPI library computes wrongly"))),
    }
}

/// Fills in what only all ranks together say.
fn complete(result: &mut BenchResult) {
    for m in &mut result.results {
        if let Some(work) = &mut m.work {
            work.slowdown = m.all.mean_us * 1e3 / (work.loops as f64 * work.turn_ns);
        }
    }
    let mut hosts: Vec<String> =
        result.results.iter().flat_map(|m| m.per_rank.iter().map(|r| r.host.clone())).collect();
    hosts.sort_unstable();
    hosts.dedup();
    result.hosts = hosts;
    debug_assert!(result.params.program == Program::Glob || result.results.len() == 1);
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
