// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine in memory that crashes at a chosen operation, for tests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use colony_ledger::Released;
use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;

use crate::node::Node;

/// A machine in memory. Files whose name ends in `refuses` take no value, those that end in `rounds` take tens only, and those
/// that end in `mask` print eight digits. A file that ends in `cpu.max` prints a period behind a quota without one. Files in
/// `answers` answer a write with an error number of the kernel. Command `add X` puts a word into a set, and `del X` takes it
/// out; either fails if nothing is to be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    pub(crate) files: RefCell<BTreeMap<String, String>>,
    pub(crate) words: RefCell<Vec<String>>,
    pub(crate) answers: RefCell<BTreeMap<String, i32>>,
    /// Tasks by number.
    pub(crate) tasks: RefCell<BTreeMap<i32, FakeTask>>,
    journals: RefCell<Vec<(String, Vec<u8>)>>,
    /// Operations until the crash; nothing happens after it.
    pub(crate) left: Cell<Option<u32>>,
    /// The crashing operation has its effect, and only its answer is lost.
    pub(crate) late: Cell<bool>,
}

/// A task of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FakeTask {
    pub(crate) start: u64,
    /// The CPUs that it may run on.
    pub(crate) cpus: String,
    /// The CPUs that the task would have without transactions, while there are some.
    own: Option<String>,
    /// The CPUs that transactions have given the task, the oldest first.
    layers: Vec<(String, String)>,
}

impl FakeTask {
    pub(crate) fn new(start: u64, cpus: &str) -> Self {
        Self { start, cpus: cpus.into(), ..Self::default() }
    }

    /// The CPUs by the layers.
    fn wanted(&self) -> Option<&String> {
        self.layers.last().map(|(_, given)| given).or(self.own.as_ref())
    }

    fn bind(&mut self, transaction: &str, cpus: &CpuSet) {
        if self.wanted() != Some(&self.cpus) {
            self.own = Some(self.cpus.clone());
        }
        self.layers.retain(|(name, _)| name != transaction);
        self.layers.push((transaction.into(), cpus.to_string()));
        self.cpus = cpus.to_string();
    }

    fn unbind(&mut self, transaction: &str, chosen_too: bool) -> Result<Released, String> {
        let Some(at) = self.layers.iter().position(|(name, _)| name == transaction) else {
            return Ok(Released::Nothing);
        };
        let is_as_given = self.wanted() == Some(&self.cpus);
        self.layers.remove(at);
        let is_top = at == self.layers.len();
        let now = self.cpus.parse().map_err(|e| format!("{e}"))?;
        if is_as_given || chosen_too {
            self.cpus = self.wanted().cloned().unwrap_or_default();
        }
        if self.layers.is_empty() {
            self.own = None;
        }
        Ok(match (is_as_given || chosen_too, is_top) {
            (false, _) => Released::Chosen(now),
            (true, true) => Released::Restored,
            (true, false) => Released::HandedOn,
        })
    }
}

impl Fake {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(f, v)| ((*f).to_owned(), (*v).to_owned())).collect();
        Self { files: RefCell::new(files), ..Self::default() }
    }

    pub(crate) fn value(&self, file: &str) -> String {
        self.files.borrow()[file].clone()
    }

    /// The CPUs of the task with this number now.
    pub(crate) fn cpus(&self, tid: i32) -> String {
        self.tasks.borrow()[&tid].cpus.clone()
    }

    /// Starts the machine's processes again after a crash; settings stay.
    pub(crate) fn revive(&self) {
        self.left.set(None);
    }

    /// Does `operation` unless the crash is over. An operation with an effect may have it although the crash takes its answer.
    fn step<T>(&self, operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let crashed = || io::Error::other("crashed");
        match self.left.get() {
            None => operation(),
            Some(0) => Err(crashed()),
            Some(1) => {
                self.left.set(Some(0));
                if self.late.get() {
                    let _ = operation();
                }
                Err(crashed())
            }
            Some(n) => {
                self.left.set(Some(n - 1));
                operation()
            }
        }
    }
}

impl Node for Fake {
    fn read(&self, file: &str) -> io::Result<String> {
        self.step(|| self.files.borrow().get(file).cloned().ok_or_else(|| ErrorKind::NotFound.into()))
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        self.step(|| {
            let mut files = self.files.borrow_mut();
            let old = files.get_mut(file).ok_or(ErrorKind::NotFound)?;
            if let Some(answer) = self.answers.borrow().get(file) {
                return Err(io::Error::from_raw_os_error(*answer));
            }
            *old = match (file, value.parse::<u32>()) {
                (f, _) if f.ends_with("refuses") => return Err(ErrorKind::InvalidInput.into()),
                (f, Ok(n)) if f.ends_with("rounds") => format!("{}\n", n / 10 * 10),
                (f, _) if f.ends_with("cpu.max") && !value.contains(' ') => format!("{value} 100000\n"),
                (f, _) if f.ends_with("mask") => format!("{value:0>8}\n"),
                _ => format!("{value}\n"),
            };
            Ok(())
        })
    }

    fn affinity(&self, task: TaskId) -> io::Result<CpuSet> {
        self.step(|| {
            let tasks = self.tasks.borrow();
            let found = tasks.get(&task.tid).filter(|found| found.start == task.start_ticks);
            found.ok_or(ErrorKind::NotFound)?.cpus.parse().map_err(io::Error::other)
        })
    }

    fn bind(&self, transaction: &str, task: TaskId, cpus: &CpuSet) -> io::Result<()> {
        self.step(|| {
            let mut tasks = self.tasks.borrow_mut();
            let found = tasks.get_mut(&task.tid).filter(|found| found.start == task.start_ticks);
            found.ok_or(ErrorKind::NotFound)?.bind(transaction, cpus);
            Ok(())
        })
    }

    fn unbind(&self, transaction: &str, task: TaskId, chosen_too: bool) -> io::Result<Released> {
        self.step(|| {
            let mut tasks = self.tasks.borrow_mut();
            let found = tasks.get_mut(&task.tid).filter(|found| found.start == task.start_ticks);
            found
                .map_or(Ok(Released::Ended), |found| found.unbind(transaction, chosen_too))
                .map_err(io::Error::other)
        })
    }

    fn run(&self, command: &[String]) -> io::Result<()> {
        self.step(|| {
            let mut words = self.words.borrow_mut();
            let place = words.iter().position(|w| *w == command[1]);
            match (command[0].as_str(), place) {
                ("add", None) => words.push(command[1].clone()),
                ("del", Some(place)) => drop(words.remove(place)),
                _ => return Err(ErrorKind::AlreadyExists.into()),
            }
            Ok(())
        })
    }

    fn boot(&self) -> io::Result<String> {
        self.step(|| Ok("boot".into()))
    }

    fn journals(&self) -> io::Result<Vec<String>> {
        self.step(|| Ok(self.journals.borrow().iter().map(|(n, _)| n.clone()).collect()))
    }

    fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.step(|| Ok(self.journals.borrow().iter().find(|(n, _)| n == name).map(|(_, j)| j.clone())))
    }

    fn journal_file(&self, name: &str) -> String {
        name.to_owned()
    }

    fn save(&self, name: &str, journal: &[u8]) -> io::Result<()> {
        self.step(|| {
            let mut journals = self.journals.borrow_mut();
            match journals.iter_mut().find(|(n, _)| n == name) {
                Some((_, old)) => *old = journal.to_vec(),
                None => journals.push((name.to_owned(), journal.to_vec())),
            }
            Ok(())
        })
    }

    fn discard(&self, name: &str) -> io::Result<()> {
        self.step(|| {
            self.journals.borrow_mut().retain(|(n, _)| n != name);
            Ok(())
        })
    }
}
