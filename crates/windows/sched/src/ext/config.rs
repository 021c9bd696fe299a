// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of the scheduler.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::cgroup::ThreadEntry;
use colony_node::cpu::CpuSet;
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use super::error::ExtError;
use super::skel::{MAX_EXEMPT_GROUPS, MAX_JOB_GROUPS, MAX_NAMES};

/// The treatment of kernel threads in favored windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KthreadPolicy {
    /// Kernel threads bound to one CPU run at once; others wait for the regular window.
    Bypass,
    /// All wait but `ksoftirqd`, which runs the timers of the edges when interrupts come thick.
    #[default]
    Hold,
    /// All wait. Edges can come late under a load of interrupts.
    HoldAll,
}

/// Threads that run at once in every window: those of a parallel file system, for example, which every
/// other node may be waiting for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Exempt {
    /// Threads of the kernel and of root with this name, or with names that begin so.
    Name {
        /// The name, or its beginning.
        name: String,
        /// True if the name is a prefix.
        prefix: bool,
    },
    /// Tasks in this cgroup (version 2) or below it.
    Cgroup(PathBuf),
}

/// A text that names nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExemptError {
    /// Too long for a thread's name, or empty.
    #[error("`{0}` is no name of a thread: 1 to 15 bytes, or a beginning with * at its end (mmfsd, ll_*)")]
    Name(String),
    /// Not below `/`.
    #[error("`{0}` is no cgroup: write its absolute path in the version 2 tree, as in cgroup:/system.slice")]
    Cgroup(String),
}

impl FromStr for Exempt {
    type Err = ExemptError;
    /// A name (`mmfsd`), a beginning (`ll_*`), or a cgroup (`cgroup:/system.slice/gpfs.service`).
    fn from_str(text: &str) -> Result<Self, ExemptError> {
        if let Some(path) = text.strip_prefix("cgroup:") {
            let proper = path.starts_with('/') && !path.split('/').any(|part| part == "..");
            return if proper {
                Ok(Self::Cgroup(path.into()))
            } else {
                Err(ExemptError::Cgroup(path.to_owned()))
            };
        }
        let (name, prefix) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        let length = name.len();
        if length == 0 || length > 15 || name.contains(['*', '\0', '\n']) {
            return Err(ExemptError::Name(text.to_owned()));
        }
        Ok(Self::Name { name: name.to_owned(), prefix })
    }
}

impl TryFrom<String> for Exempt {
    type Error = ExemptError;
    fn try_from(text: String) -> Result<Self, ExemptError> {
        text.parse()
    }
}

impl From<Exempt> for String {
    fn from(exempt: Exempt) -> Self {
        exempt.to_string()
    }
}

impl fmt::Display for Exempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, prefix } => write!(f, "{name}{}", if *prefix { "*" } else { "" }),
            Self::Cgroup(path) => write!(f, "cgroup:{}", path.display()),
        }
    }
}

/// Settings of the scheduler, as `colonyd.toml` has them below `[sched_ext]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtOptions {
    /// The treatment of kernel threads in favored windows.
    pub kthreads: KthreadPolicy,
    /// Threads that are not held in favored windows.
    pub exempt: Vec<Exempt>,
    /// Cgroups (version 2, absolute path in that tree) whose tasks are the job's, beside those registered.
    pub job_cgroups: Vec<PathBuf>,
    /// True if a favored window stays idle while every job task sleeps.
    pub strict: bool,
    /// Real-time tasks, by name, that are put into `SCHED_OTHER` while the scheduler runs.
    pub demote: Vec<Exempt>,
    /// Time for which a runnable task may wait before the kernel ends this scheduler, up to 30 s.
    pub watchdog_ms: u32,
}

impl Default for ExtOptions {
    fn default() -> Self {
        Self {
            kthreads: KthreadPolicy::Hold,
            exempt: Vec::new(),
            job_cgroups: Vec::new(),
            strict: false,
            demote: Vec::new(),
            watchdog_ms: Self::MAX_WATCHDOG_MS,
        }
    }
}

impl ExtOptions {
    /// The longest timeout that the kernel accepts.
    pub const MAX_WATCHDOG_MS: u32 = 30_000;
}

/// The configuration of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtConfig {
    /// The windows to keep.
    pub windows: Windows,
    /// The job's CPUs; on the others tasks share the time by weight.
    pub cpus: CpuSet,
    /// The way of single threads into the job's group, if the kernel keeps others off the job's CPUs.
    pub entry: Option<ThreadEntry>,
    /// Everything else.
    pub options: ExtOptions,
}

impl ExtConfig {
    /// The usual settings with these windows on these CPUs.
    #[must_use]
    pub fn new(windows: Windows, cpus: CpuSet) -> Self {
        Self { windows, cpus, entry: None, options: ExtOptions::default() }
    }

    /// Checks that the scheduler can work with these settings.
    ///
    /// # Errors
    /// [`ExtError::Config`]: the first setting that cannot be.
    pub fn check(&self) -> Result<(), ExtError> {
        let wrong = |what: String, advice| Err(ExtError::Config { what, advice });
        let options = &self.options;
        if self.cpus.is_empty() {
            return wrong("no CPU is the job's".into(), "name at least one");
        }
        if !(1..=ExtOptions::MAX_WATCHDOG_MS).contains(&options.watchdog_ms) {
            return wrong(
                format!("a watchdog of {} ms cannot be", options.watchdog_ms),
                "choose 1 ms to 30 s",
            );
        }
        let names = options.exempt.iter().filter(|e| matches!(e, Exempt::Name { .. })).count();
        let groups = options.exempt.len() - names;
        if names > MAX_NAMES || groups > MAX_EXEMPT_GROUPS {
            return wrong(
                format!("{names} names and {groups} cgroups are exempt"),
                "keep to 32 names and 16 cgroups: beginnings (ll_*) and parent cgroups hold many",
            );
        }
        if options.job_cgroups.len() > MAX_JOB_GROUPS {
            return wrong(format!("{} cgroups are the job's", options.job_cgroups.len()), "keep to 16");
        }
        Ok(())
    }
}

/// The advice above names these figures.
const _: () = assert!(MAX_NAMES == 32 && MAX_EXEMPT_GROUPS == 16 && MAX_JOB_GROUPS == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exempt_threads_are_named_by_name_prefix_or_cgroup() {
        for text in ["mmfsd", "ll_*", "cgroup:/system.slice/gpfs.service"] {
            assert_eq!(text.parse::<Exempt>().expect("possible").to_string(), text);
        }
        for text in ["", "*", "a*b", "sixteen-bytes-xx", "cgroup:relative", "cgroup:/a/../b"] {
            assert!(text.parse::<Exempt>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_or_refused(text in ".{0,40}") {
            if let Ok(exempt) = text.parse::<Exempt>() {
                prop_assert_eq!(exempt.to_string(), text);
            }
        }
    }
}
