// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `.sts` file of Projections: the run, its classes, entry methods and user events.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use super::kind::COLONY;
use super::lines::{Fields, Line, Lines};
use crate::error::Problem;
use crate::names::{EntryName, Names};
use crate::record::MAX_PES;
use crate::timeline::Process;

/// Versions whose logs have the fields that are read, at the same places.
const VERSIONS: std::ops::Range<f64> = 6.0..12.0;

/// Processes of an SMP run: as many PEs each, then a communication thread each.
#[derive(Clone, Copy)]
struct Smp {
    pes_each: u32,
    processes: u32,
}

/// The content of an `.sts` file.
#[derive(Default)]
pub(super) struct Sts {
    version: Option<f64>,
    machine: String,
    host: String,
    smp: Option<Smp>,
    /// Numbers of user events are the program's choice: this is their place in the names.
    events: BTreeMap<u32, u16>,
    pub(super) pes: u32,
    pub(super) command: Vec<String>,
    pub(super) names: Names,
    /// The entry method that stands for load balancing in files of Colony.
    pub(super) balancing: Option<u16>,
}

impl Sts {
    pub(super) fn read(input: impl BufRead) -> Result<Self, Problem> {
        let mut lines = Lines::new(input);
        let mut sts = Self::default();
        let mut last = 0;
        while let Some(line) = lines.next_line()? {
            last = line.number;
            if line.text.trim() == "END" {
                return sts.checked(&Fields::of(&line));
            }
            sts.add(&line)?;
        }
        let reason = "there is no line END after it; the file is cut off, or is no .sts file of Projections";
        Err(Problem::Line { number: last, reason: reason.into() })
    }

    /// Adds a line. Lines that say nothing of a time line, such as `USERNAME`, are left out.
    fn add(&mut self, line: &Line<'_>) -> Result<(), Problem> {
        let mut fields = Fields::of(line);
        let Ok(keyword) = fields.word("its keyword") else { return Ok(()) };
        let rest = line.text.trim_start().get(keyword.len()..).unwrap_or("").trim();
        match keyword {
            "VERSION" => {
                let version: f64 = fields.number("the version")?;
                if !VERSIONS.contains(&version) {
                    return Err(fields.wrong(format!("its VERSION is {version}, and Colony reads 6.0 to 11")));
                }
                self.version = Some(version);
            }
            "PROCESSORS" => {
                self.pes = fields.number("the number of PEs")?;
                if !(1..MAX_PES).contains(&self.pes) {
                    return Err(
                        fields.wrong(format!("PROCESSORS is {}, and a run has 1 to {MAX_PES}", self.pes))
                    );
                }
            }
            "SMPMODE" => {
                let (pes_each, processes) =
                    (fields.number("the size of a node")?, fields.number("the nodes")?);
                if pes_each == 0 || processes == 0 {
                    return Err(fields.wrong("SMPMODE has nodes without PEs, or no nodes"));
                }
                self.smp = Some(Smp { pes_each, processes });
            }
            "MACHINE" => self.machine = unquoted(rest).into(),
            "HOSTNAME" => self.host = unquoted(rest).into(),
            "COMMANDLINE" => {
                self.command = unquoted(rest).split_ascii_whitespace().map(str::to_owned).collect();
            }
            "CHARE" => self.class(&mut fields, line)?,
            "ENTRY" => self.entry(&mut fields, line)?,
            "EVENT" => {
                let id: u32 = fields.number("the number of the event")?;
                let name: Vec<&str> = line.text.split_ascii_whitespace().skip(2).collect();
                self.name_event(id, name.join(" ")).map_err(|reason| fields.wrong(reason))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn class(&mut self, fields: &mut Fields<'_>, line: &Line<'_>) -> Result<(), Problem> {
        let id = index(fields, "the number of the class")?;
        let dimensions = usize::from(self.version.is_some_and(|v| v >= 9.0));
        let (name, _) = name_and_numbers(&line.text, 2, dimensions)
            .ok_or_else(|| fields.wrong("a CHARE has a number, a name and, since version 9, dimensions"))?;
        let classes = &mut self.names.classes;
        for missing in classes.len()..=usize::from(id) {
            classes.push(format!("class {missing}"));
        }
        classes[usize::from(id)] = name;
        Ok(())
    }

    fn entry(&mut self, fields: &mut Fields<'_>, line: &Line<'_>) -> Result<(), Problem> {
        fields.word("the type of the entry method")?;
        let id = index(fields, "the number of the entry method")?;
        let (name, class) = name_and_numbers(&line.text, 3, 2)
            .and_then(|(name, numbers)| Some((name, numbers.first()?.parse::<u16>().ok()?)))
            .ok_or_else(|| fields.wrong("an ENTRY has a number, a name, its CHARE and its MESSAGE"))?;
        if usize::from(class) >= self.names.classes.len() {
            return Err(fields.wrong(format!("it is of CHARE {class}, which no line above has")));
        }
        let entries = &mut self.names.entries;
        for missing in entries.len()..=usize::from(id) {
            entries.push(EntryName { class: u16::MAX, name: format!("entry {missing}") });
        }
        entries[usize::from(id)] = EntryName { class, name };
        Ok(())
    }

    fn name_event(&mut self, id: u32, name: String) -> Result<u16, String> {
        if let Some(&known) = self.events.get(&id) {
            return Ok(known);
        }
        let index = self.names.event(name).map_err(|e| e.to_string())?;
        self.events.insert(id, index);
        Ok(index)
    }

    /// The place of a user event in the names; one that the file does not name gets the name `event 7`.
    pub(super) fn event(&mut self, id: u32) -> Result<u16, String> {
        self.name_event(id, format!("event {id}"))
    }

    /// The file, after its line `END`.
    fn checked(mut self, end: &Fields<'_>) -> Result<Self, Problem> {
        if self.version.is_none() || self.pes == 0 {
            return Err(
                end.wrong("the file ends without VERSION or PROCESSORS: this is no .sts file of Projections")
            );
        }
        if let Some(Smp { pes_each, processes }) = self.smp {
            let workers = u64::from(pes_each) * u64::from(processes);
            if workers > u64::from(self.pes) {
                let pes = self.pes;
                return Err(end.wrong(format!("SMPMODE has {workers} PEs, and PROCESSORS is {pes}")));
            }
        }
        if self.machine == COLONY {
            self.drop_stand_ins();
        }
        Ok(self)
    }

    /// Takes the class and the entry method away that Colony writes for load balancing.
    fn drop_stand_ins(&mut self) {
        let runtime = self.names.classes.len().saturating_sub(1);
        let is_runtime = self.names.classes.last().is_some_and(|name| name == "runtime");
        let balances = |e: &EntryName| usize::from(e.class) == runtime && e.name == "load balancing";
        if is_runtime && self.names.entries.last().is_some_and(balances) {
            self.names.entries.pop();
            self.names.classes.pop();
            self.balancing = u16::try_from(self.names.entries.len()).ok();
        }
    }

    /// The process of a PE. Without `SMPMODE`, each PE of Charm++ is a process.
    pub(super) fn process_of(&self, pe: u32) -> u32 {
        let Some(Smp { pes_each, processes }) = self.smp else { return pe };
        let workers = pes_each.saturating_mul(processes);
        match pe.checked_sub(workers) {
            None => pe / pes_each,
            Some(communication_thread) => communication_thread % processes,
        }
    }

    /// The processes. Charm++ writes the host of PE 0 only; other hosts are unknown.
    pub(super) fn processes(&self) -> Vec<Process> {
        let count = self.smp.map_or(self.pes, |s| s.processes);
        let one_host = !self.host.contains(' ');
        let is_on_host = |rank| one_host && (rank == 0 || self.machine == COLONY);
        let host = |rank| if is_on_host(rank) { self.host.clone() } else { String::new() };
        (0..count).map(|rank| Process { rank, host: host(rank), ..Process::default() }).collect()
    }

    /// Name of the program: the last part of its path, else the name of the file.
    pub(super) fn program(&self, stem: &str) -> String {
        let path = self.command.first().map(Path::new);
        path.and_then(Path::file_name).map_or_else(|| stem.into(), |name| name.to_string_lossy().into_owned())
    }
}

/// A number that is an index into a table of names.
fn index(fields: &mut Fields<'_>, what: &str) -> Result<u16, Problem> {
    let id: u16 = fields.number(what)?;
    if usize::from(id) >= Names::MAX {
        return Err(fields.wrong(format!("{what} is {id}, and {} are the most", Names::MAX)));
    }
    Ok(id)
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text)
}

/// The name after `skipped` words, and `count` numbers behind it. Names have quotes since version 8, and blanks in all versions.
fn name_and_numbers(text: &str, skipped: usize, count: usize) -> Option<(String, Vec<&str>)> {
    let words: Vec<&str> = text.split_ascii_whitespace().skip(skipped).collect();
    let (name, numbers) = words.split_at_checked(words.len().checked_sub(count)?)?;
    (!name.is_empty()).then(|| (unquoted(&name.join(" ")).to_owned(), numbers.to_vec()))
}
