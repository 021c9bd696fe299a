// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coordinated scheduling inside the kernel, measured on a virtual node whose time is a count of its instructions.
//!
//! This machine's kernel and its load do not matter there: the node brings a kernel that has sched_ext, and a detour
//! found in it is one of its own. One CPU, one job of fixed work, and a daemon that calculates for some 20 ms and
//! sleeps for 80 ms.

use std::path::Path;
use std::time::Duration;

use colony_client::Backend;
use colony_sched::proof::ProofSource;
use colony_sched::run::RunReport;
use colony_vm::{Exit, Image, Kernel, Outcome, Vm};

use crate::StudyError;
use crate::error::step;
use crate::failure::Failure;

/// The daemon's sleep after each burst.
pub const SLEEP_NS: u64 = 80_000_000;
/// Bursts of the daemon that are timed together, so that starting a shell does not count.
const BURSTS: u64 = 10;
/// The longest the node may take on a machine under load; it takes half a minute of one CPU.
const PATIENCE: Duration = Duration::from_secs(900);
/// Name of this step in errors.
const WHAT: &str = "running the scheduler in the kernel on a virtual node";

/// File in which a command on the node leaves its failure (see [`SCRIPT`]).
const FAILURE: &str = "/tmp/failure.json";

/// The node's programs. Loops are counted, so that each does the same instructions in every run.
const SCRIPT: &str = r#"
export COLONY_FAILURE=/tmp/failure.json
loops() { i=0; while [ $i -lt $1 ]; do i=$((i+1)); done; }
noise() { while :; do loops 750; sleep 0.08; done; }
run() {
    out=/tmp/$1.json loops=$2; shift 2
    colony run --cpus 0 --period 200ms --out $out "$@" -- sh -c "i=0; while [ \$i -lt $loops ]; do i=\$((i+1)); done"
}
run quiet 50000 --backend none
run quiet-sched-ext 50000 --duty 80% --backend sched-ext
run bursts 7500 --backend none
noise & noise=$!
run none 50000 --backend none
run agent 50000 --duty 80% --backend agent
for duty in 80 90 95; do run sched-ext-$duty 50000 --duty $duty% --backend sched-ext; done
kill $noise
"#;

/// The job under the daemon's noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// As rows name it.
    pub name: String,
    /// Report of the run: backend, windows, outcome of the job.
    pub report: RunReport,
}

/// Measurements on the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// The kernel's release.
    pub kernel: String,
    /// The job alone, unmodified.
    pub quiet: RunReport,
    /// The job alone, scheduled in the kernel.
    pub quiet_sched_ext: RunReport,
    /// A burst of the daemon.
    pub burst_ns: u64,
    /// The job beside the daemon: unmodified, by the agent, in the kernel with three duty cycles.
    pub cases: Vec<Case>,
    /// Processor time of this machine for all of it.
    pub host_cpu_ns: u64,
}

/// Runs everything on a virtual node that has the program `colony`.
///
/// # Errors
/// [`StudyError::Step`] where virtual nodes cannot be had here, with what to install, or the node failed.
pub fn run(colony: &Path) -> Result<Runs, StudyError> {
    if let Some(reason) = colony_vm::testing::missing() {
        return Err(step(WHAT, &reason));
    }
    let reports = ["quiet", "quiet-sched-ext", "bursts"].into_iter().chain(CASES.map(|(file, ..)| file));
    let vm = node(WHAT, colony)?.icount(1).timeout(PATIENCE).silence(PATIENCE);
    Runs::of(&run_script(WHAT, vm, SCRIPT, reports)?)
}

/// Runs a script that leaves the reports of runs in `/tmp/REPORT.json`. `what` names the step in errors.
pub(crate) fn run_script<'a>(
    what: &str,
    mut vm: Vm,
    script: &str,
    reports: impl Iterator<Item = &'a str>,
) -> Result<Outcome, StudyError> {
    for report in reports {
        vm = vm.collect(path(report));
    }
    let out = vm.collect(FAILURE).run(&["sh", "-euc", script]).map_err(|e| step(what, &e))?;
    if out.exit != Exit::Code(0) {
        let document = out.files.get(Path::new(FAILURE)).and_then(|f| f.as_ref().ok());
        let failure = document.and_then(|d| Failure::read(d));
        let reason = failure.map_or_else(|| out.error_text().trim().to_owned(), |f| f.error);
        return Err(step(what, &format!("its script ended with {:?}: {reason}", out.exit)));
    }
    Ok(out)
}

/// Reads a report that a script has left, which must be of this backend and have a proof from the kernel's events.
pub(crate) fn report(
    what: &str,
    out: &Outcome,
    name: &str,
    backend: Backend,
) -> Result<RunReport, StudyError> {
    let file = out.files.get(Path::new(&path(name))).ok_or("it is not there".to_owned());
    let bytes = file.and_then(|f| f.as_ref().map_err(Clone::clone));
    let parsed = bytes.and_then(|b| serde_json::from_slice::<RunReport>(b).map_err(|e| e.to_string()));
    let report = parsed.map_err(|e| step(what, &format!("the report of run {name}: {e}")))?;
    let wrong = match () {
        () if report.backend != backend => format!("was made by {:?}", report.backend),
        () if report.proof.source != ProofSource::Bpf => "has no proof from the kernel's events".into(),
        () if report.job_cpu_ns == 0 || report.wall_ns == 0 => "has no time".into(),
        () => return Ok(report),
    };
    let notes = [report.warnings.as_slice(), report.proof.notes.as_slice()].concat().join("; ");
    Err(step(what, &format!("the run {name} {wrong}: {notes}")))
}

/// File of the report, name in rows, who must have made the windows.
const CASES: [(&str, &str, Backend); 5] = [
    ("none", "unmodified", Backend::None),
    ("agent", "agent, 80 % favored", Backend::Agent),
    ("sched-ext-80", "in the kernel, 80 % favored", Backend::SchedExt),
    ("sched-ext-90", "in the kernel, 90 % favored", Backend::SchedExt),
    ("sched-ext-95", "in the kernel, 95 % favored", Backend::SchedExt),
];

/// A node with a shell and `colony`, wherever that lies here: parts of the node's own tree are mounted over.
pub(crate) fn node(what: &str, colony: &Path) -> Result<Vm, StudyError> {
    node_with(what, colony, &[])
}

/// The same with more files, and their places on the node.
pub(crate) fn node_with(what: &str, colony: &Path, more: &[(&Path, &str)]) -> Result<Vm, StudyError> {
    const PLACE: &str = "/usr/bin/colony";
    let image = || {
        let mut image = Image::new();
        image.busybox()?.program(colony)?;
        image.file(colony, PLACE);
        if colony != Path::new(PLACE) {
            image.link(colony, PLACE);
        }
        for (file, place) in more {
            image.file(file, place);
        }
        Ok::<_, colony_vm::VmError>(Vm::new(&Kernel::find("")?, &image))
    };
    image().map_err(|e| step(what, &e))
}

fn path(report: &str) -> String {
    format!("/tmp/{report}.json")
}

impl Runs {
    fn of(out: &Outcome) -> Result<Self, StudyError> {
        let report = |name: &str, backend: Backend| report(WHAT, out, name, backend);
        let case = |(file, name, backend): (&str, &str, Backend)| {
            Ok(Case { name: name.into(), report: report(file, backend)? })
        };
        Ok(Self {
            kernel: out.kernel.clone(),
            quiet: report("quiet", Backend::None)?,
            quiet_sched_ext: report("quiet-sched-ext", Backend::SchedExt)?,
            burst_ns: report("bursts", Backend::None)?.job_cpu_ns / BURSTS,
            cases: CASES.into_iter().map(case).collect::<Result<_, StudyError>>()?,
            host_cpu_ns: out.host_cpu_ns,
        })
    }
}
