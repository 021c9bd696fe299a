//! Tasks: processes, their threads, their descendants.

use std::path::PathBuf;

use crate::NodeError;

/// The threads of process `pid`; empty where it is gone.
#[must_use]
pub fn threads(pid: i32) -> Vec<i32> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .map(|entries| entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
        .unwrap_or_default()
}

/// The children of process `pid`, those of all its threads; empty where it is gone.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    threads(pid)
        .into_iter()
        .filter_map(|tid| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok())
        .flat_map(|s| s.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<i32>>())
        .collect()
}

/// Process `pid` and all that descends from it, parents before children.
#[must_use]
pub fn tree(pid: i32) -> Vec<i32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(children(parent));
        next += 1;
    }
    found
}

/// The number of the task that was started last (`/proc/loadavg`, last field): while it stays the same, no
/// task has been started on this node (in this pid namespace). Far cheaper than looking at them.
#[must_use]
pub fn newest() -> Option<i32> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next_back()?.parse().ok()
}

/// The name of task `tid`, as the kernel keeps it (15 characters at most).
#[must_use]
pub fn name(tid: i32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{tid}/comm")).ok()?.trim_end().to_owned())
}

/// What `/proc/<tid>/stat` says of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State letter: `R` running or runnable, `S` sleeping, `Z` ended and not waited for.
    pub state: u8,
    /// Parent process.
    pub parent: i32,
    /// Start in clock ticks since boot; with the number it names a task for good.
    pub start_ticks: u64,
    /// CPU it ran on last.
    pub cpu: usize,
}

/// A task's number and its start: numbers are given again, both together are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TaskId {
    /// Its number.
    pub tid: i32,
    /// Its start in clock ticks since boot.
    pub start_ticks: u64,
}

impl TaskId {
    /// Whether the task is still there.
    #[must_use]
    pub fn lives(self) -> bool {
        stat(self.tid).is_ok_and(|s| s.start_ticks == self.start_ticks && s.state != b'Z')
    }
}

/// Reads `/proc/<tid>/stat`.
///
/// # Errors
/// [`NodeError::Read`] where the task is gone.
pub fn stat(tid: i32) -> Result<Stat, NodeError> {
    let path = PathBuf::from(format!("/proc/{tid}/stat"));
    let text = crate::read(&path)?;
    parse_stat(&text).ok_or(NodeError::Read { path, reason: "unexpected fields".into() })
}

fn parse_stat(text: &str) -> Option<Stat> {
    // the name may hold anything, brackets and blanks included: fields count from the last bracket
    let rest = text.get(text.rfind(')')? + 1..)?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
        cpu: fields.get(36)?.parse().ok()?,
    })
}

/// The process a task belongs to.
#[must_use]
pub fn process_of(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Nanoseconds task `tid` has waited, runnable, for a CPU (`/proc/<tid>/schedstat`, second field).
#[must_use]
pub fn run_delay_ns(tid: i32) -> Option<u64> {
    run_and_delay_ns(tid).map(|(_, delay)| delay)
}

/// Nanoseconds task `tid` has run, and has waited, runnable, for a CPU (`/proc/<tid>/schedstat`).
#[must_use]
pub fn run_and_delay_ns(tid: i32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    let mut fields = text.split_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_process_is_found_with_its_child() {
        let me = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("10").spawn().expect("sleep");
        let found = tree(me);
        assert!(found.starts_with(&[me]) && found.contains(&(child.id() as i32)), "{found:?}");
        assert_eq!(stat(child.id() as i32).expect("alive").parent, me);
        child.kill().and_then(|()| child.wait()).expect("ours to kill");
        let own = TaskId { tid: me, start_ticks: stat(me).expect("alive").start_ticks };
        assert!(own.lives() && !TaskId { start_ticks: own.start_ticks + 1, ..own }.lives());
        assert_eq!(process_of(nix::unistd::gettid().as_raw()), Some(me));
        assert!(run_delay_ns(me).is_some() && newest().is_some());
        assert!(stat(i32::MAX).is_err() && threads(i32::MAX).is_empty() && name(i32::MAX).is_none());
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let fields = (4..60).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let s = parse_stat(&format!("7 (a) b) c)) S {fields}")).expect("valid");
        assert_eq!((s.state, s.parent, s.start_ticks, s.cpu), (b'S', 4, 22, 39));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = parse_stat(&text);
        }
    }
}
