// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables: the kernel's half, which all address spaces share, and the user's half of each process.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cnk_logic::access::Access;
use cnk_logic::map::{self, Complex, Tables, bits};
use colony_fship::layout::{PROCESSES, TORUS_VA};

use super::window::{Bank, Memory, WINDOW_VA, Window};
use super::{ops, phys};

/// Link address of kernel code, less its physical address.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
/// Tables of the user processes below the very top ones: for each process one for all of its GiB, a directory for each
/// GiB that is not one page, and a table for each 2 MiB in which segments meet. One process has them all, two have half
/// each.
const USER_TABLES: usize = 14;

#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

impl Table {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 512])
    }

    fn physical(&self) -> u64 {
        &raw const *self as u64 - KERNEL
    }

    fn clear(&self) {
        for entry in &self.0 {
            entry.store(0, Relaxed);
        }
    }
}

/// Tables that are being filled: a top, and those below it.
struct Filling<'a> {
    pool: &'a [Table],
    used: usize,
}

impl<'a> Filling<'a> {
    /// All are free; the first is the top.
    fn start(pool: &'a [Table]) -> Self {
        pool[0].clear();
        Self { pool, used: 1 }
    }

    fn top(&self) -> u64 {
        self.pool[0].physical()
    }
}

impl Tables for Filling<'_> {
    fn table(&mut self) -> Option<u64> {
        let table = self.pool.get(self.used)?;
        self.used += 1;
        table.clear();
        Some(table.physical())
    }

    fn set(&mut self, table: u64, index: usize, entry: u64) {
        // they follow each other in memory
        let n = (table - self.top()) as usize / size_of::<Table>();
        self.pool[n].0[index].store(entry, Relaxed);
    }
}

/// Of the window: a top, and a directory for each GiB of the usual window where there are no pages of that size.
static WINDOW: [Table; 5] = [const { Table::new() }; 5];
static TORUS: [Table; 2] = [const { Table::new() }; 2];
static USERS: [Table; USER_TABLES] = [const { Table::new() }; USER_TABLES];
/// The top table of process 1; that of process 0 is the kernel's.
static SECOND_TOP: Table = Table::new();

unsafe extern "C" {
    static kernel_pml4: u8;
}

/// The kernel's own top table, which the start has made.
fn kernel_top() -> &'static [AtomicU64; 512] {
    // SAFETY: the table is a page of memory in the direct map that only this module writes.
    unsafe { &*phys::at(&raw const kernel_pml4 as u64) }
}

/// The top table of a process.
fn top_of(process: usize) -> &'static [AtomicU64; 512] {
    if process == 0 { kernel_top() } else { &SECOND_TOP.0 }
}

fn top_index(address: u64) -> usize {
    (address >> 39) as usize & 511
}

fn huge_pages() -> bool {
    ops::has_leaf(0x8000_0001) && ops::cpuid(0x8000_0001, 0).edx & 1 << 26 != 0
}

/// Maps the windows: one for the kernel, the other for all users.
///
/// # Errors
/// [`Complex`] for more than 1 GiB on a processor without pages of that size.
pub fn map_windows(window: Memory, torus: Option<Memory>) -> Result<Window, Complex> {
    let map = |pool: &[Table], memory: Memory, bits| {
        let mut tables = Filling::start(pool);
        let top = tables.top();
        map::linear(&mut tables, top, memory.physical(), memory.size(), huge_pages(), bits).map(|()| top)
    };
    let top = map(&WINDOW, window, bits::GLOBAL)?;
    kernel_top()[top_index(WINDOW_VA)].store(top | bits::PRESENT | bits::WRITE, Relaxed);
    if let Some(torus) = torus {
        let top = map(&TORUS, torus, bits::USER)?;
        kernel_top()[top_index(TORUS_VA)].store(top | bits::TABLE, Relaxed);
    }
    for (place, entry) in SECOND_TOP.0.iter().zip(kernel_top()) {
        place.store(entry.load(Relaxed), Relaxed);
    }
    Ok(Window::mapped(window))
}

/// Builds the user's half of process `n` of `count`, whose memory this is.
///
/// # Errors
/// [`Complex`].
pub fn build(n: usize, count: usize, bank: &Bank, access: &Access) -> Result<(), Complex> {
    assert!(access.end() <= bank.size());
    let share = USER_TABLES / count;
    let mut tables = Filling::start(&USERS[n * share..][..share]);
    let top = tables.top();
    map::build(&mut tables, top, bank.physical(), access, huge_pages())?;
    top_of(n)[0].store(top | bits::TABLE, Relaxed);
    Ok(())
}

/// Makes a process's address space that of this CPU, without anything of the one before.
pub fn activate(process: usize) {
    // SAFETY: the kernel's half was copied by `map_windows`; global pages (bit 7), of which the first one here forgets
    // those of the start, are in that half only.
    unsafe {
        ops::set_cr3(match process {
            0 => &raw const kernel_pml4 as u64,
            _ => SECOND_TOP.physical(),
        });
        ops::set_cr4(1 << 7);
    }
}

/// Takes away the addresses that the start has needed: physical memory at its own address, executable.
pub fn forget_start() {
    for process in 0..PROCESSES {
        top_of(process)[0].store(0, Relaxed);
    }
    // SAFETY: the same space, without what nobody uses any more.
    unsafe { ops::set_cr3(&raw const kernel_pml4 as u64) };
}
