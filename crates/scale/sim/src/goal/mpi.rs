// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of MPI calls by liballprof, LogGOPSim's tracer, as a schedule. Each rank has a file, and each call a line: its name, the instant
//! at which it began, its arguments, and the instant at which it ended, in microseconds.
//!
//! ```text
//! MPI_Init:-:140733:140734:1000
//! MPI_Send:1200:93824:100:1,8,8:1:7:91,0,4:1210        100 elements of 8 bytes to rank 1 with tag 7; rank 0 of 4
//! MPI_Finalize:1500:1501
//! ```
//!
//! The time between two calls is computation. A collective becomes the messages of the algorithm that the simulator uses for it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::fault::BuildError;
use super::lower::{Writer, plan};
use super::schedule::{ANY, Kind, Schedule};
use crate::level::op::Op;
use crate::machine::Machine;
use crate::program::{Operation, Program};
use crate::rng::Key;

/// Tags of collectives begin here; those of MPI programs are smaller.
const COLLECTIVE_TAGS: u32 = 1 << 31;

/// Calls that exchange nothing. Their time is computation.
const LOCAL: [&str; 12] = [
    "MPI_Comm_rank",
    "MPI_Comm_size",
    "MPI_Get_count",
    "MPI_Get_processor_name",
    "MPI_Initialized",
    "MPI_Finalized",
    "MPI_Wtime",
    "MPI_Wtick",
    "MPI_Type_commit",
    "MPI_Type_size",
    "MPI_Type_contiguous",
    "MPI_Type_free",
];

/// The calls that are read, for an error.
const KNOWN: &str = "Send, Ssend, Rsend, Recv, Isend, Irecv, Wait, Waitall, Sendrecv, Barrier, Bcast, Reduce, Allreduce, Allgather, \
                     Alltoall";

/// Traces of MPI calls that make no schedule.
#[derive(Debug, thiserror::Error)]
pub enum MpiError {
    /// A file cannot be read.
    #[error("cannot read the trace of MPI calls {file}: {error}")]
    Io {
        /// Its name.
        file: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The folder does not have the files of all ranks.
    #[error("{folder}: {fault}")]
    Folder {
        /// Its name.
        folder: String,
        /// What is missing.
        fault: String,
    },
    /// A line that makes no schedule.
    #[error("{file}:{line}: {fault}")]
    Line {
        /// The file's name.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The call, and the remedy.
        fault: String,
    },
}

/// Reads the traces of all ranks in `folder`: files whose name has `rank-` and the number of the rank.
pub(super) fn read_folder(folder: &Path) -> Result<Schedule, MpiError> {
    let name = folder.display().to_string();
    let io = |error| MpiError::Io { file: name.clone(), error };
    let missing = |fault: String| MpiError::Folder { folder: name.clone(), fault };
    let mut files: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let Some(rank) = path.file_name().and_then(|name| rank_of(name.to_str()?)) else { continue };
        if let Some(other) = files.insert(rank, path) {
            return Err(missing(format!(
                "rank {rank} has two files, one of them {}; remove one",
                other.display()
            )));
        }
    }
    let ranks = files.len() as u32;
    match (0..ranks).find(|rank| !files.contains_key(rank)) {
        _ if ranks == 0 => Err(missing(
            "it has no files of liballprof (`pmpi-trace-rank-0.txt`, …); name the folder with the files of all ranks".into(),
        )),
        Some(rank) => Err(missing(format!("the file of rank {rank} is missing; copy the files of all ranks"))),
        None => Traces::new(ranks).read(files.into_values().collect()),
    }
}

/// The number in `pmpi-trace-rank-03.txt`.
fn rank_of(name: &str) -> Option<u32> {
    let (_, number) = name.strip_suffix(".txt")?.rsplit_once("rank-")?;
    number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse().ok())?
}

/// A call as it stands in a line.
struct Call<'a> {
    name: &'a str,
    /// `None` for `MPI_Init`, which has no clock yet.
    start_ns: Option<u64>,
    arguments: Vec<&'a str>,
    end_ns: u64,
}

impl<'a> Call<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields: Vec<&str> = line.split(':').collect();
        let (end, name) = (fields.pop()?, *fields.first()?);
        let start = *fields.get(1)?;
        let start_ns = if start == "-" { None } else { Some(nanoseconds(start)?) };
        Some(Self { name, start_ns, arguments: fields.split_off(2), end_ns: nanoseconds(end)? })
    }

    fn number(&self, at: usize) -> Result<i64, String> {
        let text = self.arguments.get(at).copied().unwrap_or_default();
        text.parse()
            .map_err(|_| format!("argument {} of {} must be a number and is `{text}`", at + 1, self.name))
    }

    /// Bytes of the data whose count and type begin at argument `at`; a type is `name,size,extent`.
    fn bytes(&self, at: usize) -> Result<u64, String> {
        let kind = self.arguments.get(at + 1).copied().unwrap_or_default();
        let size = kind.split(',').nth(1).and_then(|size| size.parse::<u64>().ok());
        let count = u64::try_from(self.number(at)?).ok();
        count.zip(size).and_then(|(count, size)| count.checked_mul(size)).ok_or_else(|| {
            format!(
                "arguments {} and {} of {} must be a count and a type `name,size,extent`",
                at + 1,
                at + 2,
                self.name
            )
        })
    }
}

/// `1200` or `1200.25` microseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part.parse().ok()?)
}

struct Traces {
    ranks: u32,
    machine: Machine,
    writer: Writer,
    /// The messages of collectives that were planned before.
    plans: HashMap<(Operation, u64), Vec<Op>>,
    /// Open requests of the rank, by the address that the program keeps them at.
    requests: HashMap<u64, u32>,
    rank: u32,
    /// End of the last call.
    last_ns: Option<u64>,
    has_ended: bool,
    /// The line of each operation of each rank.
    lines: Vec<Vec<u64>>,
}

impl Traces {
    fn new(ranks: u32) -> Self {
        let machine = Machine::loggopsim();
        let writer = Writer::new(ranks, machine.loggops.eager_bytes, Key::new(0));
        let (plans, requests, lines) = Default::default();
        Self { ranks, machine, writer, plans, requests, rank: 0, last_ns: None, has_ended: false, lines }
    }

    fn read(mut self, files: Vec<PathBuf>) -> Result<Schedule, MpiError> {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        for (rank, name) in (0..self.ranks).zip(&names) {
            self.file(rank, name)?;
        }
        let lines = self.lines;
        self.writer.builder.finish().map_err(|e| {
            let line = lines.get(e.rank as usize).and_then(|lines| lines.get(e.operation as usize));
            let file = names.get(e.rank as usize).cloned().unwrap_or_default();
            MpiError::Line { file, line: line.copied().unwrap_or(0), fault: e.fault.to_string() }
        })
    }

    fn file(&mut self, rank: u32, name: &str) -> Result<(), MpiError> {
        let io = |error| MpiError::Io { file: name.into(), error };
        let wrong = |line, fault| MpiError::Line { file: name.into(), line, fault };
        (self.rank, self.last_ns, self.has_ended) = (rank, None, false);
        (self.writer.tag, self.writer.rank) = (COLLECTIVE_TAGS, rank);
        self.writer.after.clear();
        self.requests.clear();
        self.lines.push(Vec::new());
        let (mut line, mut number) = (String::new(), 0);
        let mut input = BufReader::new(File::open(name).map_err(io)?);
        while {
            line.clear();
            input.read_line(&mut line).map_err(io)? > 0
        } {
            number += 1;
            let text = line.trim();
            if text.is_empty() || text.starts_with('#') || self.has_ended {
                continue;
            }
            let shown = || text.chars().take(60).collect::<String>();
            let call = Call::parse(text).ok_or_else(|| {
                wrong(number, format!("expected `MPI_Name:begin:arguments:end`, found `{}`", shown()))
            })?;
            self.call(&call).map_err(|fault| wrong(number, fault))?;
            let all = self.writer.builder.next_operation() as usize;
            self.lines.last_mut().into_iter().for_each(|lines| lines.resize(all, number));
        }
        if !self.has_ended {
            return Err(wrong(
                number,
                "the trace ends before MPI_Finalize; trace a run that ends by itself".into(),
            ));
        }
        self.writer.builder.next_rank().map_err(|e| wrong(number, e.fault.to_string()))
    }

    fn call(&mut self, call: &Call<'_>) -> Result<(), String> {
        if LOCAL.contains(&call.name) {
            return Ok(());
        }
        let (Some(start_ns), false) = (call.start_ns, matches!(call.name, "MPI_Init" | "MPI_Init_thread"))
        else {
            self.last_ns = Some(call.end_ns);
            return Ok(());
        };
        let last_ns = self.last_ns.ok_or_else(|| format!("{} comes before MPI_Init", call.name))?;
        let work_ns = start_ns.checked_sub(last_ns).ok_or_else(|| {
            format!("{} begins before the call above has ended; is the file that of one thread?", call.name)
        })?;
        if work_ns > 0 {
            self.writer.compute(work_ns).map_err(|e| e.fault.to_string())?;
        }
        self.last_ns = Some(call.end_ns);
        match call.name {
            "MPI_Finalize" => {
                self.has_ended = true;
                Ok(())
            }
            "MPI_Send" | "MPI_Ssend" | "MPI_Rsend" | "MPI_Isend" => self.message(call, Kind::Send, 1),
            "MPI_Recv" | "MPI_Irecv" => self.message(call, Kind::Recv, 1),
            "MPI_Sendrecv" => {
                let before = self.writer.after.clone();
                self.message(call, Kind::Send, 1)?;
                let mut both = std::mem::replace(&mut self.writer.after, before);
                self.message(call, Kind::Recv, 6)?;
                both.append(&mut self.writer.after);
                both.sort_unstable();
                both.dedup();
                self.writer.after = both;
                Ok(())
            }
            "MPI_Wait" => {
                let request = self.requests.remove(&(call.number(0)?.cast_unsigned()));
                self.wait(request)
            }
            "MPI_Waitall" => self.wait_for_all(call),
            _ => self.collective(call),
        }
    }

    /// A message of which count, type, rank and tag begin at argument `at`.
    fn message(&mut self, call: &Call<'_>, kind: Kind, at: usize) -> Result<(), String> {
        let (bytes, peer, tag) = (call.bytes(at)?, call.number(at + 2)?, call.number(at + 3)?);
        let communicator = if call.name == "MPI_Sendrecv" { 10 } else { 5 };
        self.check_communicator(call, communicator)?;
        let peer = match (peer, kind) {
            (-1, Kind::Recv) => ANY,
            // no process: nothing is sent
            (..0, _) => return Ok(()),
            _ => u32::try_from(peer).map_err(|_| format!("there is no rank {peer}"))?,
        };
        let tag = match (tag, kind) {
            (-1, Kind::Recv) => ANY,
            _ => u32::try_from(tag)
                .ok()
                .filter(|tag| *tag < COLLECTIVE_TAGS)
                .ok_or_else(|| format!("there is no tag {tag}"))?,
        };
        let number = self.writer.add(kind, bytes, peer, tag).map_err(|e| e.fault.to_string())?;
        if matches!(call.name, "MPI_Isend" | "MPI_Irecv") {
            self.requests.insert(call.number(6)?.cast_unsigned(), number);
            self.writer.after = vec![(number, true)];
        }
        Ok(())
    }

    /// Waits for operations that were begun. A request that is not open is one that the program has waited for.
    fn wait(&mut self, operations: impl IntoIterator<Item = u32>) -> Result<(), String> {
        let before = self.writer.after.len();
        self.writer.after.extend(operations.into_iter().map(|on| (on, false)));
        match self.writer.after.len() > before {
            true => self.writer.compute(0).map_err(|e| e.fault.to_string()),
            false => Ok(()),
        }
    }

    fn wait_for_all(&mut self, call: &Call<'_>) -> Result<(), String> {
        let (count, first) = (call.number(0)?.cast_unsigned(), call.number(1)?.cast_unsigned());
        // a request is a pointer in Open MPI, and a number of 4 bytes in MPICH
        let address = |size: u64| (0..count).map(move |i| first.wrapping_add(i.wrapping_mul(size)));
        if count > self.requests.len() as u64 * 64 + 1024 {
            return Err(format!(
                "MPI_Waitall waits for {count} requests, and {} are open",
                self.requests.len()
            ));
        }
        let open = |size: u64| address(size).filter(|at| self.requests.contains_key(at)).count();
        let size = if open(4) > open(8) { 4 } else { 8 };
        let operations: Vec<u32> = address(size).filter_map(|at| self.requests.remove(&at)).collect();
        self.wait(operations)
    }

    fn collective(&mut self, call: &Call<'_>) -> Result<(), String> {
        let (operation, bytes, root, communicator) = match call.name {
            "MPI_Barrier" => (Some(Operation::Barrier), 0, 0, 0),
            "MPI_Bcast" => (Some(Operation::Bcast), call.bytes(1)?, call.number(3)?, 4),
            "MPI_Reduce" => (None, call.bytes(2)?, call.number(5)?, 6),
            "MPI_Allreduce" => (Some(Operation::Allreduce), call.bytes(2)?, 0, 5),
            "MPI_Allgather" => (Some(Operation::Allgather), call.bytes(1)?, 0, 6),
            "MPI_Alltoall" => (Some(Operation::Alltoall), call.bytes(1)?, 0, 6),
            name => {
                return Err(format!("`{name}` is a call that this version does not read; it reads {KNOWN}"));
            }
        };
        if !self.check_communicator(call, communicator)? || self.ranks == 1 {
            return Ok(());
        }
        let root = u32::try_from(root)
            .ok()
            .filter(|root| *root < self.ranks)
            .ok_or_else(|| format!("there is no rank {root}"))?;
        (self.writer.rank, self.writer.shift) = ((self.rank + self.ranks - root) % self.ranks, root);
        let done = match operation {
            Some(operation) => self.planned(operation, bytes),
            None => self.reduce(bytes).map_err(|e| e.fault.to_string()),
        };
        (self.writer.rank, self.writer.shift) = (self.rank, 0);
        done
    }

    fn planned(&mut self, operation: Operation, bytes: u64) -> Result<(), String> {
        let ops = match self.plans.entry((operation, bytes)) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let program = Program::collective(operation, bytes, 1);
                new.insert(plan(&program, &self.machine, self.ranks).map_err(|e| e.to_string())?.body)
            }
        };
        self.writer.body(ops, self.ranks).map_err(|e| e.fault.to_string())
    }

    /// A binomial tree to rank 0: a rank receives from those below it, the nearest first, and sends to the one above it.
    fn reduce(&mut self, bytes: u64) -> Result<(), BuildError> {
        self.writer.tag += 1;
        let (rank, tag) = (self.writer.rank, self.writer.tag);
        let mut bit = 1;
        while bit < self.ranks && rank & bit == 0 {
            if rank | bit < self.ranks {
                self.writer.add(Kind::Recv, bytes, rank | bit, tag)?;
            }
            bit <<= 1;
        }
        if rank > 0 {
            self.writer.add(Kind::Send, bytes, rank & !bit, tag)?;
        }
        Ok(())
    }

    /// Checks that the communicator `name,rank,size` is one of all ranks. Returns false if it has this rank only.
    fn check_communicator(&self, call: &Call<'_>, at: usize) -> Result<bool, String> {
        let text = call.arguments.get(at).copied().unwrap_or_default();
        let mut numbers = text.split(',').skip(1).map(|n| n.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(0), Some(1)) if self.ranks > 1 => Ok(false),
            (Some(rank), Some(size)) if (rank, size) == (self.rank, self.ranks) => Ok(true),
            (Some(rank), Some(size)) => Err(format!(
                "{} uses a communicator in which this is rank {rank} of {size}, and it is rank {} of {}; only communicators of all ranks in \
                 their order are read",
                call.name, self.rank, self.ranks
            )),
            _ => Err(format!(
                "argument {} of {} must be a communicator `name,rank,size` and is `{text}`",
                at + 1,
                call.name
            )),
        }
    }
}
