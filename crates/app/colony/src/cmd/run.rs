// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony run`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use colony_node::cpu::CpuSet;
use colony_pages::PagePolicy;
use colony_sched::agent::RegularClass;
use colony_sched::backend::BackendChoice;
use colony_sched::ext::{Exempt, ExtOptions, KthreadPolicy};
use colony_sched::run::{RunConfig, RunReport, run as run_job};
use colony_sched::spare::SpareCores;
use colony_time::{DutyCycle, Windows};

use crate::exit::{WrongUse, is_broken_pipe};
use crate::words::{Ns, cpus, duty, ns};

/// Run a program under coordinated scheduling, and prove what it did
///
/// In favored windows only the job runs on its CPUs, in regular windows everything else goes first; the
/// windows start at the same TAI instant on every node. At the end the proof is printed on standard error:
/// stolen time in both, how late the edges were, what was deferred. Signals go to the program. The exit code is the
/// program's; 127 if there is no such program, 126 if it cannot be executed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo colony run -- ./my-solver --steps 1000
  sudo colony run --period 100ms --duty 95% -- mpirun -n 2 ./app
  sudo colony run --period 0xffffffff --duty 0xf4000000 -- ./app    in Blue Gene/L cycles
  sudo colony run --backend sched-ext --exempt 'll_*' -- ./app     Lustre's threads are never held
  colony run --pages huge --backend none -- ./app     text, data, bss, heap and stack on 2 MiB pages
  sudo colony run --backend none -- ./app       only measure what the windows would have held back")]
pub(crate) struct Args {
    /// Length of one favored and one regular window together
    #[arg(long, value_parser = ns, default_value = "100ms", value_name = "TIME")]
    period: Ns,
    /// Favored share: 95%, 95ms, or Blue Gene/L cycles (0xf4000000)
    #[arg(long, value_parser = duty, default_value = "95%", value_name = "DUTY")]
    duty: DutyCycle,
    /// Backend that enforces the windows
    #[arg(long, value_enum, default_value_t)]
    backend: BackendArg,
    /// Kernel threads in favored windows (sched-ext)
    #[arg(long, value_enum, default_value_t, value_name = "POLICY")]
    kthreads: KthreadArg,
    /// Threads no window holds: a name, a beginning (ll_*), or cgroup:/PATH (sched-ext; repeatable)
    #[arg(long, value_name = "WHO")]
    exempt: Vec<Exempt>,
    /// Real-time tasks put into SCHED_OTHER meanwhile, by name: no window holds them (sched-ext; repeatable)
    #[arg(long, value_name = "NAME")]
    demote: Vec<Exempt>,
    /// Leave favored windows idle while every job task sleeps (sched-ext)
    #[arg(long)]
    strict: bool,
    /// Watchdog timeout of sched_ext: a task that waits longer makes the kernel remove the scheduler
    #[arg(long, value_parser = ns, default_value = "30s", value_name = "TIME")]
    watchdog: Ns,
    /// CPUs of the job, to which the program is bound [default: all this process may use]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Cores that everything but the job runs on: a count, a count for each L3 cache, NUMA node or socket (1/l3, 1/numa,
    /// 1/socket), or a list of CPUs (0-1; one CPU: 3-3)
    #[arg(long, value_name = "CORES")]
    spare_cores: Option<SpareCores>,
    /// Class of the job in regular windows
    #[arg(long, value_enum, default_value_t)]
    regular: RegularArg,
    /// Page size of the program's memory; the report then shows each segment by page size [default: as the node's settings
    /// make it]
    #[arg(long, value_enum, value_name = "SIZE")]
    pages: Option<PagesArg>,
    /// Keep the report as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the report as JSON: the last line of standard output, after the program's own
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A [`BackendChoice`] as a word of the command line.
#[derive(Clone, Copy, Default)]
struct BackendArg(BackendChoice);

impl ValueEnum for BackendArg {
    fn value_variants<'a>() -> &'a [Self] {
        use BackendChoice::{Agent, Auto, Daemon, None, SchedExt};
        &[Self(Auto), Self(Daemon), Self(SchedExt), Self(Agent), Self(None)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (word, help) = match self.0 {
            BackendChoice::Auto => ("auto", "colonyd where it runs, else the best that works here"),
            BackendChoice::Daemon => ("daemon", "colonyd, whose windows hold for every job of the node"),
            BackendChoice::SchedExt => ("sched-ext", "The kernel's own scheduler, by sched_ext"),
            BackendChoice::Agent => ("agent", "Threads that switch the job's class at each edge"),
            BackendChoice::None => ("none", "Nothing: the windows are only measured"),
        };
        Some(PossibleValue::new(word).help(help))
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum KthreadArg {
    /// Kernel threads bound to one CPU run at once
    Bypass,
    /// All wait but ksoftirqd, which the edges may need
    #[default]
    Hold,
    /// All wait
    HoldAll,
}

/// A [`PagePolicy`] as a word of the command line.
#[derive(Clone, Copy)]
struct PagesArg(PagePolicy);

impl ValueEnum for PagesArg {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(PagePolicy::Huge), Self(PagePolicy::Medium), Self(PagePolicy::Base)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            PagePolicy::Huge => "2 MiB, where a segment has room for them",
            PagePolicy::Medium => "64 KiB, if this node has them enabled",
            PagePolicy::Base => "4 KiB alone, whatever the node's settings",
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum RegularArg {
    /// SCHED_IDLE: everything else goes first
    #[default]
    Idle,
    /// The class it had
    Own,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let windows = Windows::new(args.period.0, args.duty, 0).map_err(|e| WrongUse(e.to_string()))?;
    if let Some(out) = &args.out {
        super::can_write(out)?;
    }
    let report = run_job(&RunConfig {
        windows,
        backend: args.backend.0,
        cpus: args.cpus,
        spare: args.spare_cores,
        regular: match args.regular {
            RegularArg::Idle => RegularClass::Idle,
            RegularArg::Own => RegularClass::Own,
        },
        ext: ExtOptions {
            kthreads: match args.kthreads {
                KthreadArg::Bypass => KthreadPolicy::Bypass,
                KthreadArg::Hold => KthreadPolicy::Hold,
                KthreadArg::HoldAll => KthreadPolicy::HoldAll,
            },
            exempt: args.exempt,
            job_cgroups: Vec::new(),
            strict: args.strict,
            demote: args.demote,
            watchdog_ms: u32::try_from(args.watchdog.0 / 1_000_000).unwrap_or(u32::MAX),
        },
        pages: args.pages.map(|pages| pages.0),
        command: args.command,
    })?;
    // the program has ended: what becomes of the report does not change how
    if let Some(Err(e)) = args.out.as_ref().map(|out| super::keep(out, &report)) {
        note_failure(&e);
    }
    if !args.json {
        note!("\n{}", colony_view::run::render(&report).trim_end());
    } else if let Err(e) = print_line(&report) {
        note_failure(&anyhow::Error::from(e).context("printing the report"));
    }
    Ok(ExitCode::from(report.ending.code().clamp(0, 255) as u8))
}

/// Notes that a report could not be written. A reader that has closed its pipe wants no message.
fn note_failure(e: &anyhow::Error) {
    if !is_broken_pipe(e) {
        note!("error: {e:#}; the exit code is the program's");
    }
}

/// The report as one line on standard output.
fn print_line(report: &RunReport) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    writeln!(out)?;
    out.flush()
}
