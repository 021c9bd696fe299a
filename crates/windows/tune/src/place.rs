// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places that hold a value which a step changes: files of the kernel, and the CPUs of tasks.

use std::fmt;
use std::io::{self, ErrorKind};

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;
use nix::libc::{EIO, EPERM};

use crate::error::TuneError;
use crate::node::Node;
use crate::value::chosen;

/// Errors with which the kernel refuses to move an interrupt (`irq_can_set_affinity_usr`); the second in newer kernels.
const NOT_MOVED: [i32; 2] = [EIO, EPERM];

/// Something with a value that can be read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A file below `/proc` or `/sys`.
    File(&'a str),
    /// The CPUs that a task may run on.
    Task(TaskId),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => f.write_str(file),
            Self::Task(task) => write!(f, "the CPUs of task {}", task.tid),
        }
    }
}

impl Place<'_> {
    /// Checks that a step may change this place. A journal is read by root: it must not make root write an arbitrary file.
    pub(crate) fn check(self) -> Result<(), TuneError> {
        match self {
            Self::File(file) => check_file(file),
            Self::Task(_) => Ok(()),
        }
    }

    /// Reads the value now; [`ErrorKind::NotFound`] if the file or the task is gone.
    pub(crate) fn read(self, node: &impl Node) -> io::Result<String> {
        match self {
            Self::File(file) => node.read(file),
            Self::Task(task) => node.affinity(task).map(|cpus| cpus.to_string()),
        }
    }

    /// Writes a value for a transaction.
    pub(crate) fn write(self, node: &impl Node, transaction: &str, value: &str) -> io::Result<()> {
        match self {
            Self::File(file) => node.write(file, value),
            Self::Task(task) => {
                let cpus: CpuSet = value.parse().map_err(|e| io::Error::new(ErrorKind::InvalidInput, e))?;
                node.bind(transaction, task, &cpus)
            }
        }
    }

    /// Undoes [`write`](Self::write) at once. `before`: the value before it.
    pub(crate) fn put_back(self, node: &impl Node, transaction: &str, before: &str) -> io::Result<()> {
        match self {
            Self::File(file) => node.write(file, chosen(before)),
            Self::Task(task) => node.unbind(transaction, task, true).map(drop),
        }
    }

    /// Returns `true` if the kernel itself changes the value: it gives an interrupt other CPUs when those that the interrupt was
    /// bound to go offline. So another value of an interrupt does not prove that a program has chosen it.
    pub(crate) fn is_changed_by_the_kernel(self) -> bool {
        matches!(self, Self::File(file) if is_interrupt(file))
    }

    /// The kernel's answer to a write, with its meaning if the place gives it one.
    pub(crate) fn explain(self, answer: &io::Error) -> String {
        let is_not_moved = answer.raw_os_error().is_some_and(|number| NOT_MOVED.contains(&number));
        match self {
            Self::File(file) if is_interrupt(file) && is_not_moved => {
                format!("the kernel does not let this interrupt be moved ({answer})")
            }
            _ => answer.to_string(),
        }
    }
}

fn is_interrupt(file: &str) -> bool {
    file.strip_prefix("/proc/irq/").is_some_and(|rest| rest.contains("/smp_affinity"))
}

/// Checks that `file` is a setting of the kernel.
pub(crate) fn check_file(file: &str) -> Result<(), TuneError> {
    let below = file.starts_with("/proc/") || file.starts_with("/sys/");
    if below && !file.split('/').any(|part| part == "..") {
        return Ok(());
    }
    Err(TuneError::NotASetting(file.chars().take(200).collect()))
}
