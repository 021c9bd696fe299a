// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of noise that a finding is about, by the names that `colony measure` gives them.

use serde::{Deserialize, Serialize};

/// Longest name of a task or an interrupt's handler in a trace: the kernel's events carry 15 bytes.
const NAME: usize = 15;

/// Kernel threads that are bound to their CPU: no isolation moves them.
const BOUND: [&str; 9] = [
    "ksoftirqd/",
    "migration/",
    "cpuhp/",
    "rcuc/",
    "idle_inject/",
    "stopper/",
    "watchdog/",
    "ktimers/",
    "backlog_napi/",
];

/// The sources that a remedy takes from the job's CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touches {
    /// Names of sources, and beginnings of names.
    pub sources: Vec<Pattern>,
    /// `true` if the sources have other causes too, which the remedy leaves: a cost of them is an upper bound.
    pub partly: bool,
}

/// Sources by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// The source with this name, such as `irq:local_timer`.
    Is(String),
    /// Every source whose name begins so, such as `thread:kworker/u`.
    Begins(String),
    /// Every thread that no kernel code binds to its CPU.
    UnboundThreads,
}

impl Pattern {
    /// The thread `name`, as the kernel cuts it.
    #[must_use]
    pub fn thread(name: &str) -> Self {
        Self::Is(thread_source(name))
    }

    /// The interrupt with a handler `name`, as the kernel's events cut it.
    #[must_use]
    pub fn irq(name: &str) -> Self {
        Self::Is(format!("irq:{}", cut(name)))
    }

    /// Returns `true` if this is the source `name` of a trace.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Is(source) => source == name,
            Self::Begins(begin) => name.starts_with(begin.as_str()),
            Self::UnboundThreads => name.strip_prefix("thread:").is_some_and(is_unbound),
        }
    }
}

impl Touches {
    /// All of these sources, and nothing else causes them.
    #[must_use]
    pub fn all(sources: impl IntoIterator<Item = Pattern>) -> Self {
        Self { sources: sources.into_iter().collect(), partly: false }
    }

    /// A part of these sources.
    #[must_use]
    pub fn part_of(sources: impl IntoIterator<Item = Pattern>) -> Self {
        Self { sources: sources.into_iter().collect(), partly: true }
    }

    /// Returns `true` if the source `name` of a trace is among them.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.sources.iter().any(|p| p.matches(name))
    }
}

/// The source of noise that a trace shows for a thread of this name.
pub(crate) fn thread_source(name: &str) -> String {
    format!("thread:{}", cut(name))
}

/// Returns `true` if a thread of this name may be moved to other CPUs.
fn is_unbound(name: &str) -> bool {
    // bound workers are `kworker/3:1`, unbound ones `kworker/u8:1`
    let bound_worker = name.strip_prefix("kworker/").is_some_and(|rest| !rest.starts_with('u'));
    !bound_worker && !BOUND.iter().any(|bound| name.starts_with(bound))
}

/// The first 15 bytes, at a character's edge.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_as_in_a_trace() {
        assert!(Pattern::irq("virtio0-reporting_vq").matches("irq:virtio0-reporti"));
        assert!(Pattern::thread("systemd-journald").matches("thread:systemd-journal"));
        assert!(!Pattern::irq("eth0").matches("irq:eth0-rx"));
        assert_eq!(cut("ääääääää"), "äääääää");
    }

    #[test]
    fn threads_of_a_cpu_are_not_unbound() {
        let unbound = |name| Pattern::UnboundThreads.matches(name);
        assert!(unbound("thread:chronyd") && unbound("thread:kworker/u8:1") && unbound("thread:kswapd0"));
        assert!(!unbound("thread:kworker/1:1H") && !unbound("thread:migration/1") && !unbound("irq:eth0"));
    }
}
