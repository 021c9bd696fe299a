// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spare cores and coordinated windows on a virtual node of four CPUs: the time that daemons steal from a job.
//!
//! The machine runs in emulated time, not in counted time: QEMU counts instructions for one CPU only. All of its CPUs take turns on
//! one thread of the host, so a detour of the host stops all of them together.

use std::path::Path;
use std::time::Duration;

use colony_client::Backend;
use colony_sched::run::RunReport;
use colony_sched::spare::Partition;
use colony_vm::{Accel, Outcome};

use crate::error::step;
use crate::virtual_node::{node, report, run_script};
use crate::{StudyError, spare_here};

/// Name of this step in errors.
const WHAT: &str = "measuring spare cores on a virtual node";
/// The longest the node may take on a machine under load; it takes two minutes of one CPU.
const TIMEOUT: Duration = Duration::from_secs(1500);
/// CPUs of the node; one is spare.
pub const CPUS: u32 = 4;
/// The daemons' sleep after each burst.
pub const SLEEP_NS: u64 = 160_000_000;

/// A daemon on each CPU, bound there by its own choice, and a job of three processes, each bound to one of CPUs 1 to 3.
const SCRIPT: &str = r#"
export COLONY_FAILURE=/tmp/failure.json
daemon='taskset -p $0 $$ > /dev/null; while :; do i=0; while [ $i -lt 1500 ]; do i=$((i+1)); done; sleep 0.16; done'
task='taskset -p $0 $$ > /dev/null; i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done'
job="for mask in 2 4 8; do sh -c '$task' \$mask & done; wait"
run() { out=/tmp/$1.json; shift; colony run --period 200ms --out $out "$@" -- sh -c "$job"; }
for mask in 1 2 4 8; do sh -c "$daemon" $mask & done
run none --cpus 1-3 --backend none
run windows --cpus 1-3 --duty 80% --backend sched-ext
run spare --spare-cores 1 --backend none
run both --spare-cores 1 --duty 80% --backend sched-ext
"#;

/// File of the report, name in rows, backend in effect, whether a core is spare.
const CASES: [(&str, &str, Backend, bool); 4] = [
    ("none", "nothing", Backend::None, false),
    ("windows", "windows of 80 %", Backend::SchedExt, false),
    ("spare", "a spare core", Backend::None, true),
    ("both", "a spare core and windows of 80 %", Backend::SchedExt, true),
];

/// The job under one arrangement.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// As rows name it.
    pub name: String,
    /// Report of the run.
    pub report: RunReport,
}

impl Case {
    /// Share of the job's CPUs that others took while the job could have run.
    #[must_use]
    pub fn stolen(&self) -> f64 {
        spare_here::stolen(&self.report).unwrap_or(0.0)
    }

    /// The same in favored windows alone, where windows promise it.
    #[must_use]
    pub fn stolen_in_favored(&self) -> f64 {
        let favored = &self.report.proof.favored;
        favored.stolen_ns as f64 / favored.observed_ns.max(1) as f64
    }
}

/// Measurements on the node.
#[derive(Clone, Debug, PartialEq)]
pub struct SpareRuns {
    /// The kernel's release.
    pub kernel: String,
    /// Nothing, windows, a spare core, both.
    pub cases: Vec<Case>,
}

/// Runs everything on a virtual node that has the program `colony`.
///
/// # Errors
/// [`StudyError::Step`] where virtual nodes cannot be had here, with what to install, or the node failed.
pub fn run(colony: &Path) -> Result<SpareRuns, StudyError> {
    if let Some(reason) = colony_vm::testing::missing() {
        return Err(step(WHAT, &reason));
    }
    // Linux changes its own code while it boots: on one thread of the host that is safe
    let vm = node(WHAT, colony)?.cpus(CPUS).memory_mib(768).accel(Accel::SingleThread);
    let vm = vm.timeout(TIMEOUT).silence(TIMEOUT);
    let out = run_script(WHAT, vm, SCRIPT, CASES.iter().map(|(file, ..)| *file))?;
    let cases = CASES.into_iter().map(|case| read(&out, case)).collect::<Result<_, _>>()?;
    Ok(SpareRuns { kernel: out.kernel.clone(), cases })
}

fn read(
    out: &Outcome,
    (file, name, backend, spare): (&str, &str, Backend, bool),
) -> Result<Case, StudyError> {
    let report = report(WHAT, out, file, backend)?;
    let partition = report.spare.as_ref().map(|s| s.partition);
    if spare != partition.is_some_and(|p| matches!(p, Partition::Isolated | Partition::Balanced)) {
        return Err(step(WHAT, &format!("the run {file} has the partition {partition:?}")));
    }
    Ok(Case { name: name.into(), report })
}
