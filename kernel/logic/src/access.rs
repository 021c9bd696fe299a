// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access rights of a process, by address.
//!
//! This never changes while a program runs: the map is static (SC06 paper, 3.2). It says what the page tables are made
//! of, and it is what every address of a system call is checked with.

use colony_fship::layout::{EXECUTE, LARGE_PAGE, PAGE, Process, READ, SEGMENTS, STACK, WRITE};

use heapless::Vec;

use crate::{round_down, round_up};

/// Pages of one kind, page by page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// First address.
    pub first: u64,
    /// Address behind the last.
    pub end: u64,
    /// Bits of [`READ`], [`WRITE`], [`EXECUTE`].
    pub flags: u64,
}

/// Bytes at the lower end of the stack that nobody may use: a stack that grows too far ends the program, and not what
/// it has mapped.
pub const GUARD: u64 = 64 << 10;
const PARTS: usize = SEGMENTS + 3;

/// The parts of a process's memory: its segments, what follows them (heap and mappings), the stack, and behind all of
/// these and a gap the zone of reservations (see [`crate::reserve`]).
#[derive(Clone, Debug)]
pub struct Access {
    parts: Vec<Part, PARTS>,
    end: u64,
}

/// Addresses of the zone of reservations of a process with so much memory in a bank of so many bytes; none if they are as
/// large.
pub fn zone(memory: u64, bank: u64) -> core::ops::Range<u64> {
    // whoever writes behind the stack meets nothing
    let first = memory.saturating_add(LARGE_PAGE).min(bank);
    first..bank.min(first.saturating_add(crate::reserve::MOST))
}

impl Access {
    /// Nothing may be done with any address.
    pub const NONE: Self = Self { parts: Vec::new(), end: 0 };

    /// As a process has it whose description was found right (see [`crate::job::check`]), in a bank of so many bytes.
    pub fn new(process: &Process, bank: u64) -> Self {
        let zone = zone(process.memory, bank);
        let mut access = Self { end: zone.end.max(process.memory), ..Self::NONE };
        let heap = Part {
            first: round_up(process.heap, PAGE).unwrap_or(process.memory).min(process.memory),
            end: process.memory.saturating_sub(STACK),
            flags: READ | WRITE,
        };
        let stack = Part { first: heap.end + GUARD, end: process.memory, flags: READ | WRITE };
        let segments = process.segments.iter().take(process.segments_len as usize).map(|s| Part {
            first: round_down(s.address, PAGE),
            end: round_up(s.address.saturating_add(s.length), PAGE).unwrap_or(process.memory),
            flags: s.flags & (READ | WRITE | EXECUTE),
        });
        // what most addresses are in comes first
        let zone = Part { first: zone.start, end: zone.end, flags: READ | WRITE };
        for part in [heap, stack, zone].into_iter().chain(segments).filter(|p| p.first < p.end) {
            match access.parts.first_mut() {
                // data go on as heap
                Some(heap) if part.end == heap.first && part.flags == heap.flags => heap.first = part.first,
                // there is room for all
                _ => drop(access.parts.push(part)),
            }
        }
        access
    }

    /// The parts, in no particular order. Two may share a page, which then has the flags of both.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The address behind the last of the process.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns `true` if all of `length` bytes at `address` may be read, and written if `write`.
    pub fn holds(&self, address: u64, length: u64, write: bool) -> bool {
        let Some(end) = address.checked_add(length) else { return false };
        if address < LARGE_PAGE || end > self.end {
            return false;
        }
        let wanted = if write { WRITE } else { READ | WRITE | EXECUTE };
        let mut at = address;
        while at < end {
            let part = self.parts().iter().find(|p| p.first <= at && at < p.end && p.flags & wanted != 0);
            match part {
                Some(part) => at = part.end,
                None => return false,
            }
        }
        true
    }

    /// The rights to every address from `first` to `end`, if they are the same for all of them.
    pub fn uniform(&self, first: u64, end: u64) -> Option<u64> {
        let mut flags = 0;
        for part in self.parts() {
            if part.first <= first && end <= part.end {
                flags |= part.flags;
            } else if part.first < end && first < part.end {
                return None;
            }
        }
        Some(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BANK, process};

    #[test]
    fn addresses_are_checked_by_their_use() {
        let access = Access::new(
            &process(&[(0x40_0000, 0x1234, READ | EXECUTE), (0x40_3000, 0x800, READ | WRITE)]),
            BANK,
        );
        assert!(access.holds(0x40_0000, 0x2000, false), "to the end of the page");
        assert!(!access.holds(0x40_0000, 0x2001, false), "there is a gap");
        assert!(!access.holds(0x40_0000, 1, true), "code is not written");
        assert!(access.holds(0x40_3000, 0x10_0000, true), "data go on as heap");
        let stack = access.end() - STACK;
        assert!(access.holds(stack - 8, 8, true) && access.holds(stack + GUARD, STACK - GUARD, true));
        assert!(!access.holds(stack, 1, false) && !access.holds(stack + GUARD - 1, 1, false), "the guard");
        assert!(!access.holds(0, 1, false) && !access.holds(LARGE_PAGE - 1, 2, false), "null");
        assert!(!access.holds(access.end() - 1, 2, true) && !access.holds(u64::MAX, 2, false));
    }

    #[test]
    fn a_page_of_two_segments_has_the_flags_of_both() {
        let access =
            Access::new(&process(&[(0x40_0000, 0x800, READ), (0x40_0800, 0x100, READ | WRITE)]), BANK);
        assert_eq!(access.uniform(0x40_0000, 0x40_1000), Some(READ | WRITE));
    }

    #[test]
    fn reservations_lie_behind_the_memory_and_a_gap() {
        let access = Access::new(&process(&[(0x40_0000, 0x800, READ)]), 4 << 30);
        assert_eq!(access.end(), 4 << 30);
        assert!(access.holds(BANK - 8, 8, true) && !access.holds(BANK, 1, false), "the end of the stack");
        assert!(!access.holds(BANK + LARGE_PAGE - 1, 1, false));
        assert!(access.holds(BANK + LARGE_PAGE, (4 << 30) - BANK - LARGE_PAGE, true));
        assert!(!access.holds((4 << 30) - 1, 2, true));
    }
}
