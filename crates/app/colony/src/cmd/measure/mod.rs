// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony measure`.

mod then;
mod wakeups;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use colony_measure::selfish;
use colony_measure::{Attribution, Condition, Config, UntilReport, measure};
use colony_node::cpu::{self, CpuSet};
use colony_view::progress::Progress;

use crate::exit::LIMIT_REACHED;
use crate::words::{Ns, cpus, ns};

/// Measure this node's noise and say where it comes from
///
/// A loop on every CPU looks for detours: intervals in which the CPU was taken from the program. With
/// privileges (root, or CAP_BPF and CAP_PERFMON) BPF programs on the kernel's tracepoints name the source
/// of each. --wakeups measures instead how late a thread runs that waits for a timer.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony measure                               all CPUs for 10 s
  colony measure --cpus 3 --duration 60s --out node.parquet
  sudo colony measure --fifo 50 --cpus 1-3     a real-time observer on CPUs 1 to 3
  colony measure --json | jq '.sources[] | [.source, .stolen_share]'
  sudo colony measure --cpus 3 --duration 1h --until 'detour > 50us' \\
      --then 'echo \"$COLONY_SOURCE took CPU $COLONY_CPU for $COLONY_DETOUR_NS ns\"'
  sudo colony measure --wakeups --fifo 80      from a timer to a real-time thread
  colony measure --wakeups --cpus 3 --duration 1h --until 'latency > 100us'

Exit codes: 0 measured; 1 the measurement or the command of --then failed;
2 wrong use; 3 a detour or a latency met the condition of --until")]
pub(crate) struct Args {
    /// CPUs to observe, such as 0-3,5 [default: all this process may use. All but the first with --until, and with --fifo where detours are measured]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Duration; Ctrl-C ends the measurement early and keeps what was measured
    #[arg(long, value_parser = ns, default_value = "10s", value_name = "TIME")]
    duration: Ns,
    /// Measure wake-up latency instead of detours: from the instant of a timer to the thread that waits for it, on every CPU.
    /// The result is a histogram of each CPU and no trace, so there is no --out: --json has it
    #[arg(long, conflicts_with_all = ["threshold", "all_cpus", "ring", "node", "out", "no_keep"])]
    wakeups: bool,
    /// Time between two instants of each CPU's timer, 50us to 1s; a measurement ends at such an instant [default: 1ms]
    #[arg(long, value_parser = ns, value_name = "TIME")]
    interval: Option<Ns>,
    /// Stop at the first detour that meets this condition, and show its source, the events before it and the kernel's
    /// stack: 'detour > TIME' or 'detour >= TIME', with --wakeups 'latency > TIME' or 'latency >= TIME'. --duration is the longest wait for it;
    /// exit code 3 if it was met
    #[arg(long, value_name = "CONDITION")]
    until: Option<Condition>,
    /// Run this with `sh -c` if the condition of --until was met, after the trace is kept. The command's standard output
    /// goes to standard error. Its environment has COLONY_CPU, COLONY_DETOUR_NS, COLONY_DETOUR_START_NS (TAI),
    /// COLONY_SOURCE if it is known, and COLONY_TRACE with --out; with --wakeups COLONY_LATENCY_NS and COLONY_TIMER_NS (TAI)
    /// instead of the detour's
    #[arg(long, requires = "until", value_name = "COMMAND", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    then: Option<String>,
    /// The shortest detour to look for, 50ns or more
    #[arg(long, value_parser = ns, default_value = "100ns", value_name = "TIME")]
    threshold: Ns,
    /// Observe in SCHED_FIFO with this priority, 1 to 90 [default: the class of this process]
    #[arg(long, value_name = "PRIORITY")]
    fifo: Option<u8>,
    /// Let a SCHED_FIFO observer take every CPU: the node stands still until it ends
    #[arg(long, requires = "fifo")]
    all_cpus: bool,
    /// Do not look for sources
    #[arg(long)]
    no_attribution: bool,
    /// Single detours kept per CPU; more are only counted
    #[arg(long, default_value_t = 1 << 20, value_name = "N")]
    ring: usize,
    /// Number of this node in the trace
    #[arg(long, default_value_t = 0, value_name = "N")]
    node: u32,
    /// Keep the trace: one row a detour, Parquet or what else the name says (.csv, .json)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Do not keep the trace for `colony doctor`
    #[arg(long)]
    no_keep: bool,
    /// Print JSON for programs instead of tables
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    // clap's `requires` lets it pass beside an option that --wakeups conflicts with
    match (args.wakeups, args.interval) {
        (true, _) => wakeups::run(&args),
        (false, None) => measure_detours(&args),
        (false, Some(_)) => {
            Err(crate::exit::wrong("--interval has no effect without --wakeups; leave it out"))
        }
    }
}

fn measure_detours(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config {
        observe: selfish::Config {
            cpus: chosen_cpus(args)?,
            duration_ns: args.duration.0,
            threshold_ns: args.threshold.0,
            fifo: args.fifo,
            all_cpus: args.all_cpus,
            ring: args.ring,
            until: args.until,
        },
        attribution: args.attribution(),
        node: args.node,
    };
    if let Some(out) = &args.out {
        colony_trace::convert::check_writable(out, None)?;
    }
    let stop = super::stop_flag()?;
    let bar = Progress::over("measuring", Duration::from_nanos(args.duration.0));
    let (mut measurement, trace) = measure(&config, |elapsed| {
        bar.at(elapsed);
        !stop.load(Ordering::Relaxed)
    })?;
    drop(bar);
    if let Some(out) = &args.out {
        colony_trace::convert::write(&trace, out, None)?;
    }
    if !args.no_keep {
        crate::state::keep_trace(trace);
    }
    let failed = measurement.until.as_mut().and_then(|until| run_then(args, until, &stop));
    super::print(args.json, &measurement, colony_view::measurement::render)?;
    exit_code(failed, measurement.until.as_ref())
}

impl Args {
    fn attribution(&self) -> Attribution {
        if self.no_attribution { Attribution::Off } else { Attribution::Auto }
    }
}

/// The exit code of a measurement whose command of `--then` failed with this error, if it did.
fn exit_code(failed: Option<String>, until: Option<&UntilReport>) -> anyhow::Result<ExitCode> {
    match failed {
        Some(error) => anyhow::bail!(error),
        None if until.is_some_and(|until| until.reached) => Ok(ExitCode::from(LIMIT_REACHED)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Runs the command of `--then` if the condition was met, and adds its end to the report. Returns its error.
fn run_then(args: &Args, until: &mut UntilReport, stop: &AtomicBool) -> Option<String> {
    let quantity = until.condition.quantity;
    let report =
        then::run(args.then.as_deref()?, quantity, until.detour.as_ref()?, args.out.as_deref(), stop);
    until.then.insert(report).error.clone()
}

/// The CPUs asked for, else all usable ones. A real-time observer leaves the first to the system. With `--until` the first is
/// for the threads of this process: their detours would end the measurement.
fn chosen_cpus(args: &Args) -> anyhow::Result<CpuSet> {
    if let Some(cpus) = &args.cpus {
        return Ok(cpus.clone());
    }
    let usable = cpu::usable()?;
    // threads that sleep leave their CPU to the system, real-time or not
    let takes_cpu = args.fifo.is_some() && !args.wakeups;
    let leaves_one = !args.all_cpus && (takes_cpu || args.until.is_some() && usable.len() > 1);
    let spare: CpuSet = usable.first().filter(|_| leaves_one).into_iter().collect();
    Ok(usable.without(&spare))
}
