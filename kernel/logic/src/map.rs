// SPDX-License-Identifier: MIT OR Apache-2.0
//! The static map of a process: large pages wherever all of a large page may be used alike.

use colony_fship::layout::{EXECUTE, LARGE_PAGE, PAGE, WRITE};

use crate::access::Access;

/// Bits of a page table entry (Intel SDM volume 3, 4.5).
pub mod bits {
    /// Is there.
    pub const PRESENT: u64 = 1;
    /// May be written.
    pub const WRITE: u64 = 1 << 1;
    /// May be used by the user.
    pub const USER: u64 = 1 << 2;
    /// Was used, was written: set beforehand, so that the processor need not.
    pub const USED: u64 = 1 << 5 | 1 << 6;
    /// Is a page of 2 MiB or 1 GiB.
    pub const LARGE: u64 = 1 << 7;
    /// Is in every address space.
    pub const GLOBAL: u64 = 1 << 8;
    /// Cannot be executed.
    pub const NO_EXECUTE: u64 = 1 << 63;
    /// Of a table: its parts say what may be done.
    pub const TABLE: u64 = PRESENT | WRITE | USER;
}

/// Memory for page tables.
pub trait Tables {
    /// An empty table: its physical address.
    fn table(&mut self) -> Option<u64>;
    /// Writes an entry.
    fn set(&mut self, table: u64, index: usize, entry: u64);
}

/// There are more tables needed than there are: too many segments, or too much memory for 2 MiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complex;

/// Bytes that an entry of a table of this level is for: 3 is a page directory pointer table, 1 a page table.
const fn reach(level: u32) -> u64 {
    PAGE << (9 * (level - 1))
}

/// Fills `table`, a page directory pointer table, so that the user's address 0 is `physical`.
///
/// # Errors
/// [`Complex`].
pub fn build(
    tables: &mut impl Tables,
    table: u64,
    physical: u64,
    access: &Access,
    huge_pages: bool,
) -> Result<(), Complex> {
    Builder { tables, physical, access, huge_pages }.fill(table, 3, 0)
}

struct Builder<'a, T> {
    tables: &'a mut T,
    physical: u64,
    access: &'a Access,
    huge_pages: bool,
}

impl<T: Tables> Builder<'_, T> {
    fn fill(&mut self, table: u64, level: u32, base: u64) -> Result<(), Complex> {
        let size = reach(level);
        for index in 0..512 {
            let first = base + index * size;
            if first >= self.access.end() {
                break;
            }
            let physical = self.physical + first;
            let whole = physical.is_multiple_of(size) && (level < 3 || self.huge_pages);
            let entry = match self.access.uniform(first, first + size) {
                Some(0) => continue,
                Some(flags) if whole => page(physical, level, flags),
                _ => {
                    let next = self.tables.table().ok_or(Complex)?;
                    self.fill(next, level - 1, first)?;
                    next | bits::TABLE
                }
            };
            self.tables.set(table, index as usize, entry);
        }
        Ok(())
    }
}

fn page(physical: u64, level: u32, flags: u64) -> u64 {
    let bit = |so: bool, bit: u64| if so { bit } else { 0 };
    physical
        | (bits::PRESENT | bits::USER | bits::USED)
        | bit(flags & WRITE != 0, bits::WRITE)
        | bit(flags & EXECUTE == 0, bits::NO_EXECUTE)
        | bit(level > 1, bits::LARGE)
}

/// Fills `table` with one piece of memory: in pages of 1 GiB if there are such and the piece has them, or of 2 MiB.
/// `more` are bits of the entries.
///
/// # Errors
/// [`Complex`].
pub fn linear(
    tables: &mut impl Tables,
    table: u64,
    physical: u64,
    length: u64,
    huge_pages: bool,
    more: u64,
) -> Result<(), Complex> {
    let huge = reach(3);
    let leaf = bits::PRESENT | bits::WRITE | bits::USED | bits::LARGE | bits::NO_EXECUTE | more;
    for index in 0..length.div_ceil(huge) {
        let first = index * huge;
        let entry = if huge_pages && length - first >= huge && physical.is_multiple_of(huge) {
            (physical + first) | leaf
        } else {
            let next = tables.table().ok_or(Complex)?;
            for page in 0..((length - first).min(huge) / LARGE_PAGE) {
                tables.set(next, page as usize, (physical + first + page * LARGE_PAGE) | leaf);
            }
            next | bits::TABLE
        };
        tables.set(table, index as usize, entry);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use colony_fship::layout::{Process, READ, STACK};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::process;

    /// Tables in a map, as many as one likes.
    #[derive(Default)]
    struct Memory {
        entries: HashMap<(u64, usize), u64>,
        tables: u64,
    }

    impl Tables for Memory {
        fn table(&mut self) -> Option<u64> {
            self.tables += 1;
            Some(0x1_0000_0000 + self.tables * PAGE)
        }

        fn set(&mut self, table: u64, index: usize, entry: u64) {
            assert_eq!(self.entries.insert((table, index), entry), None, "written twice");
        }
    }

    const TOP: u64 = 0x1_0000_0000;
    const PHYSICAL: u64 = 0xc0_0000_0000;

    impl Memory {
        /// Translates an address as the processor does: the physical address and the bits of the entry.
        fn walk(&self, address: u64) -> Option<(u64, u64)> {
            let mut table = TOP;
            for level in (1..=3).rev() {
                let size = reach(level);
                let entry = *self.entries.get(&(table, (address / size % 512) as usize))?;
                let target = entry & 0x000f_ffff_ffff_f000;
                if level == 1 || entry & bits::LARGE != 0 {
                    assert_eq!(target % size, 0, "a page where no page can be");
                    return Some((target + address % size, entry));
                }
                table = target;
            }
            unreachable!("a page table has pages only")
        }
    }

    fn built(process: &Process, huge: bool) -> (Memory, Access) {
        let access = Access::new(process, process.memory);
        let mut memory = Memory::default();
        build(&mut memory, TOP, PHYSICAL, &access, huge).expect("tables without end");
        (memory, access)
    }

    #[test]
    fn a_usual_program_needs_three_tables() {
        let segments = [
            (0x40_0000, 0x500, READ),
            (0x40_1000, 0x9_0000, READ | EXECUTE),
            (0x49_2000, 0x2_0000, READ),
            (0x4b_3000, 0x9000, READ | WRITE),
        ];
        let (memory, _) = built(&process(&segments), true);
        assert_eq!(
            memory.tables, 3,
            "a directory, and tables for the large pages with the segments and the guard"
        );
        let flags = |address| memory.walk(address).map(|(_, entry)| entry & (bits::WRITE | bits::NO_EXECUTE));
        assert_eq!(flags(0x40_1000), Some(0));
        assert_eq!(flags(0x49_2000), Some(bits::NO_EXECUTE));
        assert_eq!(flags(0x4b_3000), Some(bits::WRITE | bits::NO_EXECUTE));
        assert_eq!(flags(0x1000), None);
    }

    #[test]
    fn large_memory_has_pages_of_a_gibibyte_where_there_are_such() {
        let big = Process {
            memory: 8 << 30,
            stack: (8 << 30) - 64,
            ..process(&[(0x40_0000, 0x1000, READ | EXECUTE)])
        };
        let (with, without) = (built(&big, true).0, built(&big, false).0);
        // two directories instead of eight; the segments' table and the guard's
        assert_eq!((with.tables, without.tables), (4, 10));
        assert_eq!(with.walk(5 << 30), without.walk(5 << 30));
    }

    #[test]
    fn segments_in_large_pages_of_their_own_need_a_table_each() {
        // as linked with -z max-page-size=0x200000
        let segments = [
            (0x40_0000, 0x500, READ),
            (0x60_0000, 0x9_0000, READ | EXECUTE),
            (0x80_0000, 0x2_0000, READ),
            (0xa1_f000, 0x9000, READ | WRITE),
        ];
        let big = Process { memory: 2 << 30, stack: (2 << 30) - 64, ..process(&segments) };
        // theirs and their directory, the guard's and its directory
        assert_eq!(built(&big, true).0.tables, 7);
    }

    fn segments() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        let one = (
            0..0x40_0000u64,
            1..0x40_0000u64,
            prop::sample::select(vec![READ, READ | WRITE, READ | EXECUTE]),
        );
        prop::collection::vec(one, 1..8).prop_map(|steps| {
            let mut at = LARGE_PAGE;
            let place = |(gap, length, flags): (u64, u64, u64)| {
                let first = at + gap;
                at = first + length;
                (first, length, flags)
            };
            steps.into_iter().map(place).collect()
        })
    }

    proptest! {
        /// Each address is mapped where it belongs, for just what may be done with its page.
        #[test]
        fn the_map_grants_exactly_the_access_rights(
            segments in segments(),
            gib in 0..3u64,
            huge in any::<bool>(),
            more in prop::collection::vec(any::<u64>(), 50),
        ) {
            let memory = (64 << 20) + (gib << 30);
            let process = Process { memory, stack: memory - STACK, ..process(&segments) };
            let (tables, access) = built(&process, huge);
            let edges = segments.iter().flat_map(|s| [s.0 - 1, s.0, s.0 + s.1 - 1, s.0 + s.1]);
            for address in edges.chain(more.iter().map(|a| a % (memory + LARGE_PAGE))).chain([0, memory - 1, memory]) {
                let page = address & !(PAGE - 1);
                let allowed = access.uniform(page, page + PAGE).expect("parts are of pages");
                let walked = tables.walk(address);
                prop_assert_eq!(walked.is_some(), allowed != 0);
                if let Some((physical, entry)) = walked {
                    prop_assert_eq!(physical, PHYSICAL + address);
                    prop_assert_eq!(entry & bits::WRITE != 0, allowed & WRITE != 0);
                    prop_assert_eq!(entry & bits::NO_EXECUTE == 0, allowed & EXECUTE != 0);
                    prop_assert!(entry & bits::USER != 0 && entry & bits::GLOBAL == 0);
                }
            }
        }

        /// A window is mapped from end to end, and only there.
        #[test]
        fn windows_are_mapped_whole(log in 21u32..34, huge in any::<bool>()) {
            let mut memory = Memory::default();
            let length = 1u64 << log;
            linear(&mut memory, TOP, PHYSICAL, length, huge, bits::GLOBAL).expect("tables without end");
            for address in [0, length / 2, length - 1] {
                prop_assert_eq!(memory.walk(address).map(|(p, _)| p), Some(PHYSICAL + address));
            }
            prop_assert_eq!(memory.walk(length), None);
        }
    }
}
