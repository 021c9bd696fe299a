// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that transactions need of a machine.

use std::io;

use colony_ledger::Released;
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

    /// Gives a task other CPUs for a transaction whose journal is saved, on top of what others gave it.
    ///
    /// # Errors
    /// As [`affinity`](Node::affinity).
    fn bind(&self, transaction: &str, task: TaskId, cpus: &CpuSet) -> io::Result<()>;

    /// Undoes [`bind`](Node::bind): the task gets the CPUs that it would have without this transaction. CPUs that another program has
    /// chosen for the task since stay, unless `chosen_too` is set.
    ///
    /// # Errors
    /// The kernel's answer. A task that has ended is no error.
    fn unbind(&self, transaction: &str, task: TaskId, chosen_too: bool) -> io::Result<Released>;

    /// Runs a command, and waits for its end.
    ///
    /// # Errors
    /// It cannot be started, or ends with a failure; the text has its standard error.
    fn run(&self, command: &[String]) -> io::Result<()>;

    /// Identity of the present boot.
    ///
    /// # Errors
    /// The kernel's answer: no journal can be judged then.
    fn boot(&self) -> io::Result<String>;

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

    /// The file of a journal, in words, for errors.
    fn journal_file(&self, name: &str) -> String;

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
