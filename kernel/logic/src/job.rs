// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of a job block: nothing in it is trusted.

use colony_fship::layout::{JobBlock, LARGE_PAGE, PROCESSES, Process, SEGMENTS, STACK};

use crate::access::GUARD;
use crate::ensure;

/// The error in a job block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Another version of the contract.
    Version(u32),
    /// This many processes, on a node with so many CPUs.
    Processes(u32, usize),
    /// Memory of so many bytes is no multiple of 2 MiB, or not in the bank.
    Memory(u64),
    /// More segments than there can be, or none.
    Segments(u64),
    /// The segment of this number is outside the memory, overlaps another, or cannot be mapped.
    Segment(usize),
    /// The heap begins outside the memory, or in a segment.
    Heap(u64),
    /// The stack pointer is not in the stack, or not aligned.
    Stack(u64),
    /// The first instruction is in no segment with code.
    Entry(u64),
    /// More groups than there can be.
    Groups(u32),
    /// The map of a process needs more tables than there are.
    Map,
}

impl core::fmt::Display for Wrong {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Version(v) => write!(f, "contract version {v}, not {}", colony_fship::VERSION),
            Self::Processes(n, cpus) => write!(f, "{n} processes on {cpus} CPUs"),
            Self::Memory(bytes) => write!(f, "{bytes:#x} bytes of memory for a process"),
            Self::Segments(n) => write!(f, "{n} segments"),
            Self::Segment(n) => write!(f, "segment {n} cannot be where it is"),
            Self::Heap(at) => write!(f, "heap at {at:#x}"),
            Self::Stack(at) => write!(f, "stack at {at:#x}"),
            Self::Entry(at) => write!(f, "first instruction at {at:#x}"),
            Self::Groups(n) => write!(f, "{n} groups"),
            Self::Map => f.write_str("its map has too many parts"),
        }
    }
}

/// Checks a job block for a node with so many CPUs and so much window.
///
/// # Errors
/// The first thing found wrong.
pub fn check(job: &JobBlock, cpus: usize, window: u64) -> Result<(), Wrong> {
    ensure(job.version == colony_fship::VERSION, Wrong::Version(job.version))?;
    let processes = job.processes_len as usize;
    let possible = (1..=PROCESSES.min(cpus)).contains(&processes);
    ensure(possible, Wrong::Processes(job.processes_len, cpus))?;
    let bank = window / processes as u64;
    job.processes[..processes].iter().try_for_each(|process| check_process(process, bank))
}

/// Checks a process for a bank of so many bytes.
///
/// # Errors
/// The first thing found wrong.
pub fn check_process(process: &Process, bank: u64) -> Result<(), Wrong> {
    use colony_fship::layout::{EXECUTE, READ, Segment, WRITE};
    let memory = process.memory;
    let fits = (LARGE_PAGE + STACK + LARGE_PAGE..=bank).contains(&memory);
    ensure(fits && memory.is_multiple_of(LARGE_PAGE), Wrong::Memory(memory))?;
    let stack_from = memory - STACK;
    let len = process.segments_len as usize;
    ensure((1..=SEGMENTS).contains(&len), Wrong::Segments(process.segments_len))?;
    let mut end = LARGE_PAGE;
    for (n, s) in process.segments[..len].iter().enumerate() {
        let past = s.address.checked_add(s.length).ok_or(Wrong::Segment(n))?;
        let can_be = s.flags != 0 && s.flags & !(READ | WRITE | EXECUTE) == 0;
        ensure(can_be && end <= s.address && past <= stack_from, Wrong::Segment(n))?;
        end = past;
    }
    ensure((end..=stack_from).contains(&process.heap), Wrong::Heap(process.heap))?;
    let in_stack = (stack_from + GUARD..memory).contains(&process.stack);
    ensure(in_stack && process.stack.is_multiple_of(16), Wrong::Stack(process.stack))?;
    let code = |s: &&Segment| s.flags & EXECUTE != 0;
    let inside = |s: &Segment| (s.address..s.address.saturating_add(s.length)).contains(&process.entry);
    ensure(process.segments[..len].iter().filter(code).any(inside), Wrong::Entry(process.entry))?;
    ensure(process.groups_len as usize <= process.groups.len(), Wrong::Groups(process.groups_len))
}

#[cfg(test)]
mod tests {
    use colony_fship::layout::{EXECUTE, Personality, READ, WRITE};
    use proptest::prelude::*;
    use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

    use super::*;
    use crate::testing::{BANK, process};

    fn good() -> JobBlock {
        let mut job = JobBlock {
            version: colony_fship::VERSION,
            processes_len: 1,
            realtime_ns: 0,
            random: [0; 4],
            personality: Personality::default(),
            processes: [Process::default(); PROCESSES],
        };
        job.processes[0] = process(&[(0x40_0000, 0x1000, READ | EXECUTE), (0x40_2000, 0x1000, READ | WRITE)]);
        job
    }

    #[test]
    fn each_error_in_a_job_block_is_named() {
        let wrong = |change: fn(&mut JobBlock)| {
            let mut job = good();
            change(&mut job);
            check(&job, 2, BANK)
        };
        assert_eq!(wrong(|_| ()), Ok(()));
        assert_eq!(wrong(|j| j.version = 7), Err(Wrong::Version(7)));
        assert_eq!(wrong(|j| j.processes_len = 0), Err(Wrong::Processes(0, 2)));
        assert_eq!(wrong(|j| j.processes_len = 3), Err(Wrong::Processes(3, 2)));
        assert_eq!(wrong(|j| j.processes[0].memory *= 2), Err(Wrong::Memory(2 * BANK)));
        assert_eq!(wrong(|j| j.processes[0].memory -= 4096), Err(Wrong::Memory(BANK - 4096)));
        assert_eq!(wrong(|j| j.processes[0].segments_len = 17), Err(Wrong::Segments(17)));
        assert_eq!(wrong(|j| j.processes[0].segments[0].address = 0x1000), Err(Wrong::Segment(0)));
        assert_eq!(wrong(|j| j.processes[0].segments[1].address = 0x40_0800), Err(Wrong::Segment(1)));
        assert_eq!(wrong(|j| j.processes[0].segments[1].length = u64::MAX), Err(Wrong::Segment(1)));
        assert_eq!(wrong(|j| j.processes[0].heap = 0x40_0000), Err(Wrong::Heap(0x40_0000)));
        assert_eq!(wrong(|j| j.processes[0].stack = BANK), Err(Wrong::Stack(BANK)));
        assert_eq!(wrong(|j| j.processes[0].stack = BANK - STACK), Err(Wrong::Stack(BANK - STACK)));
        assert_eq!(wrong(|j| j.processes[0].stack -= 8), Err(Wrong::Stack(BANK - 72)));
        assert_eq!(wrong(|j| j.processes[0].entry = 0x40_2000), Err(Wrong::Entry(0x40_2000)));
        assert_eq!(wrong(|j| j.processes[0].groups_len = 33), Err(Wrong::Groups(33)));
        assert_eq!(check(&good(), 1, BANK / 2), Err(Wrong::Memory(BANK)));
    }

    proptest! {
        /// A block with any bytes changed is refused, or describes a process that fits.
        #[test]
        fn damage_is_refused_or_harmless(changes in prop::collection::vec((0..size_of::<JobBlock>(), any::<u8>()), 1..20)) {
            let mut bytes = good().as_bytes().to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            let mut job = JobBlock::new_zeroed();
            job.as_mut_bytes().copy_from_slice(&bytes);
            if check(&job, 2, BANK).is_ok() {
                for process in &job.processes[..job.processes_len as usize] {
                    let access = crate::access::Access::new(process, BANK);
                    prop_assert!(access.end() <= BANK);
                    prop_assert!(access.parts().iter().all(|p| p.first >= LARGE_PAGE && p.end <= access.end()));
                    prop_assert!(access.holds(process.entry, 1, false));
                }
            }
            prop_assert!(JobBlock::read_from_bytes(&bytes).is_ok());
        }
    }
}
