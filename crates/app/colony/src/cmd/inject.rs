// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony inject`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use colony_inject::leibniz::{self, Amount, LeibnizPlan};
use colony_inject::noise_table::TablePlan;
use colony_inject::{ClassChoice, CpuMap, DetourPlan, Intervals, Phase, ReplayPlan, Target};
use colony_node::cpu::CpuSet;
use colony_view::injection as view;
use colony_view::progress::Progress;

use crate::words::{Ns, cpus, ns};

/// Make noise on purpose
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    Leibniz(Leibniz),
    Detours(Detours),
    Replay(Replay),
}

/// The noise daemon of the Colony Linux kernel report: π by Leibniz, then 500 ms of sleep
///
/// The number of terms is random below a bound; the bound for a share of noise is calibrated on this
/// machine first.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony inject leibniz --noise 21% --duration 60s
  colony inject leibniz --max-terms 5900000 --cpus 1
  colony inject leibniz --table           terms to noise, as Fig. 4 of the report")]
struct Leibniz {
    /// Share of noise, mean calculation over sleep [default: 2%]
    #[arg(long, value_name = "SHARE", value_parser = noise, conflicts_with_all = ["max_terms", "table"])]
    noise: Option<f64>,
    /// Bound of the random number of terms, maxTermsPerCalc of the report
    #[arg(long, value_name = "N", conflicts_with = "table")]
    max_terms: Option<u64>,
    /// Measure which number of terms makes how much noise
    #[arg(long)]
    table: bool,
    #[command(flatten)]
    common: Common,
}

/// Detours of one length, at fixed or random intervals
///
/// Each is a spin of a pinned thread, real-time where allowed. First a victim on the same CPU looks at
/// them for a second (--check), and what it saw is printed beside what was asked for.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo colony inject detours --length 16us --interval 1ms --phase random --seed 7
  sudo colony inject detours --length 200us --interval 10ms --phase aligned --cpus 1-3")]
struct Detours {
    /// Length of a detour
    #[arg(long, value_parser = ns, default_value = "16us", value_name = "TIME")]
    length: Ns,
    /// Time from one to the next
    #[arg(long, value_parser = ns, default_value = "1ms", value_name = "TIME")]
    interval: Ns,
    /// `random`: every CPU has its own; `aligned`: the same TAI instants everywhere
    #[arg(long, default_value_t, value_name = "PHASE")]
    phase: Phase,
    /// Spread the intervals exponentially
    #[arg(long)]
    exponential: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    common: Common,
}

/// The detours of a recorded trace, again
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony measure --duration 10s --out node.parquet
  sudo colony inject replay --trace node.parquet --cpu-map 0=1")]
struct Replay {
    /// The trace, in any format `colony noise convert` reads
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The node of the trace
    #[arg(long, default_value_t = 0, value_name = "N")]
    from_node: u32,
    /// CPUs of the trace on CPUs of this node: in-order, same, or pairs such as 0=2,1=3
    #[arg(long, default_value_t, value_name = "MAP")]
    cpu_map: CpuMap,
    /// Speed of the replay: the factor by which intervals between detours shrink
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    speed: f64,
    /// Start over at the end of the trace, until --duration is over
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// Duration [default: once through the trace]
    #[arg(long, value_parser = ns, value_name = "TIME")]
    duration: Option<Ns>,
    /// CPUs, such as 0-3,5 [default: the last]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct TargetArgs {
    /// auto, other, fifo or fifo:PRIORITY
    #[arg(long, default_value_t, value_name = "CLASS")]
    class: ClassChoice,
    /// Let real-time injection take every CPU
    #[arg(long)]
    all_cpus: bool,
    /// Duration of the check by a victim thread before the run; 0 for no check
    #[arg(long, value_parser = ns, default_value = "1s", value_name = "TIME")]
    check: Ns,
}

#[derive(clap::Args)]
struct Common {
    /// CPUs, such as 0-3,5 [default: all for leibniz, the last for detours]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Duration; Ctrl-C ends it early
    #[arg(long, value_parser = ns, default_value = "10s", value_name = "TIME")]
    duration: Ns,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Number of this node: its random numbers differ from another's
    #[arg(long, default_value_t = 0, value_name = "N")]
    node: u32,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

fn noise(text: &str) -> Result<f64, String> {
    leibniz::parse_noise(text).map_err(|e| e.to_string())
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = super::stop_flag()?;
    match args.kind {
        Kind::Leibniz(a) if a.table => table(&a, &stop)?,
        Kind::Leibniz(a) => daemon(&a, &stop)?,
        Kind::Detours(a) => detours(&a, &stop)?,
        Kind::Replay(a) => replay(&a, &stop)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn daemon(a: &Leibniz, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let plan = LeibnizPlan {
        amount: a.max_terms.map_or_else(|| Amount::Noise(a.noise.unwrap_or(0.02)), Amount::MaxTerms),
        cpus: a.common.cpus.clone(),
        seed: a.common.seed,
        node: a.common.node,
        duration_ns: a.common.duration.0,
    };
    let report = with_bar("making noise", a.common.duration.0, || plan.run(stop))?;
    super::print(a.common.json, &report, view::leibniz)
}

fn table(a: &Leibniz, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let plan = TablePlan { cpus: a.common.cpus.clone(), seed: a.common.seed, ..TablePlan::default() };
    let bar = Progress::steps("measuring", 10);
    let table = plan.run(stop, |_| bar.step())?;
    drop(bar);
    super::print(a.common.json, &table, view::noise_table)
}

fn detours(a: &Detours, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let plan = DetourPlan {
        length_ns: a.length.0,
        interval_ns: a.interval.0,
        intervals: if a.exponential { Intervals::Exponential } else { Intervals::Fixed },
        phase: a.phase,
        seed: a.common.seed,
        node: a.common.node,
        on: target(&a.target, &a.common.cpus),
        duration_ns: a.common.duration.0,
        check_ns: a.target.check.0,
    };
    let report =
        with_bar("injecting", a.common.duration.0.saturating_add(a.target.check.0), || plan.run(stop))?;
    super::print(a.common.json, &report, view::detours)
}

fn replay(a: &Replay, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let trace = super::read_trace(&a.trace)?;
    let plan = ReplayPlan {
        node: a.from_node,
        map: a.cpu_map.clone(),
        speed: a.speed,
        again: a.again,
        on: target(&a.target, &a.cpus),
        duration_ns: a.duration.map(|d| d.0),
        check_ns: a.target.check.0,
    };
    let duration_ns = a.duration.map_or_else(|| (trace.meta.observed_s * 1e9 / a.speed) as u64, |d| d.0);
    let report =
        with_bar("replaying", duration_ns.saturating_add(a.target.check.0), || plan.run(&trace, stop))?;
    super::print(a.json, &report, view::replay)
}

fn target(a: &TargetArgs, cpus: &Option<CpuSet>) -> Target {
    Target { cpus: cpus.clone(), class: a.class, all_cpus: a.all_cpus }
}

/// Runs `work` with a bar that fills over its expected time.
fn with_bar<T>(what: &str, ns: u64, work: impl FnOnce() -> T) -> T {
    let _bar = Progress::over(what, Duration::from_nanos(ns)).ticking();
    work()
}
