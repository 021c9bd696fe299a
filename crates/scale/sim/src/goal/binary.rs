// SPDX-License-Identifier: MIT OR Apache-2.0
//! GOAL in binary, as LogGOPSim's `txt2bin` writes it. Little-endian, nothing aligned:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | 4223; all offsets below count from the end of this number |
//! | 4, 1, 1 | ranks, highest CPU number, highest interface number |
//! | 16 a rank | where its part begins and ends |
//!
//! and each rank's part:
//!
//! | bytes | what |
//! |---|---|
//! | 4, 4 | operations, those of them that require nothing |
//! | 4 each | numbers of those that require nothing |
//! | 39 an operation | requirements (4), 1 send, 2 recv, 3 calc (1), peer (4), size (8), tag (4), CPU (1), interface (1), how many require it (4) and the first of them in the list below (4), the same for those that require its start (4, 4) |
//! | 4 each | the list: numbers of operations |

use std::io::{BufRead, Write};

use super::build::Builder;
use super::schedule::{Kind, Operation, Requirement, Schedule};
use super::{BuildError, GoalError};
use crate::Layout;

/// The first word of a file.
pub(super) const MAGIC: u64 = 4223;
const HEAD: u64 = 14;
pub(super) const OPERATION: u64 = 39;

/// Reads a schedule in binary form; errors name it `name`. It needs no more memory than a rank's part of
/// the file and the schedule.
///
/// # Errors
/// [`GoalError::Binary`] with the byte, [`GoalError::Io`].
pub fn read_binary(from: impl BufRead, name: &str) -> Result<Schedule, GoalError> {
    let mut bytes = Bytes { from, name, at: 0 };
    let parts = head(&mut bytes)?;
    let mut builder = Builder::new(parts.len() as u32);
    let operations_at = all_parts(&mut bytes, &parts, &mut builder)?;
    builder.finish().map_err(|e| {
        let at = operations_at.get(e.rank as usize).copied().unwrap_or(0);
        bytes.build(&e, at)
    })
}

/// Begin and end of each rank's part in a file, from byte 8 on.
pub(super) fn table(from: impl BufRead, name: &str) -> Result<Vec<(u64, u64)>, GoalError> {
    head(&mut Bytes { from, name, at: 0 })
}

/// Reads a rank from its part of a file.
pub(super) fn rank(part: &[u8], builder: &mut Builder) -> Option<()> {
    plain_rank(part, builder).or_else(|| {
        all_parts(&mut Bytes { from: part, name: "", at: 8 }, &[(0, part.len() as u64)], builder).ok()?;
        Some(())
    })
}

/// The same where the part is as `txt2bin` writes it; else nothing is added.
fn plain_rank(part: &[u8], builder: &mut Builder) -> Option<()> {
    let (n, rest) = part.split_first_chunk()?;
    let (free, rest) = rest.split_first_chunk()?;
    let (_, rest) = rest.split_at_checked(4 * u32::from_le_bytes(*free) as usize)?;
    let (operations, list) = rest.split_at_checked(OPERATION as usize * u32::from_le_bytes(*n) as usize)?;
    match (operations.as_chunks(), list.as_chunks()) {
        ((operations, []), (list, [])) => builder.add_rank(operations, list),
        _ => None,
    }
}

fn head<R: BufRead>(bytes: &mut Bytes<'_, R>) -> Result<Vec<(u64, u64)>, GoalError> {
    let magic = u64::from_le_bytes(bytes.array("the number 4223")?);
    match magic {
        MAGIC => {}
        2342 => return Err(bytes.bad(0, "LogGOPSim --save-mem has used this file up; make it again")),
        _ => return Err(bytes.bad(0, "this is no binary GOAL: it does not begin with the number 4223")),
    }
    let ranks = bytes.u32("the number of ranks")?;
    let _highest: [u8; 2] = bytes.array("the highest CPU and interface")?;
    if ranks == 0 || u64::from(ranks) > Layout::MAX_RANKS {
        let most = Layout::MAX_RANKS;
        return Err(bytes.bad(8, format!("it has {ranks} ranks; expected 1 to {most}")));
    }
    parts(bytes, ranks)
}

/// Reads ranks; says at which byte the operations of each begin.
fn all_parts<R: BufRead>(
    bytes: &mut Bytes<'_, R>,
    parts: &[(u64, u64)],
    builder: &mut Builder,
) -> Result<Vec<u64>, GoalError> {
    let mut operations_at = Vec::new();
    for &(begin, end) in parts {
        bytes.skip_to(begin + 8)?;
        let at = part(bytes, end - begin, builder)?;
        operations_at.push(at);
        builder.next_rank().map_err(|e| bytes.build(&e, at))?;
    }
    Ok(operations_at)
}

/// Begin and end of each rank's part.
fn parts<R: BufRead>(bytes: &mut Bytes<'_, R>, ranks: u32) -> Result<Vec<(u64, u64)>, GoalError> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut least = 6 + 16 * u64::from(ranks);
    for _ in 0..ranks {
        let at = bytes.at;
        let begin = u64::from_le_bytes(bytes.array("where a rank begins")?);
        let end = u64::from_le_bytes(bytes.array("where a rank ends")?);
        if begin < least || end < begin || end - begin < 8 || end > u64::MAX / 2 {
            let fault = format!(
                "a rank's part from {begin} to {end}; expected one of 8 bytes or more from {least} on"
            );
            return Err(bytes.bad(at, fault));
        }
        least = end;
        parts.push((begin, end));
    }
    Ok(parts)
}

/// Reads the part of a rank of `size` bytes; says at which byte its operations begin.
fn part<R: BufRead>(bytes: &mut Bytes<'_, R>, size: u64, builder: &mut Builder) -> Result<u64, GoalError> {
    let begin = bytes.at;
    let (n, free) = (bytes.u32("the number of operations")?, bytes.u32("the number that require nothing")?);
    let list = size.checked_sub(8 + 4 * u64::from(free) + OPERATION * u64::from(n));
    let Some(list) = list.filter(|_| free <= n) else {
        let fault = format!("{n} operations, {free} of which require nothing, do not fit into {size} bytes");
        return Err(bytes.bad(begin, fault));
    };
    // which are free is plain from the requirements too
    bytes.skip_to(begin + 8 + 4 * u64::from(free))?;
    let operations_at = bytes.at;
    let mut lists = Vec::new();
    for number in 0..n {
        let at = bytes.at;
        let record: [u8; OPERATION as usize] = bytes.array("an operation")?;
        let Record { operation, require, require_start } = Record::new(&record);
        let Some(operation) = operation else {
            return Err(bytes.bad(at + 4, format!("an operation of kind {}; expected 1, 2 or 3", record[4])));
        };
        builder.add(operation).map_err(|e| bytes.bad(at, e.fault.to_string()))?;
        for ((count, first), start_only) in [(require, false), (require_start, true)] {
            if count > 0 {
                lists.push((u64::from(first), u64::from(count), number, start_only));
            }
        }
    }
    // txt2bin writes them one after the other; so a small file can ask for no large schedule
    lists.sort_unstable();
    let mut at = 0;
    for (first, count, on, start_only) in lists {
        let record = operations_at + OPERATION * u64::from(on);
        if first < at || (first + count) * 4 > list {
            let fault = format!("its list of {count} operations from {first} on is not its own, or too long");
            return Err(bytes.bad(record, fault));
        }
        at = first + count;
        bytes.skip_to(operations_at + OPERATION * u64::from(n) + 4 * first)?;
        for _ in 0..count {
            let operation = bytes.u32("an operation that requires another")?;
            let added = builder.require(operation, on, start_only);
            added.map_err(|e| bytes.bad(bytes.at - 4, e.fault.to_string()))?;
        }
    }
    Ok(operations_at)
}

/// An operation as it is in the file.
pub(super) struct Record {
    pub(super) operation: Option<Operation>,
    /// The number of operations that require it, and the place of the first of them in the list.
    pub(super) require: (u32, u32),
    /// The same for those that require its start.
    pub(super) require_start: (u32, u32),
}

impl Record {
    #[inline]
    pub(super) fn new(b: &[u8; OPERATION as usize]) -> Self {
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let kind = match b[4] {
            1 => Some(Kind::Send),
            2 => Some(Kind::Recv),
            3 => Some(Kind::Calc),
            _ => None,
        };
        let size = u64::from(u32_at(9)) | u64::from(u32_at(13)) << 32;
        let (peer, tag, cpu, nic) = (u32_at(5), u32_at(17), b[21], b[22]);
        let operation = kind.map(|kind| match kind {
            Kind::Calc => Operation { kind, size, peer: 0, tag: 0, cpu, nic },
            _ => Operation { kind, size, peer, tag, cpu, nic },
        });
        Self { operation, require: (u32_at(23), u32_at(27)), require_start: (u32_at(31), u32_at(35)) }
    }
}

struct Bytes<'a, R> {
    from: R,
    name: &'a str,
    at: u64,
}

impl<R: BufRead> Bytes<'_, R> {
    fn bad(&self, offset: u64, fault: impl Into<String>) -> GoalError {
        GoalError::Binary { file: self.name.into(), offset, fault: fault.into() }
    }

    fn build(&self, e: &BuildError, operations_at: u64) -> GoalError {
        self.bad(operations_at + OPERATION * u64::from(e.operation), e.fault.to_string())
    }

    fn failed(&self, error: std::io::Error, expected: &str) -> GoalError {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.bad(self.at, format!("the file ends here; expected {expected}"))
            }
            _ => GoalError::Io { file: self.name.into(), error },
        }
    }

    fn array<const N: usize>(&mut self, expected: &str) -> Result<[u8; N], GoalError> {
        let mut a = [0; N];
        self.from.read_exact(&mut a).map_err(|e| self.failed(e, expected))?;
        self.at += N as u64;
        Ok(a)
    }

    fn u32(&mut self, expected: &str) -> Result<u32, GoalError> {
        Ok(u32::from_le_bytes(self.array(expected)?))
    }

    /// Goes forward to a byte of the file.
    fn skip_to(&mut self, offset: u64) -> Result<(), GoalError> {
        while self.at < offset {
            let there = match self.from.fill_buf() {
                Ok(there) => there.len() as u64,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(GoalError::Io { file: self.name.into(), error }),
            };
            if there == 0 {
                let fault = format!("the file ends here; expected more at byte {offset}");
                return Err(self.bad(self.at, fault));
            }
            let skip = there.min(offset - self.at);
            self.from.consume(skip as usize);
            self.at += skip;
        }
        Ok(())
    }
}

/// Writes `schedule` in binary form for LogGOPSim.
///
/// # Errors
/// The errors of `to`.
pub fn write_binary(schedule: &Schedule, mut to: impl Write) -> std::io::Result<()> {
    let ranks = schedule.ranks();
    let (cpus, nics) = schedule.cpus_and_nics();
    to.write_all(&MAGIC.to_le_bytes())?;
    to.write_all(&ranks.to_le_bytes())?;
    to.write_all(&[(cpus - 1) as u8, (nics - 1) as u8])?;
    let mut at = HEAD - 8 + 16 * u64::from(ranks);
    for rank in 0..ranks {
        let range = schedule.range(rank);
        let free = schedule.operations[range.clone()].iter().filter(|o| o.is_free()).count();
        let edges: usize = range.clone().map(|i| schedule.edges(i).len()).sum();
        to.write_all(&at.to_le_bytes())?;
        at += 8 + 4 * (free + edges) as u64 + OPERATION * range.len() as u64;
        to.write_all(&at.to_le_bytes())?;
    }
    (0..ranks).try_for_each(|rank| write_rank(schedule, rank, &mut to))
}

fn write_rank(schedule: &Schedule, rank: u32, to: &mut impl Write) -> std::io::Result<()> {
    let range = schedule.range(rank);
    let packed = &schedule.operations[range.clone()];
    let free: Vec<u32> = (0..packed.len() as u32).filter(|&i| packed[i as usize].is_free()).collect();
    to.write_all(&(packed.len() as u32).to_le_bytes())?;
    to.write_all(&(free.len() as u32).to_le_bytes())?;
    for number in free {
        to.write_all(&number.to_le_bytes())?;
    }
    let all: Vec<Requirement> = schedule.requirements(rank).collect();
    let mut waits = vec![0u32; packed.len()];
    all.iter().for_each(|r| waits[r.operation as usize] += 1);
    let mut listed = 0;
    for (number, o) in schedule.of_rank(rank).enumerate() {
        let kind = match o.kind {
            Kind::Send => 1u8,
            Kind::Recv => 2,
            Kind::Calc => 3,
        };
        to.write_all(&waits[number].to_le_bytes())?;
        to.write_all(&[kind])?;
        to.write_all(&o.peer.to_le_bytes())?;
        to.write_all(&o.size.to_le_bytes())?;
        to.write_all(&o.tag.to_le_bytes())?;
        to.write_all(&[o.cpu, o.nic])?;
        let edges = schedule.edges(range.start + number);
        // the edges of an operation are sorted: those that need it done, then those that need its start
        let starts = edges.iter().filter(|e| e.start_only()).count();
        for count in [edges.len() - starts, starts] {
            to.write_all(&(count as u32).to_le_bytes())?;
            to.write_all(&(listed as u32).to_le_bytes())?;
            listed += count;
        }
    }
    all.iter().try_for_each(|r| to.write_all(&r.operation.to_le_bytes()))
}
