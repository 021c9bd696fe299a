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

mod assumed;
mod call;
mod error;
mod lines;
mod named;
mod order;
mod requests;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use self::assumed::Assumed;
use self::call::Call;
pub use self::error::MpiError;
use self::lines::Lines;
use self::named::{COLLECTIVE_TAGS, COLLECTIVES, KNOWN, LOCAL, of_collective};
use self::order::{Collective, Collectives};
use self::requests::{Completed, Message, Requests};
use super::fault::BuildError;
use super::lower::{Writer, plan};
use super::schedule::{ANY, Kind, Schedule};
use crate::level::op::Op;
use crate::machine::Machine;
use crate::program::{Operation, Program};
use crate::rng::Key;

/// Bytes that each rank contributes to the agreement on a new communicator.
const COMMUNICATOR_BYTES: u64 = 8;

/// Reads the traces of all ranks in `folder`: files whose name has `rank-` and the number of the rank.
pub(super) fn read_folder(folder: &Path) -> Result<Schedule, MpiError> {
    let name = folder.display().to_string();
    let io = |error| MpiError::Io { file: name.clone(), error };
    let missing = |fault: String| MpiError::Folder { folder: name.clone(), fault };
    let mut files: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(rank) = rank_of(name) else {
            if let Some((_, "gz" | "zst" | "xz" | "bz2")) =
                name.rsplit_once('.').filter(|(name, _)| rank_of(name).is_some())
            {
                return Err(missing(format!(
                    "`{name}` is compressed: unpack the files first, as with `gzip -d`"
                )));
            }
            continue;
        };
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

fn of(done: Result<(), BuildError>) -> Result<(), String> {
    done.map_err(|e| e.fault.to_string())
}

struct Traces {
    ranks: u32,
    machine: Machine,
    writer: Writer,
    /// The messages of collectives that were planned before.
    plans: HashMap<(Operation, u64), Vec<Op>>,
    /// Requests of the rank.
    requests: Requests,
    collectives: Collectives,
    rank: u32,
    /// Line of the call.
    line: u64,
    /// End of the last call.
    last_ns: Option<u64>,
    has_ended: bool,
    /// The line of each operation of each rank.
    lines: Vec<Vec<u64>>,
    assumed: Assumed,
}

impl Traces {
    fn new(ranks: u32) -> Self {
        let machine = Machine::loggopsim();
        let writer = Writer::new(ranks, machine.loggops.eager_bytes, Key::new(0));
        Self {
            ranks,
            machine,
            writer,
            plans: HashMap::new(),
            requests: Requests::default(),
            collectives: Collectives::default(),
            rank: 0,
            line: 0,
            last_ns: None,
            has_ended: false,
            lines: Vec::new(),
            assumed: Assumed::default(),
        }
    }

    fn read(mut self, files: Vec<PathBuf>) -> Result<Schedule, MpiError> {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        for (rank, name) in (0..self.ranks).zip(&names) {
            self.file(rank, name)?;
        }
        let lines = self.lines;
        let mut schedule = self.writer.builder.finish().map_err(|e| {
            let line = lines.get(e.rank as usize).and_then(|lines| lines.get(e.operation as usize));
            let (file, line) =
                (names.get(e.rank as usize).cloned().unwrap_or_default(), line.copied().unwrap_or(0));
            let fault = of_collective(&e, &file, line).unwrap_or_else(|| e.fault.to_string());
            MpiError::Line { file, line, fault }
        })?;
        schedule.notes = self.assumed.notes();
        Ok(schedule)
    }

    fn file(&mut self, rank: u32, name: &str) -> Result<(), MpiError> {
        (self.rank, self.last_ns, self.has_ended) = (rank, None, false);
        (self.writer.tag, self.writer.rank) = (COLLECTIVE_TAGS, rank);
        self.writer.after.clear();
        self.collectives.begin(rank, name);
        self.assumed.begin_rank();
        self.lines.push(Vec::new());
        let mut lines = Lines::open(name)?;
        while let Some((number, text)) = lines.next()? {
            if text.is_empty() || text.starts_with('#') || self.has_ended {
                continue;
            }
            let call = Call::parse(text).ok_or_else(|| {
                let shown: String = text.chars().take(60).collect();
                format!("expected `MPI_Name:begin:arguments:end`, found `{shown}`")
            });
            self.line = number;
            let done = call.and_then(|call| self.call(&call));
            done.map_err(|fault| lines.wrong(fault))?;
            let all = self.writer.builder.next_operation() as usize;
            self.lines.last_mut().into_iter().for_each(|of| of.resize(all, number));
        }
        if !self.has_ended {
            return Err(
                lines.wrong("the trace ends before MPI_Finalize; trace a run that ends by itself".into())
            );
        }
        self.writer.builder.next_rank().map_err(|e| lines.wrong(e.fault.to_string()))
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
                for completed in self.requests.end() {
                    self.complete(completed)?;
                }
                self.collectives.end(self.rank)
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
            "MPI_Send_init" | "MPI_Ssend_init" | "MPI_Rsend_init" => self.keep(call, Kind::Send),
            "MPI_Recv_init" => self.keep(call, Kind::Recv),
            "MPI_Start" => self.start(call, &[call.address(0)?]),
            "MPI_Startall" => self.start(call, &self.array(call, 1)?),
            "MPI_Request_free" => {
                self.requests.free(call.address(0)?);
                Ok(())
            }
            "MPI_Wait" | "MPI_Waitall" | "MPI_Waitany" | "MPI_Waitsome" => self.wait(call),
            "MPI_Test" | "MPI_Testall" | "MPI_Testany" | "MPI_Testsome" => self.test(call),
            _ => self.collective(call),
        }
    }

    /// The addresses of an array whose length is the first argument, and whose address is argument `at`.
    fn array(&self, call: &Call<'_>, at: usize) -> Result<Vec<u64>, String> {
        self.requests.addresses(call.name, call.address(0)?, call.address(at)?)
    }

    /// A message of which count, type, rank and tag begin at argument `at`.
    fn message(&mut self, call: &Call<'_>, kind: Kind, at: usize) -> Result<(), String> {
        let communicator = if call.name == "MPI_Sendrecv" { 10 } else { 5 };
        let Some(message) = self.parse_message(call, kind, at, communicator)? else { return Ok(()) };
        if !matches!(call.name, "MPI_Isend" | "MPI_Irecv") {
            return self.add(message).map(|_| ());
        }
        self.begin(message, call.address(6)?)
    }

    /// The message of a call; `None` if it has no process, so that nothing is sent.
    fn parse_message(
        &mut self,
        call: &Call<'_>,
        kind: Kind,
        at: usize,
        communicator: usize,
    ) -> Result<Option<Message>, String> {
        let (bytes, peer, tag) = (call.bytes(at)?, call.number(at + 2)?, call.number(at + 3)?);
        if self.check_communicator(call, communicator)? {
            self.assumed.message_in(call.argument(communicator).split(',').next().unwrap_or_default());
        } else if peer >= 0 {
            return Err(format!(
                "{} sends a message from a rank to itself, in a communicator of one rank, which is not read; leave the call out of the trace",
                call.name
            ));
        }
        let peer = match (peer, kind) {
            (-1, Kind::Recv) => ANY,
            (..0, _) => return Ok(None),
            _ => u32::try_from(peer).map_err(|_| format!("there is no rank {peer}"))?,
        };
        let tag = match (tag, kind) {
            (-1, Kind::Recv) => ANY,
            _ => u32::try_from(tag)
                .ok()
                .filter(|tag| *tag < COLLECTIVE_TAGS)
                .ok_or_else(|| format!("there is no tag {tag}"))?,
        };
        Ok(Some(Message { kind, bytes, peer, tag }))
    }

    fn add(&mut self, m: Message) -> Result<u32, String> {
        self.writer.add(m.kind, m.bytes, m.peer, m.tag).map_err(|e| e.fault.to_string())
    }

    /// Begins a message; the next call waits for its begin only.
    fn begin(&mut self, message: Message, request: u64) -> Result<(), String> {
        let number = self.add(message)?;
        self.writer.after = vec![(number, true)];
        match self.requests.begin(request, number) {
            Some(completed) => self.complete(completed),
            None => Ok(()),
        }
    }

    /// Lets a test wait for the operation that it completed.
    fn complete(&mut self, (test, operation): Completed) -> Result<(), String> {
        self.writer.builder.require(test, operation, false).map_err(|e| e.fault.to_string())
    }

    /// A persistent request, which MPI_Start begins.
    fn keep(&mut self, call: &Call<'_>, kind: Kind) -> Result<(), String> {
        let message = self.parse_message(call, kind, 1, 5)?;
        self.requests.keep(call.address(6)?, message);
        Ok(())
    }

    fn start(&mut self, call: &Call<'_>, addresses: &[u64]) -> Result<(), String> {
        for &at in addresses {
            match self.requests.kept(at) {
                Some(Some(message)) => self.begin(message, at)?,
                Some(None) => {}
                None => {
                    return Err(format!(
                        "{} starts a request at address {at}, where no call above made a persistent one; trace the whole run",
                        call.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Waits for operations that were begun. A request that is not open is one that the program has waited for.
    fn wait(&mut self, call: &Call<'_>) -> Result<(), String> {
        let addresses = if call.name == "MPI_Wait" { vec![call.address(0)?] } else { self.array(call, 1)? };
        let is_any = call.name == "MPI_Waitany";
        if self.requests.has_open(&addresses) {
            self.assumed.waits_for_any += u64::from(is_any);
            self.assumed.waits_for_some += u64::from(call.name == "MPI_Waitsome");
        }
        let ended: Vec<u32> = match is_any {
            true => self.requests.take_oldest(&addresses).into_iter().collect(),
            false => addresses.iter().filter_map(|at| self.requests.take(*at)).collect(),
        };
        if ended.is_empty() {
            return Ok(());
        }
        self.writer.after.extend(ended.into_iter().map(|on| (on, false)));
        self.writer.compute(0).map_err(|e| e.fault.to_string())
    }

    /// Tests requests: an operation without length stands for the test, so that it may wait for what it is found to have completed.
    fn test(&mut self, call: &Call<'_>) -> Result<(), String> {
        let addresses = if call.name == "MPI_Test" { vec![call.address(0)?] } else { self.array(call, 1)? };
        if !self.requests.has_open(&addresses) {
            return Ok(());
        }
        self.assumed.tests += 1;
        let test = self.writer.builder.next_operation();
        self.writer.compute(0).map_err(|e| e.fault.to_string())?;
        self.requests.test(&addresses, test);
        Ok(())
    }

    fn collective(&mut self, call: &Call<'_>) -> Result<(), String> {
        let unknown =
            || format!("`{}` is a call that this version does not read; it reads {KNOWN}", call.name);
        let &(name, communicator, root) =
            COLLECTIVES.iter().find(|c| c.0 == call.name).ok_or_else(unknown)?;
        if !self.check_communicator(call, communicator)? {
            return Ok(());
        }
        let root = root.map_or(Ok(0), |at| call.number(at))?;
        let root = u32::try_from(root)
            .ok()
            .filter(|root| *root < self.ranks)
            .ok_or_else(|| format!("there is no rank {root}"))?;
        let bytes = match name {
            "MPI_Barrier" => Some(0),
            "MPI_Bcast" | "MPI_Allgather" | "MPI_Alltoall" => Some(call.bytes(1)?),
            "MPI_Reduce" | "MPI_Allreduce" | "MPI_Scan" => Some(call.bytes(2)?),
            "MPI_Comm_dup" | "MPI_Comm_create" | "MPI_Comm_split" => Some(COMMUNICATOR_BYTES),
            _ => None,
        };
        self.collectives.next(self.rank, Collective { name, line: self.line, root, bytes })?;
        if self.ranks == 1 {
            return Ok(());
        }
        match bytes {
            Some(bytes) => self.of_equal_parts(name, bytes, root),
            None => self.of_own_parts(call, root),
        }
    }

    /// A collective in which all ranks name the same number of bytes.
    fn of_equal_parts(&mut self, name: &str, bytes: u64, root: u32) -> Result<(), String> {
        let operation = match name {
            "MPI_Barrier" => Some(Operation::Barrier),
            "MPI_Bcast" => Some(Operation::Bcast),
            "MPI_Allreduce" => Some(Operation::Allreduce),
            "MPI_Alltoall" => Some(Operation::Alltoall),
            "MPI_Reduce" | "MPI_Scan" => None,
            _ => Some(Operation::Allgather),
        };
        self.rooted_at(root, |traces| match operation {
            Some(operation) => traces.planned(operation, bytes),
            None if name == "MPI_Scan" => of(tree::scan(&mut traces.writer, traces.ranks, bytes)),
            None => of(tree::to_root(&mut traces.writer, traces.ranks, |_| bytes)),
        })
    }

    /// A collective in which each rank names the bytes of its own part, or those of all ranks.
    fn of_own_parts(&mut self, call: &Call<'_>, root: u32) -> Result<(), String> {
        let (ranks, rank) = (self.ranks, self.rank);
        let is_root = rank == root;
        let part = |all: Vec<u64>| move |rank: u32| all.get(rank as usize).copied().unwrap_or(0);
        // in the root's place, MPI_IN_PLACE may stand for its own part
        let own = |bytes: u64| move |parts: u32| bytes.saturating_mul(parts.into());
        match call.name {
            "MPI_Gather" => {
                let bytes = call.bytes(if is_root { 4 } else { 1 })?;
                self.rooted_at(root, |t| of(tree::to_root(&mut t.writer, ranks, own(bytes))))
            }
            "MPI_Scatter" => {
                let bytes = call.bytes(if is_root { 1 } else { 4 })?;
                self.rooted_at(root, |t| of(tree::from_root(&mut t.writer, ranks, own(bytes))))
            }
            "MPI_Gatherv" if is_root => {
                let parts = part(call.bytes_of_ranks(5, 8, ranks)?);
                of(tree::each_to(&mut self.writer, ranks, root, parts))
            }
            "MPI_Gatherv" => {
                let bytes = call.bytes(1)?;
                of(tree::each_to(&mut self.writer, ranks, root, |_| bytes))
            }
            "MPI_Scatterv" if is_root => {
                let parts = part(call.bytes_of_ranks(2, 5, ranks)?);
                of(tree::each_from(&mut self.writer, ranks, root, parts))
            }
            "MPI_Scatterv" => {
                let bytes = call.bytes(7)?;
                of(tree::each_from(&mut self.writer, ranks, root, |_| bytes))
            }
            "MPI_Allgatherv" => {
                let parts = part(call.bytes_of_ranks(5, 8, ranks)?);
                of(tree::ring(&mut self.writer, ranks, parts))
            }
            "MPI_Alltoallv" => {
                let sent = part(call.bytes_of_ranks(2, 5, ranks)?);
                let received = part(call.bytes_of_ranks(8, 11, ranks)?);
                of(tree::shifts(&mut self.writer, ranks, sent, received))
            }
            _ => {
                let parts = part(call.bytes_of_ranks(3, 4, ranks)?);
                let own = parts(rank);
                of(tree::shifts(&mut self.writer, ranks, parts, |_| own))
            }
        }
    }

    /// Lets `write` write messages in which ranks count from `root`.
    fn rooted_at(
        &mut self,
        root: u32,
        write: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        (self.writer.rank, self.writer.shift) = ((self.rank + self.ranks - root) % self.ranks, root);
        let done = write(self);
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

    /// Checks that the communicator `name,rank,size` is one of all ranks. Returns false if it has this rank only.
    fn check_communicator(&self, call: &Call<'_>, at: usize) -> Result<bool, String> {
        let text = call.argument(at);
        let mut numbers = text.split(',').skip(1).map(|n| n.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(0), Some(1)) if self.ranks > 1 => Ok(false),
            (Some(rank), Some(size)) if (rank, size) == (self.rank, self.ranks) => Ok(true),
            (_, Some(size)) if size > self.ranks => Err(format!(
                "{} uses a communicator of {size} ranks, and there are files of {}; copy the files of all ranks",
                call.name, self.ranks
            )),
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
