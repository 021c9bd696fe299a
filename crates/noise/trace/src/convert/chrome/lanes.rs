// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of a Chrome trace: a process and a thread each, and the CPU that their names or numbers say.

use std::collections::{BTreeSet, HashMap};

use colony_node::cpu::CpuSet;

use crate::trace::{Lane, OtherFile, Problem};

/// Threads that an error names.
const SHOWN: usize = 3;

/// The rows of a file as they appear, and the names that the file gives them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    numbers: HashMap<(String, String), u32>,
    /// `pid` and `tid` of each row, as text.
    rows: Vec<(String, String)>,
    threads: HashMap<(String, String), String>,
    processes: HashMap<String, String>,
}

/// The CPUs of a file of another tool.
#[derive(Debug)]
pub(super) struct Named {
    /// The CPU of each row; `None` for a thread without the name of a CPU.
    pub(super) lanes: Vec<Option<Lane>>,
    /// Every CPU that is named, with events or without.
    pub(super) cpus: CpuSet,
    /// The number of a process stands for the node, because several processes have CPUs.
    pub(super) has_nodes_of_processes: bool,
}

impl Lanes {
    /// The number of the row of this process and thread.
    pub(super) fn row(&mut self, pid: &str, tid: &str) -> u32 {
        let row = (pid.to_owned(), tid.to_owned());
        if let Some(&number) = self.numbers.get(&row) {
            return number;
        }
        let number = self.rows.len() as u32;
        self.rows.push(row.clone());
        self.numbers.insert(row, number);
        number
    }

    pub(super) fn name_thread(&mut self, pid: &str, tid: &str, name: String) {
        self.threads.insert((pid.to_owned(), tid.to_owned()), name);
    }

    pub(super) fn name_process(&mut self, pid: &str, name: String) {
        self.processes.insert(pid.to_owned(), name);
    }

    /// The node and the CPU of each row by their numbers, as Colony writes them.
    ///
    /// # Errors
    /// A number is none, or is beyond those that there are.
    pub(super) fn by_number(&self) -> Result<Vec<Option<Lane>>, Problem> {
        let number = |field: &str, text: &str| match text {
            "" => Ok(0u32),
            text => text.parse().map_err(|_| {
                let shown: String = text.chars().take(40).collect();
                Problem::Json(format!("an event's `{field}` must be a number in its range and is `{shown}`"))
            }),
        };
        let lane = |(pid, tid): &(String, String)| {
            let (node, cpu) = (number("pid", pid)?, number("tid", tid)?);
            let within = u16::try_from(cpu).ok().filter(|cpu| usize::from(*cpu) < CpuSet::LIMIT);
            Ok(Some(Lane { node, cpu: within.ok_or(Problem::Cpu(cpu.into()))? }))
        };
        self.rows.iter().map(lane).collect()
    }

    /// The CPU of each row by the name of its thread (`CPU 3`), or else of its process.
    ///
    /// # Errors
    /// [`Problem::OtherFile`]: no name is that of a CPU. A thread may run on any CPU, so its number says nothing.
    pub(super) fn by_name(&self) -> Result<Named, Problem> {
        let of_process = |pid: &str| self.processes.get(pid).and_then(|name| numbered(name, "cpu"));
        let of_row = |row: &(String, String)| {
            let thread = self.threads.get(row).and_then(|name| numbered(name, "cpu"));
            thread.or_else(|| of_process(&row.0)).and_then(|cpu| u16::try_from(cpu).ok())
        };
        let with_cpus: BTreeSet<&str> =
            self.rows.iter().filter(|row| of_row(row).is_some()).map(|row| row.0.as_str()).collect();
        let unnamed = |pid: &&&str| of_process(pid).is_none() && self.node_named(pid).is_none();
        let has_nodes_of_processes = with_cpus.iter().filter(unnamed).count() > 1;
        let node = |pid: &str| match self.node_named(pid) {
            Some(node) => node,
            None if has_nodes_of_processes && of_process(pid).is_none() => pid.parse().unwrap_or(0),
            None => 0,
        };
        let lane = |row: &(String, String)| of_row(row).map(|cpu| Lane { node: node(&row.0), cpu });
        let lanes: Vec<Option<Lane>> = self.rows.iter().map(lane).collect();
        if lanes.iter().all(Option::is_none) {
            return Err(Problem::OtherFile(self.without_cpus()));
        }
        let names = self.threads.values().chain(self.processes.values());
        let cpus = names.filter_map(|name| numbered(name, "cpu")).map(|cpu| cpu as usize);
        let cpus = cpus.filter(|cpu| *cpu < CpuSet::LIMIT).collect();
        if let Some(lane) = lanes.iter().flatten().find(|lane| usize::from(lane.cpu) >= CpuSet::LIMIT) {
            return Err(Problem::Cpu(lane.cpu.into()));
        }
        Ok(Named { lanes, cpus, has_nodes_of_processes })
    }

    fn node_named(&self, pid: &str) -> Option<u32> {
        self.processes.get(pid).and_then(|name| numbered(name, "node"))
    }

    fn without_cpus(&self) -> OtherFile {
        let short = |text: &str| text.chars().take(20).collect::<String>();
        let shown = self.rows.iter().take(SHOWN).map(|row| {
            let name = self.threads.get(row).map(|name| format!(" `{}`", short(name))).unwrap_or_default();
            format!("thread {}{name} of process {}", short(&row.1), short(&row.0))
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = if self.rows.len() > SHOWN { ", …" } else { "" };
        let (pid, tid) = self.rows.first().map_or(("0", "3"), |row| (&row.0, &row.1));
        let value = |text: &str| match text.parse::<u64>() {
            Ok(_) => short(text),
            Err(_) => format!("\"{}\"", short(text)),
        };
        OtherFile::new(
            format!("a Chrome trace of threads, none of which is named as a CPU ({shown}{more})"),
            format!(
                "a thread may run on any CPU, so its events are no detours of one. If each thread is a CPU, add its name to the events: \
                 {{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"CPU 3\"}}}}",
                value(pid),
                value(tid)
            ),
        )
    }
}

/// The number in a name such as `CPU 3`, `cpu3` or `CPU #3`.
fn numbered(name: &str, kind: &str) -> Option<u32> {
    let name = name.trim().to_ascii_lowercase();
    let number = name.strip_prefix(kind)?.trim_start_matches([' ', '#', '_', '-', ':']);
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cpus_have_one_number_and_nothing_else() {
        for (name, cpu) in [
            ("CPU 3", Some(3)),
            ("cpu003", Some(3)),
            (" Cpu #12 ", Some(12)),
            ("CPU", None),
            ("cpu_op", None),
            ("CPU 3 worker", None),
            ("CPU 99999999999", None),
            ("3", None),
        ] {
            assert_eq!(numbered(name, "cpu"), cpu, "{name}");
        }
    }
}
