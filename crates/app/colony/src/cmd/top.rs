// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony top`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use colony_client::Client;
use colony_client::Mode;
use colony_measure::selfish;
use colony_measure::{Attribution, Config, Live};
use colony_node::cpu::{self, CpuSet};
use colony_view::top;
use colony_view::units::time;

use crate::exit::WrongUse;
use crate::words::{Ns, cpus, ns};

/// Single detours kept between two looks.
const RING: usize = 1 << 18;

/// Watch this node's noise while it happens
///
/// Per CPU: stolen share, detours, and the split into favored and regular windows where a scheduler is
/// active; all CPUs: sources and lengths. Where colonyd keeps windows: what keeps them, what was stolen in
/// favored windows, how late edges were, who was held back the longest. The observers take the CPUs they observe
/// for themselves.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony top
  colony top --cpus 2-3 --every 500ms
Keys: q quit, p pause, r reset")]
pub(crate) struct Args {
    /// CPUs to observe [default: all this process may use]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// The shortest detour to look for, 50ns or more
    #[arg(long, value_parser = ns, default_value = "100ns", value_name = "TIME")]
    threshold: Ns,
    /// Time between two looks
    #[arg(long, value_parser = ns, default_value = "1s", value_name = "TIME")]
    every: Ns,
    /// End by itself after this long [default: when asked to]
    #[arg(long, value_parser = ns, value_name = "TIME")]
    duration: Option<Ns>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
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
        until: None,
    };
    let mut live = Live::start(&Config { observe, attribution: Attribution::Auto, node: 0 })?;
    let options = top::Options {
        every: Duration::from_nanos(args.every.0.max(50_000_000)),
        duration: args.duration.map(|d| Duration::from_nanos(d.0)),
    };
    // the daemon's windows are asked for at each look: they may change, and it may come and go
    top::run(&mut live, options, in_force)?;
    Ok(ExitCode::SUCCESS)
}

/// The windows that colonyd keeps here.
fn in_force() -> Option<top::InForce> {
    let stats = Client::find()?.stats().ok()?;
    let clock = &stats.coordination;
    let coordinated = match (clock.mode, clock.error_bound_ns) {
        (Mode::Coordinated, Some(bound)) => format!("coordinated within {}", time(bound as f64)),
        (Mode::Coordinated, None) => "coordinated".into(),
        _ => "uncoordinated (colony clock show)".into(),
    };
    Some(top::InForce { windows: clock.kept?, coordinated, stats })
}
