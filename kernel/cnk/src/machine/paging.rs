// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables: the kernel's half, which all address spaces share, and the user's half of each process.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use cnk_logic::access::Access;
use cnk_logic::map::{self, Complex, Tables, bits};
use colony_fship::layout::{PROCESSES, TORUS_VA};

use super::window::{Bank, Memory, WINDOW_VA, Window};
use super::{ops, phys};

/// Link address of kernel code, less its physical address.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
/// Tables below the very top ones. The windows have at most four where there are pages of 1 GiB, else two more for each GiB.
/// The processes have the rest: each one for all of its GiB, a directory for each GiB that is not one page, and a table for
/// each 2 MiB in which segments meet. One process has them all, two have half each.
const TABLES: usize = 18;

#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

impl Table {
    const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; 512])
    }

    fn physical(&self) -> u64 {
        &raw const *self as u64 - KERNEL
    }
}

static POOL: [Table; TABLES] = [const { Table::empty() }; TABLES];
/// Tables that the windows have, the first ones.
static WINDOWS: AtomicUsize = AtomicUsize::new(0);
/// The top table of process 1; that of process 0 is the kernel's.
static SECOND_TOP: Table = Table::empty();

/// Tables that are free, by their numbers.
struct Free(Range<usize>);

impl Tables for Free {
    fn table(&mut self) -> Option<u64> {
        let table = &POOL[self.0.next()?];
        table.0.iter().for_each(|entry| entry.store(0, Relaxed));
        Some(table.physical())
    }

    fn set(&mut self, table: u64, index: usize, entry: u64) {
        let number = (table - POOL[0].physical()) as usize / size_of::<Table>();
        POOL[number].0[index].store(entry, Relaxed);
    }
}

unsafe extern "C" {
    static kernel_pml4: u8;
    static boot_low: u8;
}

/// A table that the start has made, by its address.
fn of_start(table: *const u8) -> &'static [AtomicU64; 512] {
    // SAFETY: the tables are pages of memory in the direct map that only this module writes.
    unsafe { &*phys::at(table as u64) }
}

/// The kernel's own top table.
fn kernel_top() -> &'static [AtomicU64; 512] {
    of_start(&raw const kernel_pml4)
}

/// The top table of a process.
fn top_of(process: usize) -> &'static [AtomicU64; 512] {
    if process == 0 { kernel_top() } else { &SECOND_TOP.0 }
}

fn huge_pages() -> bool {
    ops::has_leaf(0x8000_0001) && ops::cpuid(0x8000_0001, 0).edx & 1 << 26 != 0
}

/// Maps the windows: one for the kernel, the other for all users.
///
/// # Errors
/// [`Complex`] for more than there are tables for, on a processor without pages of 1 GiB.
pub fn map_windows(window: Memory, torus: Option<Memory>) -> Result<Window, Complex> {
    let mut free = Free(0..TABLES);
    let torus = torus.map(|memory| (memory, TORUS_VA, bits::USER, bits::TABLE));
    let window_entry = (window, WINDOW_VA, bits::GLOBAL, bits::PRESENT | bits::WRITE);
    for (memory, at, pages, entry) in [Some(window_entry), torus].into_iter().flatten() {
        let top = free.table().ok_or(Complex)?;
        map::linear(&mut free, top, memory.physical, memory.size, huge_pages(), pages)?;
        kernel_top()[(at >> 39) as usize & 511].store(top | entry, Relaxed);
    }
    WINDOWS.store(free.0.start, Relaxed);
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
    let windows = WINDOWS.load(Relaxed);
    let share = (TABLES - windows) / count;
    let first = windows + n * share;
    let mut free = Free(first..first + share);
    let top = free.table().ok_or(Complex)?;
    map::build(&mut free, top, bank.physical(), access, huge_pages())?;
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
    of_start(&raw const boot_low)[0].fetch_or(bits::NO_EXECUTE, Relaxed);
    // SAFETY: the same space, without what nobody uses any more.
    unsafe { ops::set_cr3(&raw const kernel_pml4 as u64) };
}
