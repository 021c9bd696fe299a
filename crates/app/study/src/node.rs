// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements and runs that experiments ask of their machine.

use std::collections::BTreeSet;

use colony_doctor::{Examination, ThreadSeen};
use colony_node::cpu::CpuSet;
use colony_node::privilege::Privileges;
use colony_node::record::NodeRecord;
use colony_sim::NodeNoise;
use colony_time::Windows;
use colony_trace::Trace;

use crate::StudyError;
use crate::neighbours::Usage;
use crate::results::{Cell, Noise};
use crate::spare_here::SpareHere;

/// The machine an experiment runs on: measuring, benchmark, injection and scheduler behind one door.
/// The command wires it to the crates that do the work; tests give a made-up one.
pub trait Node {
    /// The node's state, for the results.
    fn record(&self) -> NodeRecord;

    /// Privileges of this process.
    fn privileges(&self) -> Privileges;

    /// CPU time of programs on the job's CPUs so far; `None` if the node does not tell.
    fn usage(&self) -> Option<Usage>;

    /// Measures the node's own noise for `seconds` and says where it comes from.
    ///
    /// # Errors
    /// [`StudyError::Step`] says what was tried, found, and what to do.
    fn noise(&mut self, seconds: f64) -> Result<OwnNoise, StudyError>;

    /// CPUs that a job on this node should have, as far as the study uses them: every CPU would leave none for what has to
    /// move.
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn job(&self) -> Result<CpuSet, StudyError>;

    /// Examines the settings of the node for a job on `job`; a trace saw `threads` there.
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn examine(&self, job: &CpuSet, threads: Vec<ThreadSeen>) -> Result<Examination, StudyError>;

    /// Measures the detours of the job's CPUs under `injection` for `seconds`, the observer being the job.
    /// Under `windows` those in favored windows alone, on a timeline of favored time (see
    /// [`colony_project::favored_only`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn detours(
        &mut self,
        seconds: f64,
        injection: &Injection,
        windows: Option<&Windows>,
    ) -> Result<NodeNoise, StudyError>;

    /// Runs an MPI benchmark on this node's CPUs, under noise and windows if asked.
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn bench(&mut self, run: &BenchRun) -> Result<Cell, StudyError>;

    /// Runs a job for `seconds` without and with a spare core, on the same CPUs (see [`crate::spare_here`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn spare_core(&mut self, seconds: f64) -> Result<SpareHere, StudyError>;

    /// Noise that the Leibniz daemon makes with each upper bound of terms, as a share (0 to 1) of the pause
    /// after each calculation (Colony Linux kernel technical report, section 3.1.7 and figure 4).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn leibniz_levels(&mut self, max_terms: &[u64]) -> Result<Vec<f64>, StudyError>;

    /// Runs a job beside a daemon on a virtual node, with and without the scheduler in the kernel (see
    /// [`crate::virtual_node`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn virtual_node(&mut self) -> Result<crate::virtual_node::Runs, StudyError>;

    /// Runs a job on a compute node, and on a virtual Linux node beside noise, with and without the scheduler in the kernel (see
    /// [`crate::three_kernels`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn three_kernels(&mut self) -> Result<crate::three_kernels::Runs, StudyError>;

    /// Runs a job beside daemons on a virtual node of four CPUs, with and without windows and a spare core (see
    /// [`crate::spare_node`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn spare_node(&mut self) -> Result<crate::spare_node::SpareRuns, StudyError>;

    /// Runs NAS kernels, each of a class, on a compute node and on a virtual Linux node (see [`crate::compute_node`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn compute_node(
        &mut self,
        kernels: &[(&str, &str)],
    ) -> Result<Vec<crate::compute_node::Pair>, StudyError>;

    /// Counts the TLB misses of NAS kernels, each of a class, on a compute node (see [`crate::tlb`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn tlb(&mut self, kernels: &[(&str, &str)]) -> Result<Vec<crate::tlb::TlbRun>, StudyError>;

    /// Runs a kernel of a class on pages of each size, `rounds` times in turn (see [`crate::pages`]).
    ///
    /// # Errors
    /// As [`Node::noise`].
    fn pages(
        &mut self,
        kernel: &str,
        class: &str,
        rounds: usize,
    ) -> Result<Vec<crate::pages::PageRuns>, StudyError>;
}

/// The node's own noise, as measured.
#[derive(Clone, Debug)]
pub struct OwnNoise {
    /// The summary that results keep.
    pub summary: Noise,
    /// All that counts, merged, for projections.
    pub merged: NodeNoise,
    /// Every detour.
    pub trace: Trace,
    /// Names of threads that the study itself started (see [`crate::own`]).
    pub started: BTreeSet<String>,
}

/// Noise made on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Injection {
    /// None.
    None,
    /// The seeds' daemon at this level, per cent.
    Leibniz {
        /// Calculation time over pause, per cent.
        percent: f64,
    },
    /// Detours inside the benchmark, by timer signal (ANL 2005).
    Detours {
        /// Length of each.
        length_ns: u64,
        /// One each this many nanoseconds.
        every_ns: u64,
        /// At the same instants on all ranks.
        aligned: bool,
    },
}

impl Injection {
    /// Leibniz noise of `percent`; none at 0.
    #[must_use]
    pub fn leibniz(percent: f64) -> Self {
        if percent > 0.0 { Self::Leibniz { percent } } else { Self::None }
    }

    /// The level asked for, per cent; 0 but for Leibniz.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if let Self::Leibniz { percent } = self { *percent } else { 0.0 }
    }
}

/// A benchmark run.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRun {
    /// Program of `colony-bench`: `allreduce`, `barrier`, `myallreduce`, `glob`, `bsp`.
    pub program: &'static str,
    /// Ranks, one a CPU.
    pub ranks: u32,
    /// Longest it may take; `ops` may end it before.
    pub seconds: f64,
    /// Operations; `None`: as many as fit.
    pub ops: Option<u64>,
    /// Noise beside or inside it.
    pub injection: Injection,
    /// Coordinated windows; `None`: Linux as it is.
    pub windows: Option<Windows>,
    /// Seed of the injected noise.
    pub seed: u64,
}

/// Receiver of a study's progress.
pub trait Progress {
    /// A step begins that takes about `seconds`.
    fn begin(&self, what: &str, seconds: f64);
    /// The step is over.
    fn end(&self);
    /// Something worth a line, now.
    fn note(&self, line: &str);
}

impl dyn Progress + '_ {
    /// Does a step that takes about `seconds`.
    pub fn during<T>(&self, what: &str, seconds: f64, step: impl FnOnce() -> T) -> T {
        self.begin(what, seconds);
        let done = step();
        self.end();
        done
    }
}

/// Tells nobody.
impl Progress for () {
    fn begin(&self, _: &str, _: f64) {}
    fn end(&self) {}
    fn note(&self, _: &str) {}
}
