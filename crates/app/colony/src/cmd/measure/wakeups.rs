// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony measure --wakeups`.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use colony_measure::wakeups::{Config, measure};
use colony_view::progress::Progress;

use super::Args;

/// Time between two instants of a timer by default.
const INTERVAL_NS: u64 = 1_000_000;

/// Measures wake-up latency and prints it.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config {
        cpus: super::chosen_cpus(args)?,
        duration_ns: args.duration.0,
        interval_ns: args.interval.map_or(INTERVAL_NS, |interval| interval.0),
        fifo: args.fifo,
        until: args.until,
        attribution: args.attribution(),
    };
    let stop = crate::cmd::stop_flag()?;
    let bar = Progress::over("measuring", Duration::from_nanos(args.duration.0));
    let mut measurement = measure(&config, |elapsed| {
        bar.at(elapsed);
        !stop.load(Ordering::Relaxed)
    })?;
    drop(bar);
    let failed = measurement.until.as_mut().and_then(|until| super::run_then(args, until, &stop));
    crate::cmd::print(args.json, &measurement, colony_view::wakeups::render)?;
    super::exit_code(failed, measurement.until.as_ref())
}
