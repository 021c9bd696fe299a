// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node this program runs on, behind the door of [`Node`].
//!
//! Benchmarks, windows and observed windows are runs of the `colony` command itself, as a user would type
//! them: what a report says how to do again is what was done.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use colony_bench::BenchResult;
use colony_doctor::{Examination, ThreadSeen};
use colony_inject::LeibnizReport;
use colony_node::cpu::CpuSet;
use colony_node::parent::end_with_parent;
use colony_node::privilege::Privileges;
use colony_node::record::NodeRecord;
use colony_pages::{PagePolicy, Request, Support};
use colony_project::{Steal, favored_only};
use colony_sched::run::RunReport;
use colony_sched::spare::SpareCores;
use colony_sim::NodeNoise;
use colony_time::text::Ns;
use colony_time::{DutyCycle, Windows};
use colony_trace::Trace;
use nix::sys::signal::Signal;

use crate::cell::{STRETCH_NS, cell};
use crate::compute_node::Run;
use crate::error::step;
use crate::failure::{self, Failure};
use crate::measured::Measuring;
use crate::neighbours::Usage;
use crate::node::{BenchRun, Injection, OwnNoise};
use crate::pages::{self, PageRun, PageRuns};
use crate::results::Cell;
use crate::spare_here::{self, SpareHere};
use crate::{Node, Params, StudyError};

/// Time for the noise daemon to calibrate and settle before a run; its own sleep is 500 ms.
const SETTLE: Duration = Duration::from_millis(1500);
/// The step that reads the node's settings.
const EXAMINING: &str = "examining this node";
/// Time a run may take beyond what it was asked for.
const GRACE_S: f64 = 60.0;

/// This node.
#[derive(Debug)]
pub struct ThisNode {
    measuring: Measuring,
    colony: PathBuf,
    scratch: tempfile::TempDir,
    /// The windows of the study: without coordination, those that would have been.
    windows: Windows,
    duty: DutyCycle,
}

impl ThisNode {
    /// This node with `cpus` for the job; `colony` is the command to run.
    ///
    /// # Errors
    /// [`StudyError`] where the parameters are impossible or there is no room for temporary files.
    pub fn new(params: &Params, cpus: CpuSet, colony: PathBuf) -> Result<Self, StudyError> {
        let scratch = tempfile::Builder::new().prefix("colony-study-").tempdir();
        Ok(Self {
            measuring: Measuring { cpus, seed: params.seed },
            colony,
            scratch: scratch.map_err(|e| step("making room for temporary files", &e))?,
            windows: params.windows()?,
            duty: params.duty,
        })
    }

    /// The folder of its temporary files; it goes when this does.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// `colony run …` up to the command of the job. The agent only where it is wanted.
    fn run_args(&self, coordinated: bool, windows: &Windows) -> Vec<String> {
        let duty = if *windows == self.windows { self.duty } else { DutyCycle::Ns(windows.favored_ns()) };
        let backend = if coordinated { "agent" } else { "none" };
        let (period, cpus) = (Ns(windows.period_ns()), &self.measuring.cpus);
        ["run", "--period", &period.to_string(), "--duty", &duty.to_string(), "--backend", backend, "--cpus"]
            .into_iter()
            .map(str::to_owned)
            .chain([cpus.to_string()])
            .collect()
    }

    /// Runs `colony ARGS` to its end. Returns its standard output, or what it says of failure.
    fn colony(&self, what: &str, args: &[String]) -> Result<Vec<u8>, StudyError> {
        let mut command = Command::new(&self.colony);
        let failure = self.scratch.path().join("failure.json");
        let _ = std::fs::remove_file(&failure);
        command.env(failure::VARIABLE, &failure);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_parent(&mut command, Signal::SIGTERM);
        let out = command.output().map_err(|e| step(what, &e))?;
        if out.status.success() {
            return Ok(out.stdout);
        }
        let failure = std::fs::read(&failure).ok().and_then(|document| Failure::read(&document));
        // a command that was killed, or whose arguments were refused, leaves none
        let reason =
            failure.map_or_else(|| String::from_utf8_lossy(&out.stderr).trim().to_owned(), |f| f.error);
        Err(step(what, &reason))
    }

    /// Runs `job` as `colony run … -- colony JOB`, with noise beside it.
    fn under_windows(
        &self,
        what: &str,
        windows: Option<&Windows>,
        job: &[String],
        injection: &Injection,
        seconds: f64,
    ) -> Result<(RunReport, Option<LeibnizReport>), StudyError> {
        let report = self.scratch.path().join("run.json");
        let mut args = self.run_args(windows.is_some(), windows.unwrap_or(&self.windows));
        args.extend(["--out".into(), text(&report), "--".into(), text(&self.colony)]);
        args.extend_from_slice(job);
        let (ran, injected) =
            self.measuring.beside(injection, SETTLE, seconds + GRACE_S, || self.colony(what, &args))?;
        ran?;
        Ok((read_json(what, &report)?, injected))
    }

    /// A job that never stops on `cpus`, under `colony run` with these options and no windows: its command and its report.
    fn observed_job(
        &self,
        options: &[&str],
        cpus: &CpuSet,
        seconds: f64,
    ) -> Result<(String, RunReport), StudyError> {
        let report = self.scratch.path().join("spare.json");
        let run: Vec<&str> =
            ["run", "--backend", "none"].into_iter().chain(options.iter().copied()).collect();
        let (cpus, duration) = (cpus.to_string(), duration(seconds));
        let job = ["measure", "--no-keep", "--cpus", &cpus, "--duration", &duration];
        let command = format!("colony {} -- colony {}", run.join(" "), job.join(" "));
        let (kept, colony) = (text(&report), text(&self.colony));
        let out = ["--out", &kept, "--", &colony];
        let args: Vec<String> = run.into_iter().chain(out).chain(job).map(str::to_owned).collect();
        self.colony(spare_here::WHAT, &args)?;
        Ok((command, read_json(spare_here::WHAT, &report)?))
    }

    /// A NAS kernel under `colony run --pages`, on one CPU.
    fn page_run(&self, kernel: &str, class: &str, policy: PagePolicy) -> Result<PageRun, StudyError> {
        let what = format!("running {kernel}.{class} on {} pages", policy.name());
        let failed = |e: &dyn std::fmt::Display| step(&what, e);
        let nas = self.colony.with_file_name("colony-nas");
        if !nas.is_file() {
            return Err(failed(&format!(
                "{} is not there; build it: cargo build -p colony-bench",
                nas.display()
            )));
        }
        let cpu = self.measuring.cpus.iter().last().unwrap_or(0).to_string();
        let report = self.scratch.path().join("pages.json");
        let (kept, nas) = (text(&report), text(&nas));
        let args = ["run", "--backend", "none", "--cpus", &cpu, "--pages", policy.name(), "--out", &kept];
        let job = ["--", &nas, kernel, "--class", class, "--json"];
        let args: Vec<String> = args.into_iter().chain(job).map(str::to_owned).collect();
        let out = self.colony(&what, &args)?;
        let run: Run = serde_json::from_slice(&out).map_err(|e| failed(&e))?;
        if !run.verified {
            return Err(failed(&"the result is wrong"));
        }
        let report: RunReport = read_json(&what, &report)?;
        let pages = report.pages.ok_or_else(|| failed(&"the report has no pages"))?;
        Ok(PageRun::new(&run, &pages))
    }

    /// `bench …`, as typed after `colony`.
    fn bench_args(run: &BenchRun) -> Vec<String> {
        let mut args: Vec<String> = ["bench", run.program, "-n"].map(str::to_owned).into();
        args.extend([run.ranks.to_string(), "--seed".into(), run.seed.to_string()]);
        match run.ops {
            Some(ops) => args.extend(["--ops".into(), ops.to_string()]),
            None => args.extend(["--seconds".into(), run.seconds.to_string()]),
        }
        if let Injection::Detours { length_ns, every_ns, aligned } = run.injection {
            let phase = if aligned { "aligned" } else { "random" };
            args.extend([
                "--detour".into(),
                Ns(length_ns).to_string(),
                "--every".into(),
                Ns(every_ns).to_string(),
            ]);
            args.extend(["--phase".into(), phase.into()]);
        }
        args.extend(["--timeline".into(), Ns(STRETCH_NS).to_string()]);
        args
    }
}

impl Node for ThisNode {
    fn record(&self) -> NodeRecord {
        NodeRecord::now()
    }

    fn privileges(&self) -> Privileges {
        Privileges::here()
    }

    fn usage(&self) -> Option<Usage> {
        Usage::now(&self.measuring.cpus)
    }

    fn noise(&mut self, seconds: f64) -> Result<OwnNoise, StudyError> {
        self.measuring.noise(seconds)
    }

    fn job(&self) -> Result<CpuSet, StudyError> {
        let usual = colony_doctor::Node::open(Path::new("/"), None).map_err(|e| step(EXAMINING, &e))?;
        let cpus = &self.measuring.cpus;
        let has_every_cpu = usual.job().without(cpus).is_empty();
        Ok(if has_every_cpu { usual.job().clone() } else { cpus.clone() })
    }

    fn examine(&self, job: &CpuSet, threads: Vec<ThreadSeen>) -> Result<Examination, StudyError> {
        let node = colony_doctor::Node::open(Path::new("/"), Some(job)).map_err(|e| step(EXAMINING, &e))?;
        Ok(colony_doctor::examine(&node.with_threads(threads)))
    }

    fn detours(
        &mut self,
        seconds: f64,
        injection: &Injection,
        windows: Option<&Windows>,
    ) -> Result<NodeNoise, StudyError> {
        let Some(windows) = windows else { return self.measuring.detours(seconds, injection) };
        let what = "measuring noise in favored windows";
        let kept = self.scratch.path().join("observed.parquet");
        let job = [
            "measure",
            "--no-keep",
            "--cpus",
            &self.measuring.cpus.to_string(),
            "--duration",
            &duration(seconds),
        ]
        .map(str::to_owned)
        .into_iter()
        .chain(["--out".into(), text(&kept)])
        .collect::<Vec<_>>();
        self.under_windows(what, Some(windows), &job, injection, seconds)?;
        let trace = Trace::read(&kept).map_err(|e| step(what, &e))?;
        Ok(favored_only(&trace, windows, Steal::Excluded)?)
    }

    fn bench(&mut self, run: &BenchRun) -> Result<Cell, StudyError> {
        let what = format!("running {}", run.program);
        let out = self.scratch.path().join("bench.json");
        let typed = Self::bench_args(run);
        let mut job = typed.clone();
        job.extend(["--out".into(), text(&out), "--timeout".into(), format!("{:.0}", run.seconds + GRACE_S)]);
        let (report, injected) =
            self.under_windows(&what, run.windows.as_ref(), &job, &run.injection, run.seconds)?;
        let result: BenchResult = read_json(&what, &out)?;
        let all = result.whole().ok_or_else(|| step(&what, &"the program gave no result"))?;
        let noise = match run.injection {
            Injection::Leibniz { percent } => format!("colony inject leibniz --noise {percent}% & "),
            _ => String::new(),
        };
        let outer = self.run_args(run.windows.is_some(), run.windows.as_ref().unwrap_or(&self.windows));
        let command = format!("{noise}colony {} -- colony {}", outer.join(" "), typed.join(" "));
        Ok(cell(run, command, all, &report, injected.as_ref()))
    }

    fn leibniz_levels(&mut self, max_terms: &[u64]) -> Result<Vec<f64>, StudyError> {
        self.measuring.leibniz_levels(max_terms)
    }

    fn virtual_node(&mut self) -> Result<crate::virtual_node::Runs, StudyError> {
        crate::virtual_node::run(&self.colony)
    }

    fn three_kernels(&mut self) -> Result<crate::three_kernels::Runs, StudyError> {
        crate::three_kernels::run(&self.colony)
    }

    fn spare_node(&mut self) -> Result<crate::spare_node::SpareRuns, StudyError> {
        crate::spare_node::run(&self.colony)
    }

    fn spare_core(&mut self, seconds: f64) -> Result<SpareHere, StudyError> {
        if !nix::unistd::geteuid().is_root() {
            let reason = "to move interrupts, kernel threads and other users' tasks needs root";
            return Err(step(spare_here::WHAT, &reason));
        }
        let split = SpareCores::Count(1).split(Some(&self.measuring.cpus));
        let job = split.map_err(|e| step(spare_here::WHAT, &e))?.job;
        let (without, alone) = self.observed_job(&["--cpus", &job.to_string()], &job, seconds)?;
        let usable = self.measuring.cpus.to_string();
        let spared = self.observed_job(&["--cpus", &usable, "--spare-cores", "1"], &job, seconds)?;
        SpareHere::compare((without, &alone), (spared.0, &spared.1))
    }

    fn compute_node(
        &mut self,
        kernels: &[(&str, &str)],
    ) -> Result<Vec<crate::compute_node::Pair>, StudyError> {
        crate::compute_node::run(kernels)
    }

    fn tlb(&mut self, kernels: &[(&str, &str)]) -> Result<Vec<crate::tlb::TlbRun>, StudyError> {
        crate::tlb::run(kernels)
    }

    fn pages(&mut self, kernel: &str, class: &str, rounds: usize) -> Result<Vec<PageRuns>, StudyError> {
        let support = Support::here();
        let unavailable = |policy: PagePolicy| {
            let none = policy != PagePolicy::Base && support.request(policy) == Request::None;
            none.then(|| support.warnings(policy).join("; "))
        };
        pages::measure(rounds, unavailable, |policy| self.page_run(kernel, class, policy))
    }
}

/// Seconds on a command line, which takes whole nanoseconds.
pub(crate) fn duration(seconds: f64) -> String {
    Ns((seconds * 1e9) as u64).to_string()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn read_json<T: serde::de::DeserializeOwned>(what: &str, path: &Path) -> Result<T, StudyError> {
    let bytes = std::fs::read(path).map_err(|e| step(what, &e))?;
    serde_json::from_slice(&bytes).map_err(|e| step(what, &e))
}
