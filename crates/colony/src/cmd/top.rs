//! `colony top`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use colony_node::cpu;
use colony_noise::measure::{Attribution, Config, Live};
use colony_noise::selfish;
use colony_view::top;

use crate::cli::Top;
use crate::exit::WrongUse;

/// Single detours kept between two looks.
const RING: usize = 1 << 18;

pub(crate) fn run(args: Top) -> anyhow::Result<ExitCode> {
    if !std::io::stdout().is_terminal() {
        let what = "colony top draws on a terminal, and standard output is none; use colony measure";
        return Err(WrongUse(what.into()).into());
    }
    let observe = selfish::Config {
        cpus: args.cpus.map_or_else(cpu::usable, Ok)?,
        duration_ns: selfish::Config::MAX_DURATION_NS,
        threshold_ns: args.threshold.0,
        fifo: None,
        all_cpus: false,
        ring: RING,
    };
    let mut live = Live::start(&Config { observe, attribution: Attribution::Auto, node: 0 })?;
    let options = top::Options {
        every: Duration::from_nanos(args.every.0.max(50_000_000)),
        duration: args.duration.map(|d| Duration::from_nanos(d.0)),
    };
    top::run(&mut live, options, || None)?;
    Ok(ExitCode::SUCCESS)
}
