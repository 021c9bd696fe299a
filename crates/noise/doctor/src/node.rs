// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node that rules look at.

use std::cell::OnceCell;
use std::io;
use std::path::Path;

use colony_node::cpu::CpuSet;
use colony_node::topology::Topology;

use crate::DoctorError;
use crate::default_cpus;
use crate::irq::{self, NodeView, OnJob};
use crate::parameters;
use crate::probes::Probes;
use crate::root::{Root, Unread};

/// A node: its files, the CPUs of the job, and what only system calls and traces tell.
#[derive(Debug)]
pub struct Node {
    pub(crate) root: Root,
    /// CPUs of the job.
    pub(crate) job: CpuSet,
    /// Online CPUs that the job leaves to the system.
    pub(crate) rest: CpuSet,
    /// Those of `rest` that can take what leaves the job's CPUs: CPUs that are set apart for other jobs cannot.
    housekeeping: CpuSet,
    interrupts: OnceCell<Result<OnJob, Unread>>,
    pub(crate) probes: Probes,
    /// Threads that a trace saw on the job's CPUs; `None` without a trace.
    pub(crate) threads: Option<Vec<ThreadSeen>>,
    /// Timer interrupts that a trace saw on the job's CPUs; empty without a trace.
    pub(crate) ticks: Vec<TicksSeen>,
}

/// The timer interrupts of a CPU in a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TicksSeen {
    /// The CPU.
    pub cpu: usize,
    /// Timer interrupts each second.
    pub per_second: f64,
}

/// A thread's noise in a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSeen {
    /// Name of the source, as `thread:chronyd`.
    pub source: String,
    /// Detours it caused on the job's CPUs, each second of each CPU.
    pub per_second: f64,
    /// Share of the job's CPUs it took.
    pub share: f64,
}

impl Node {
    /// The node below `root`. `job`: the job's CPUs; by default the isolated CPUs or else those in `nohz_full`, by whole cores. If there
    /// are none, every online CPU except the first core of each NUMA node, or the only one.
    ///
    /// # Errors
    /// [`DoctorError`] if the root cannot be opened, does not say which CPUs are online, or has none of the CPUs of `job`.
    pub fn open(root: &Path, job: Option<&CpuSet>) -> Result<Self, DoctorError> {
        let opened =
            Root::open(root).map_err(|source| DoctorError::Root { root: root.to_owned(), source })?;
        let no_cpus = |reason: String| DoctorError::NoCpus { root: root.to_owned(), reason };
        let online = opened.value(ONLINE).map_err(|e| no_cpus(e.to_string()))?;
        let online: CpuSet = online.parse().map_err(|e| no_cpus(format!("{ONLINE}: {e}")))?;
        if online.is_empty() {
            return Err(no_cpus(format!("{ONLINE} is empty")));
        }
        let job = job.cloned().unwrap_or_else(|| default_cpus::choose(&opened, &online));
        if let Some(cpu) = job.iter().find(|&c| !online.contains(c)) {
            return Err(DoctorError::NotOnline { cpu, online });
        }
        if job.is_empty() {
            return Err(DoctorError::NoJob);
        }
        let rest = online.without(&job);
        let (isolated, tickless) = default_cpus::set_apart(&opened);
        let shared = [rest.without(&isolated).without(&tickless), rest.without(&isolated)];
        let housekeeping = shared.into_iter().find(|cpus| !cpus.is_empty()).unwrap_or_else(|| rest.clone());
        let probes = if opened.is_live() { Probes::now() } else { Probes::default() };
        let interrupts = OnceCell::new();
        Ok(Self {
            root: opened,
            job,
            rest,
            housekeeping,
            interrupts,
            probes,
            threads: None,
            ticks: Vec::new(),
        })
    }

    /// Adds the threads that a trace saw on the job's CPUs.
    #[must_use]
    pub fn with_threads(mut self, threads: Vec<ThreadSeen>) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Adds the timer interrupts that a trace saw on the job's CPUs.
    #[must_use]
    pub fn with_ticks(mut self, ticks: Vec<TicksSeen>) -> Self {
        self.ticks = ticks;
        self
    }

    /// Replaces the answers of system calls and devices, for nodes that are not running here.
    #[must_use]
    pub fn with_probes(mut self, probes: Probes) -> Self {
        self.probes = probes;
        self
    }

    /// CPUs of the job.
    #[must_use]
    pub fn job(&self) -> &CpuSet {
        &self.job
    }

    /// Returns `true` if the files are those of the running node.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.root.is_live()
    }

    /// The node's name, if its files have it.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        self.root.value("/proc/sys/kernel/hostname").ok().filter(|h| !h.is_empty())
    }

    /// The kernel's release, if its files have it.
    #[must_use]
    pub fn release(&self) -> Option<String> {
        self.root.value("/proc/sys/kernel/osrelease").ok().filter(|r| !r.is_empty())
    }

    /// Major and minor number of the kernel's release.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        let release = self.release()?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// CPUs that can take what leaves the job's; `None` if the job has every CPU.
    pub(crate) fn elsewhere(&self) -> Option<&CpuSet> {
        (!self.housekeeping.is_empty()).then_some(&self.housekeeping)
    }

    /// The CPU that lists of the command line call `N`: the last one that the node may have.
    pub(crate) fn last_cpu(&self) -> usize {
        let possible = self.cpus("/sys/devices/system/cpu/possible").ok();
        let last = possible.as_ref().and_then(|cpus| cpus.iter().last());
        last.or_else(|| self.job.iter().chain(self.rest.iter()).max()).unwrap_or(0)
    }

    /// Cores, caches, NUMA nodes and sockets.
    pub(crate) fn topology(&self) -> Topology<'_> {
        Topology::from_files(|file| {
            self.root.value(file).map_err(|e| match e.is_missing() {
                true => io::ErrorKind::NotFound.into(),
                false => io::Error::other(e),
            })
        })
    }

    /// The interrupts of the job's CPUs, which are read once.
    pub(crate) fn interrupts(&self) -> Result<&OnJob, Unread> {
        let view = NodeView { root: &self.root, job: &self.job, rest: &self.rest };
        self.interrupts.get_or_init(|| irq::on_job(view)).as_ref().map_err(Clone::clone)
    }

    /// The reason why `file` is not there: a collection of files may lack it, the running kernel does not have it.
    pub(crate) fn why_missing(&self, file: &str, reason: &str) -> String {
        match self.is_live() {
            true => format!("{file} is not there: {reason}"),
            false => format!("{file} is not there: it was not collected, or {reason}"),
        }
    }

    /// The job's CPUs among those of a list.
    pub(crate) fn hit(&self, cpus: &CpuSet) -> CpuSet {
        self.job.and(cpus)
    }

    /// A list of CPUs in a file; an empty file and `(null)` (a mask that was never set up) are no CPUs.
    pub(crate) fn cpus(&self, file: &str) -> Result<CpuSet, Unread> {
        default_cpus::read_list(&self.root, file)
    }

    /// A mask of CPUs in a file.
    pub(crate) fn mask(&self, file: &str) -> Result<CpuSet, Unread> {
        let text = self.root.value(file)?;
        crate::remedy::parse_mask(&text).ok_or_else(|| Unread::value(file, &text))
    }

    /// The value of a parameter on the kernel's command line: `None` if it is not there, an empty text if it has no
    /// value. Of several, the one that the kernel keeps.
    pub(crate) fn parameter(&self, name: &str) -> Result<Option<String>, Unread> {
        let mut all = parameters::all(&self.root.read(CMDLINE)?, name);
        Ok(parameters::take_effective(&mut all, name, self.version()))
    }

    /// Further values of a parameter, which have no effect.
    pub(crate) fn ignored_parameters(&self, name: &str) -> Result<Vec<String>, Unread> {
        let mut all = parameters::all(&self.root.read(CMDLINE)?, name);
        parameters::take_effective(&mut all, name, self.version());
        Ok(all)
    }

    /// The chosen one, in brackets, of the words in a file, as `always [madvise] never`.
    pub(crate) fn chosen(&self, file: &str) -> Result<String, Unread> {
        let text = self.root.value(file)?;
        let chosen = text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
        chosen.map(str::to_owned).ok_or_else(|| Unread::value(file, &text))
    }

    /// Returns `true` if the kernel was built with an option (`CONFIG_RCU_NOCB_CPU`); `None` if no configuration is readable.
    pub(crate) fn config(&self, option: &str) -> Option<bool> {
        self.configuration().map(|(_, text)| is_set(&text, option))
    }

    /// The configuration that the kernel was built with, and its file: `/boot/config-RELEASE`, or `/proc/config.gz`
    /// (`CONFIG_IKCONFIG_PROC`); `None` if neither is readable.
    pub(crate) fn configuration(&self) -> Option<(String, String)> {
        const IN_KERNEL: &str = "/proc/config.gz";
        let installed = self.release().and_then(|release| {
            let file = format!("/boot/config-{release}");
            self.root.read(&file).ok().map(|text| (file, text))
        });
        installed.or_else(|| Some((IN_KERNEL.into(), self.root.read_gzip(IN_KERNEL).ok()?)))
    }
}

/// Returns `true` if a configuration has the option `CONFIG_…` built in.
pub(crate) fn is_set(configuration: &str, option: &str) -> bool {
    configuration.lines().any(|line| line.strip_prefix(option).is_some_and(|rest| rest == "=y"))
}

/// The kernel's command line.
pub(crate) const CMDLINE: &str = "/proc/cmdline";
const ONLINE: &str = "/sys/devices/system/cpu/online";
