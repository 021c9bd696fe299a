// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node that rules look at.

use std::path::Path;

use colony_node::cpu::CpuSet;

use crate::DoctorError;
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
    pub(crate) probes: Probes,
    /// Threads that a trace saw on the job's CPUs; `None` without a trace.
    pub(crate) threads: Option<Vec<ThreadSeen>>,
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
    /// The node below `root`. `job`: the job's CPUs; by default every online CPU except the lowest-numbered one, or the
    /// only one.
    ///
    /// # Errors
    /// [`DoctorError`] if the root cannot be opened, does not say which CPUs are online, or has none of the CPUs of `job`.
    pub fn open(root: &Path, job: Option<&CpuSet>) -> Result<Self, DoctorError> {
        let opened =
            Root::open(root).map_err(|source| DoctorError::Root { root: root.to_owned(), source })?;
        let no_cpus = |reason: String| DoctorError::NoCpus { root: root.to_owned(), reason };
        let online = opened.value(ONLINE).map_err(|e| no_cpus(e.to_string()))?;
        let online: CpuSet = online.parse().map_err(|e| no_cpus(format!("{ONLINE}: {e}")))?;
        let Some(first) = online.first() else { return Err(no_cpus(format!("{ONLINE} is empty"))) };
        let but_first = online.without(&std::iter::once(first).collect());
        let job = match job {
            Some(job) => job.clone(),
            None if but_first.is_empty() => online.clone(),
            None => but_first,
        };
        if let Some(cpu) = job.iter().find(|&c| !online.contains(c)) {
            return Err(DoctorError::NotOnline { cpu, online });
        }
        if job.is_empty() {
            return Err(DoctorError::NoJob);
        }
        let rest = online.without(&job);
        let probes = if opened.is_live() { Probes::now() } else { Probes::default() };
        Ok(Self { root: opened, job, rest, probes, threads: None })
    }

    /// Adds the threads that a trace saw on the job's CPUs.
    #[must_use]
    pub fn with_threads(mut self, threads: Vec<ThreadSeen>) -> Self {
        self.threads = Some(threads);
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
        (!self.rest.is_empty()).then_some(&self.rest)
    }

    /// The job's CPUs among those of a list.
    pub(crate) fn hit(&self, cpus: &CpuSet) -> CpuSet {
        self.job.and(cpus)
    }

    /// A list of CPUs in a file; an empty file and `(null)` (a mask that was never set up) are no CPUs.
    pub(crate) fn cpus(&self, file: &str) -> Result<CpuSet, Unread> {
        let text = self.root.value(file)?;
        match text.as_str() {
            "" | "(null)" => Ok(CpuSet::default()),
            list => list.parse().map_err(|_| Unread::value(file, list)),
        }
    }

    /// A mask of CPUs in a file.
    pub(crate) fn mask(&self, file: &str) -> Result<CpuSet, Unread> {
        let text = self.root.value(file)?;
        crate::remedy::parse_mask(&text).ok_or_else(|| Unread::value(file, &text))
    }

    /// The value of a parameter on the kernel's command line: `None` if it is not there, an empty text if it has no
    /// value. The last one counts, as in the kernel.
    pub(crate) fn parameter(&self, name: &str) -> Result<Option<String>, Unread> {
        let cmdline = self.root.read(CMDLINE)?;
        let of = |word: &str| match word.split_once('=') {
            Some((n, value)) => same(n, name).then(|| value.trim_matches('"').to_owned()),
            None => same(word, name).then(String::new),
        };
        // what follows `--` is the first program's
        Ok(cmdline.split_whitespace().take_while(|w| *w != "--").filter_map(of).last())
    }

    /// The chosen one, in brackets, of the words in a file, as `always [madvise] never`.
    pub(crate) fn chosen(&self, file: &str) -> Result<String, Unread> {
        let text = self.root.value(file)?;
        let chosen = text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
        chosen.map(str::to_owned).ok_or_else(|| Unread::value(file, &text))
    }

    /// Returns `true` if the kernel was built with an option (`CONFIG_RCU_NOCB_CPU`); `None` if no configuration is readable.
    pub(crate) fn config(&self, option: &str) -> Option<bool> {
        let text = self.root.read(&format!("/boot/config-{}", self.release()?)).ok()?;
        Some(text.lines().any(|l| l.strip_prefix(option).is_some_and(|rest| rest == "=y")))
    }
}

/// The kernel takes `-` and `_` in names of parameters for the same.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes().zip(b.bytes()).all(|(x, y)| x == y || (b"-_".contains(&x) && b"-_".contains(&y)))
}

/// The kernel's command line.
pub(crate) const CMDLINE: &str = "/proc/cmdline";
const ONLINE: &str = "/sys/devices/system/cpu/online";
