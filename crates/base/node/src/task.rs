// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks: processes, their threads, their descendants.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::NodeError;

/// Every process of the node (of this pid namespace), in no order; empty if `/proc` cannot be read.
#[must_use]
pub fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// The threads of process `pid`; empty if it has ended or cannot be read.
#[must_use]
pub fn threads(pid: i32) -> Vec<i32> {
    list_threads(pid).unwrap_or_default()
}

/// The threads of process `pid`.
///
/// # Errors
/// [`NodeError::NoTask`] if it has ended; [`NodeError::Read`] if the kernel does not tell, for example because this process
/// has no free descriptor.
pub fn list_threads(pid: i32) -> Result<Vec<i32>, NodeError> {
    let path = format!("/proc/{pid}/task");
    let failed = |e: std::io::Error| match crate::is_no_task(&e) {
        true => NodeError::NoTask { tid: pid },
        false => NodeError::Read { path: path.clone().into(), reason: e.to_string() },
    };
    let entries = std::fs::read_dir(&path).map_err(failed)?;
    let numbers = entries.map(|e| Ok(e.map_err(failed)?.file_name().to_str().and_then(|n| n.parse().ok())));
    numbers.filter_map(Result::transpose).collect()
}

/// The children of process `pid`, those of all its threads; empty if it has ended.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    threads(pid)
        .into_iter()
        .filter_map(|tid| crate::read_of_task(pid, &format!("task/{tid}/children")).ok())
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
    Some(crate::read_of_task(tid, "comm").ok()?.trim_end().to_owned())
}

/// The fields of `/proc/<tid>/stat` that Colony uses.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct TaskId {
    /// Its number.
    pub tid: i32,
    /// Its start in clock ticks since boot.
    pub start_ticks: u64,
}

impl TaskId {
    /// The task `tid` names now.
    ///
    /// # Errors
    /// As [`stat`].
    pub fn of(tid: i32) -> Result<Self, NodeError> {
        Ok(Self { tid, start_ticks: stat(tid)?.start_ticks })
    }

    /// Returns `true` if the task exists and is not a zombie.
    #[must_use]
    pub fn lives(self) -> bool {
        stat(self.tid).is_ok_and(|s| s.start_ticks == self.start_ticks && !s.has_ended())
    }

    /// The time of its start, to a second; `None` if the kernel does not tell when the node was booted.
    #[must_use]
    pub fn started(self) -> Option<SystemTime> {
        let text = crate::read("/proc/stat").ok()?;
        let boot: u64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        let ticks_per_s = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
        UNIX_EPOCH
            .checked_add(Duration::from_secs(boot.checked_add(self.start_ticks.checked_div(ticks_per_s)?)?))
    }

    /// Returns `true` if any thread of this process still runs. The first thread may have ended before the others: it is a zombie
    /// then, the process is not.
    ///
    /// # Errors
    /// As [`stat`] and [`list_threads`], but for a process that has ended.
    pub fn is_running_process(self) -> Result<bool, NodeError> {
        let first = match stat(self.tid) {
            Ok(first) => first,
            Err(e) if e.is_no_task() => return Ok(false),
            Err(e) => return Err(e),
        };
        if first.start_ticks != self.start_ticks {
            return Ok(false);
        }
        if !first.has_ended() {
            return Ok(true);
        }
        let threads = match list_threads(self.tid) {
            Ok(threads) => threads,
            Err(e) if e.is_no_task() => return Ok(false),
            Err(e) => return Err(e),
        };
        for tid in threads {
            match stat(tid) {
                Ok(thread) if !thread.has_ended() => return Ok(true),
                Err(e) if !e.is_no_task() => return Err(e),
                _ => {}
            }
        }
        Ok(false)
    }
}

impl Stat {
    /// Returns `true` if the task will never run again: it is a zombie, or on its way out of the kernel.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Returns `true` if the task is stopped, as by `SIGSTOP`.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.state == b'T'
    }
}

/// Reads `/proc/<tid>/stat`.
///
/// # Errors
/// [`NodeError::NoTask`] if the task has ended, [`NodeError::Read`] if the kernel does not tell.
pub fn stat(tid: i32) -> Result<Stat, NodeError> {
    let text = crate::read_of_task(tid, "stat")?;
    parse_stat(&text).ok_or_else(|| NodeError::Read {
        path: format!("/proc/{tid}/stat").into(),
        reason: "unexpected fields".into(),
    })
}

/// Reads `/proc/<pid>/task/<tid>/stat`: of thread `tid` only while it is one of process `pid`.
///
/// # Errors
/// As [`stat`].
pub fn stat_of_thread(pid: i32, tid: i32) -> Result<Stat, NodeError> {
    let file = format!("task/{tid}/stat");
    let text = crate::read_of_task(pid, &file)?;
    parse_stat(&text).ok_or_else(|| NodeError::Read {
        path: format!("/proc/{pid}/{file}").into(),
        reason: "unexpected fields".into(),
    })
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
    let status = crate::read_of_task(tid, "status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Processor time that process `pid` has used so far, all its threads together, ns; `None` if there is no such process.
#[must_use]
pub fn cpu_ns(pid: i32) -> Option<u64> {
    /// No process has a greater number (`PID_MAX_LIMIT` of the kernel). The clock of one that could not be has the number of
    /// another clock.
    const LARGEST: i32 = 4 << 20;
    if !(1..=LARGEST).contains(&pid) {
        return None;
    }
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).ok()?;
    u64::try_from(clock_gettime(clock).ok()?.num_nanoseconds()).ok()
}

/// Has process `pid` killed earlier than others when memory runs out (`oom_score_adj` 500, proc(5)): what works for a job
/// goes before what works for the node. If this is not allowed, the process keeps its place.
pub fn kill_earlier(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "500");
}

/// As [`kill_earlier`], of the calling process. Makes system calls only, so that it may be called between `fork` and `exec`; there it needs no
/// right over a process that has changed its user.
pub fn kill_this_earlier() {
    use nix::fcntl::{OFlag, open};
    let file =
        open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty());
    if let Ok(file) = file {
        let _ = nix::unistd::write(&file, b"500");
    }
}

/// Nanoseconds task `tid` has waited, runnable, for a CPU (`/proc/<tid>/schedstat`, second field).
#[must_use]
pub fn run_delay_ns(tid: i32) -> Option<u64> {
    run_and_delay_ns(tid).map(|(_, delay)| delay)
}

/// Nanoseconds task `tid` has run, and has waited, runnable, for a CPU (`/proc/<tid>/schedstat`).
#[must_use]
pub fn run_and_delay_ns(tid: i32) -> Option<(u64, u64)> {
    let text = crate::read_of_task(tid, "schedstat").ok()?;
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
        assert!(cpu_ns(me).is_some_and(|ns| ns > 0) && cpu_ns(i32::MAX).is_none());
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

    #[test]
    fn a_name_that_is_not_utf8_hides_nothing() {
        std::thread::spawn(|| {
            nix::sys::prctl::set_name(c"\xff\xfe)").expect("any bytes");
            let tid = nix::unistd::gettid().as_raw();
            assert_eq!(stat(tid).expect("alive").state, b'R');
            assert_eq!(process_of(tid), Some(std::process::id() as i32));
            assert_eq!(name(tid).as_deref(), Some("\u{fffd}\u{fffd})"));
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_still_runs() {
        use std::io::Read;
        // the first thread of the child ends by the system call, while another one goes on
        let script = "import ctypes, threading, time\n\
            threading.Thread(target=time.sleep, args=(60,)).start()\n\
            print(flush=True)\n\
            ctypes.CDLL(None).syscall(60, 0)";
        let python = std::process::Command::new("python3")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut child = python.expect("python3");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("said");
        let process = TaskId::of(child.id() as i32).expect("alive");
        while process.lives() {
            std::thread::yield_now();
        }
        assert!(process.is_running_process().expect("readable"));
        child.kill().expect("ours");
        while process.is_running_process().expect("readable") {
            std::thread::yield_now();
        }
        child.wait().expect("ours");
        assert!(!process.is_running_process().expect("gone"));
        assert!(stat(process.tid).expect_err("gone").is_no_task());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = parse_stat(&text);
        }
    }
}
