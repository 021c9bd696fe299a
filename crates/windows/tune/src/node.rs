// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that transactions need of a machine.

use std::io;

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;

/// A machine whose settings are changed, and the place of its journals.
///
/// Journals are small documents by name. [`save`](Node::save) and [`discard`](Node::discard) are atomic: after a crash a journal is
/// the old one or the new one.
pub trait Node {
    /// Reads a setting.
    ///
    /// # Errors
    /// The kernel's answer.
    fn read(&self, file: &str) -> io::Result<String>;

    /// Writes a setting.
    ///
    /// # Errors
    /// The kernel's answer.
    fn write(&self, file: &str, value: &str) -> io::Result<()>;

    /// The CPUs that a task may run on.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) if the task has ended, also if its number is another task's by now; otherwise the kernel's answer.
    fn affinity(&self, task: TaskId) -> io::Result<CpuSet>;

    /// Gives a task other CPUs.
    ///
    /// # Errors
    /// As [`affinity`](Node::affinity).
    fn bind(&self, task: TaskId, cpus: &CpuSet) -> io::Result<()>;

    /// Runs a command, and waits for its end.
    ///
    /// # Errors
    /// It cannot be started, or ends with a failure; the text has its standard error.
    fn run(&self, command: &[String]) -> io::Result<()>;

    /// Identity of the present boot.
    fn boot(&self) -> String;

    /// Names of the journals, in the order of their first [`save`](Node::save).
    ///
    /// # Errors
    /// The file system's answer.
    fn journals(&self) -> io::Result<Vec<String>>;

    /// Reads the journal of this name; `None` if there is none.
    ///
    /// # Errors
    /// The file system's answer.
    fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Writes the journal of this name.
    ///
    /// # Errors
    /// The file system's answer; the old journal is still there.
    fn save(&self, name: &str, journal: &[u8]) -> io::Result<()>;

    /// Removes the journal of this name.
    ///
    /// # Errors
    /// The file system's answer.
    fn discard(&self, name: &str) -> io::Result<()>;
}
