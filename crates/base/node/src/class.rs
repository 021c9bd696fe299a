// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling classes of tasks.

use std::fmt;

use crate::NodeError;

/// The class a task is scheduled in, with its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// `SCHED_OTHER`, the default, with a nice value −20..=19.
    Other(i8),
    /// `SCHED_BATCH` with a nice value.
    Batch(i8),
    /// `SCHED_IDLE`: runs when nothing else wants to.
    Idle,
    /// `SCHED_FIFO` with a priority 1..=99.
    Fifo(u8),
    /// `SCHED_RR` with a priority 1..=99.
    RoundRobin(u8),
    /// Another policy by its number (deadline, ext).
    Foreign(u32),
}

impl Class {
    /// Returns `true` for the classes with priority over every ordinary class: FIFO, round robin and deadline.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo(_) | Self::RoundRobin(_) | Self::Foreign(DEADLINE))
    }

    /// The same class with the nice value `nice`, if it has one.
    #[must_use]
    pub const fn with_nice(self, nice: i8) -> Self {
        match self {
            Self::Other(_) => Self::Other(nice),
            Self::Batch(_) => Self::Batch(nice),
            other => other,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Other(0) => f.write_str("SCHED_OTHER"),
            Self::Other(nice) => write!(f, "SCHED_OTHER nice {nice}"),
            Self::Batch(nice) => write!(f, "SCHED_BATCH nice {nice}"),
            Self::Idle => f.write_str("SCHED_IDLE"),
            Self::Fifo(p) => write!(f, "SCHED_FIFO {p}"),
            Self::RoundRobin(p) => write!(f, "SCHED_RR {p}"),
            Self::Foreign(n) => write!(f, "policy {n}"),
        }
    }
}

/// `struct sched_attr` of `sched_setattr(2)`, its first version (48 bytes).
#[repr(C)]
#[derive(Default)]
struct Attr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const RESET_ON_FORK: u64 = 0x01;
const EXT: u32 = 7;
const DEADLINE: u32 = 6;

/// The class of task `tid`; `0` is the calling thread.
///
/// # Errors
/// [`NodeError::System`] where the task is gone.
pub fn get(tid: i32) -> Result<Class, NodeError> {
    match current(tid) {
        Ok((class, _)) => Ok(class),
        Err(source) => Err(NodeError::System {
            what: format!("asking for the scheduling class of task {tid}"),
            source,
            hint: None,
        }),
    }
}

/// The class of task `tid`, and whether its children start in `SCHED_OTHER` instead (`SCHED_RESET_ON_FORK`). For threads
/// that must not allocate.
///
/// # Errors
/// The kernel's answer; `ESRCH` if the task has ended.
pub fn current(tid: i32) -> std::io::Result<(Class, bool)> {
    let mut a = Attr::default();
    // SAFETY: the kernel writes at most the given size into `a`, which is that large.
    let r =
        unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut a, size_of::<Attr>() as u32, 0u32) };
    if r != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let class = match a.policy as i32 {
        libc::SCHED_OTHER => Class::Other(a.nice as i8),
        libc::SCHED_BATCH => Class::Batch(a.nice as i8),
        libc::SCHED_IDLE => Class::Idle,
        libc::SCHED_FIFO => Class::Fifo(a.priority as u8),
        libc::SCHED_RR => Class::RoundRobin(a.priority as u8),
        other => Class::Foreign(other as u32),
    };
    Ok((class, a.flags & RESET_ON_FORK != 0))
}

/// The nice value of task `tid`, which it keeps while it is in a class that has none (FIFO, round robin, idle).
///
/// # Errors
/// The kernel's answer; `ESRCH` if the task has ended.
pub fn nice(tid: i32) -> std::io::Result<i8> {
    // SAFETY: takes and returns numbers. The bare system call answers 20 − nice, so that no error looks like a value.
    let answer = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) };
    match i8::try_from(20 - answer) {
        Ok(nice) if answer > 0 => Ok(nice),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Sets the nice value of task `tid`, in whatever class it is.
///
/// # Errors
/// The kernel's answer; a lower value needs `CAP_SYS_NICE`.
pub fn set_nice(tid: i32, nice: i8) -> std::io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, i32::from(nice)) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Puts task `tid` (`0`: the calling thread) into `class`; its children inherit it.
///
/// # Errors
/// [`NodeError::System`]; real-time classes need `CAP_SYS_NICE` or an `RLIMIT_RTPRIO`.
pub fn set(tid: i32, class: Class) -> Result<(), NodeError> {
    set_with(tid, class, 0)
}

/// As [`set`], but children start in `SCHED_OTHER`: nothing a task leaves behind keeps a real-time class.
///
/// # Errors
/// As [`set`].
pub fn set_not_inherited(tid: i32, class: Class) -> Result<(), NodeError> {
    set_with(tid, class, RESET_ON_FORK)
}

fn set_with(tid: i32, class: Class, flags: u64) -> Result<(), NodeError> {
    apply(tid, class, flags).map_err(|source| {
        let hint = (source.raw_os_error() == Some(libc::EPERM))
            .then_some("this needs root, CAP_SYS_NICE, or a real-time limit (ulimit -r)");
        let who = if tid == 0 { "this thread".into() } else { format!("task {tid}") };
        NodeError::System { what: format!("putting {who} into {class}"), source, hint }
    })
}

/// As [`set`] or, without `inherited`, [`set_not_inherited`], for threads that must not allocate: neither
/// success nor failure does.
///
/// # Errors
/// The kernel's answer.
pub fn switch(tid: i32, class: Class, inherited: bool) -> std::io::Result<()> {
    apply(tid, class, if inherited { 0 } else { RESET_ON_FORK })
}

fn apply(tid: i32, class: Class, flags: u64) -> std::io::Result<()> {
    let (policy, nice, priority) = match class {
        Class::Other(nice) => (libc::SCHED_OTHER, nice, 0),
        Class::Batch(nice) => (libc::SCHED_BATCH, nice, 0),
        Class::Idle => (libc::SCHED_IDLE, 0, 0),
        Class::Fifo(p) => (libc::SCHED_FIFO, 0, p),
        Class::RoundRobin(p) => (libc::SCHED_RR, 0, p),
        // A task of sched_ext can be put back, with the nice value it has. A deadline task cannot without its three times.
        Class::Foreign(n) if n == EXT => (EXT as i32, self::nice(tid).unwrap_or(0), 0),
        Class::Foreign(_) => return Err(std::io::ErrorKind::Unsupported.into()),
    };
    let a = Attr {
        size: size_of::<Attr>() as u32,
        policy: policy as u32,
        flags,
        nice: nice.into(),
        priority: priority.into(),
        ..Attr::default()
    };
    // SAFETY: `a` is a valid sched_attr of the size it says.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const a, 0u32) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_set_is_the_class_got() {
        std::thread::spawn(|| {
            for class in [Class::Other(3), Class::Batch(4), Class::Idle] {
                set(0, class).expect("lowering oneself is always allowed");
                assert_eq!(get(0).expect("self"), class);
            }
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_nice_value_outlives_the_classes_that_have_none() {
        std::thread::spawn(|| {
            set(0, Class::Other(3)).expect("lowering oneself is always allowed");
            set(0, Class::Idle).expect("lowering oneself is always allowed");
            assert_eq!(nice(0).expect("self"), 3);
            set_nice(0, 9).expect("lowering oneself is always allowed");
            assert_eq!((get(0).expect("self"), nice(0).expect("self")), (Class::Idle, 9));
        })
        .join()
        .expect("no panic");
        assert_eq!(nice(i32::MAX).expect_err("no such task").raw_os_error(), Some(libc::ESRCH));
        assert!(set_nice(i32::MAX, 1).is_err());
    }

    #[test]
    fn a_task_that_is_gone_is_an_error() {
        assert!(get(i32::MAX).is_err());
        assert!(set(i32::MAX, Class::Idle).is_err());
    }
}
