//! Page tables: the kernel's half, which all address spaces share, and the user's half of each process.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cnk_logic::access::Access;
use cnk_logic::map::{self, Complex, Tables, bits};
use colony_fship::layout::TORUS_VA;

use super::{CPUS, ops, phys};

/// Where the kernel has the window.
pub const WINDOW_VA: u64 = 0xffff_9000_0000_0000;
/// Where kernel code is linked, less its physical address.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
/// Tables below the top two of a process: a directory for each GiB that is not one page, a table for each 2 MiB in
/// which segments meet.
const POOL: usize = 6;

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

/// Tables for one purpose: a top, and more below it.
#[repr(C)]
struct Pool<const N: usize> {
    top: Table,
    more: [Table; N],
}

impl<const N: usize> Pool<N> {
    const fn new() -> Self {
        Self { top: Table::new(), more: [const { Table::new() }; N] }
    }

    /// All of it is free.
    fn start(&self) -> Filling<'_, N> {
        self.top.clear();
        Filling { pool: self, used: 0 }
    }
}

/// A pool that is being filled.
struct Filling<'a, const N: usize> {
    pool: &'a Pool<N>,
    used: usize,
}

impl<const N: usize> Tables for Filling<'_, N> {
    fn table(&mut self) -> Option<u64> {
        let table = self.pool.more.get(self.used)?;
        self.used += 1;
        table.clear();
        Some(table.physical())
    }

    fn set(&mut self, table: u64, index: usize, entry: u64) {
        // they follow each other in memory
        let n = (table - self.pool.top.physical()) as usize / size_of::<Table>();
        let place = if n == 0 { Some(&self.pool.top) } else { self.pool.more.get(n - 1) };
        if let Some(entry_of) = place.and_then(|t| t.0.get(index)) {
            entry_of.store(entry, Relaxed);
        }
    }
}

static WINDOW: Pool<1> = Pool::new();
static TORUS: Pool<1> = Pool::new();
static USERS: [Pool<POOL>; CPUS] = [const { Pool::new() }; CPUS];
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
pub fn map_windows(window: (u64, u64), torus: Option<(u64, u64)>) -> Result<(), Complex> {
    let (physical, size) = window;
    map::linear(&mut WINDOW.start(), WINDOW.top.physical(), physical, size, huge_pages(), bits::GLOBAL)?;
    kernel_top()[top_index(WINDOW_VA)].store(WINDOW.top.physical() | bits::PRESENT | bits::WRITE, Relaxed);
    if let Some((physical, size)) = torus {
        map::linear(&mut TORUS.start(), TORUS.top.physical(), physical, size, huge_pages(), bits::USER)?;
    }
    if torus.is_some() {
        kernel_top()[top_index(TORUS_VA)].store(TORUS.top.physical() | bits::TABLE, Relaxed);
    }
    for (place, entry) in SECOND_TOP.0.iter().zip(kernel_top()) {
        place.store(entry.load(Relaxed), Relaxed);
    }
    Ok(())
}

/// Builds the user's half of a process whose address 0 is `physical`.
///
/// # Errors
/// [`Complex`].
pub fn build(process: usize, physical: u64, access: &Access) -> Result<(), Complex> {
    let pool = &USERS[process];
    map::build(&mut pool.start(), pool.top.physical(), physical, access, huge_pages())?;
    top_of(process)[0].store(pool.top.physical() | bits::TABLE, Relaxed);
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

/// Whether [`map_windows`] was called.
pub fn window_is_mapped() -> bool {
    kernel_top()[top_index(WINDOW_VA)].load(Relaxed) != 0
}

/// Takes away the addresses that the start has needed: physical memory at its own address, executable.
pub fn forget_start() {
    for process in 0..CPUS {
        top_of(process)[0].store(0, Relaxed);
    }
    // SAFETY: the same space, without what nobody uses any more.
    unsafe { ops::set_cr3(&raw const kernel_pml4 as u64) };
}
