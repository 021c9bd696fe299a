// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs of the seeds over the window of compute nodes: no MPI, one static file.
//!
//! On a compute node its environment says which rank it is. On Linux `--ranks` makes the window and starts
//! the ranks, each a process.

mod local;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use colony_bench::programs::{Output, Session};
use colony_bench::{MpiRecord, Options, Params, Program};
use colony_comm::Comm;
use colony_comm::torus::TorusComm;
use colony_time::tsc::{Calibration, CounterKind};
use colony_torus::{Torus, layout};

/// The benchmark programs of the seeds, over the shared window of compute nodes.
///
/// A compute node's kernel says by the environment which rank this is. On Linux: colony-bench-cnk --ranks 2
/// barrier
#[derive(Debug, Parser)]
#[command(name = "colony-bench-cnk", version)]
struct Cli {
    /// The program to run
    program: Program,
    #[command(flatten)]
    options: Options,
    /// Start this many ranks here, each a process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: Option<u32>,
    /// Counter to read: auto is the time-stamp counter on a compute node, and on Linux where that trusts it
    #[arg(long, value_enum, default_value_t = Read::Auto)]
    counter: Read,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Read {
    Auto,
    Tsc,
    Clock,
}

impl Read {
    fn kind(self, is_on_node: bool) -> CounterKind {
        match self {
            Self::Tsc => CounterKind::Tsc,
            Self::Clock => CounterKind::Vdso,
            // a compute node's clock is that counter; what its file system says is of another node
            Self::Auto if is_on_node => CounterKind::Tsc,
            Self::Auto => CounterKind::best(),
        }
    }
}

/// Exit code and what to say.
type Failure = (u8, String);

fn main() -> ExitCode {
    let cli = Cli::parse();
    match prepare(&cli).and_then(|params| match cli.ranks {
        Some(ranks) => local::run(ranks, params.program),
        None => run(&cli, params),
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, e)) => {
            if !e.is_empty() {
                eprintln!("colony-bench-cnk: {e}");
            }
            ExitCode::from(code)
        }
    }
}

fn prepare(cli: &Cli) -> Result<Params, Failure> {
    let params = cli.options.params(cli.program).map_err(|e| (2, e.to_string()))?;
    if params.compare_blocks > 0 {
        return Err((2, "the comparison with C is one of MPI; leave --compare-c out".into()));
    }
    Ok(params)
}

fn run(cli: &Cli, params: Params) -> Result<(), Failure> {
    let session = Session::begin(params);
    let torus = Torus::join()
        .map_err(|e| (2, format!("{e}; outside a compute node, --ranks N starts the ranks here")))?;
    let rank = torus.rank();
    let world = TorusComm::world(&torus);
    let calibration = Calibration::measure_kind(cli.counter.kind(torus.is_on_node()));
    let session = session
        .join(&world, host(), calibration)
        .map_err(|e| (2, if rank == 0 { e } else { String::new() }))?;
    let failed = |e: String| {
        // the others wait for a rank that fails: it ends them
        world.abort();
        (1, format!("rank {rank}: {e}"))
    };
    let mine = session.run(&world).map_err(failed)?;
    let result = session.result(&world, mine, None, network(&torus)).map_err(failed)?;
    // nobody leaves before the result is at rank 0
    world.barrier().map_err(|e| failed(e.to_string()))?;
    result.map_or(Ok(()), |result| cli.output.write(&result)).map_err(|e| (1, e))
}

fn host() -> String {
    let name = nix::sys::utsname::uname().ok();
    name.map(|u| u.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

/// The record of the network, in the place of the MPI library's.
fn network(torus: &Torus) -> MpiRecord {
    let [x, y, z] = torus.dims().sides();
    MpiRecord {
        library: format!("Colony torus {x}x{y}x{z}"),
        standard: format!("window {}", layout::VERSION),
    }
}
