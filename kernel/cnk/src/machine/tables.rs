// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptor tables: segments, interrupts, and where SYSCALL goes.
//!
//! Traps from user mode start at the top of the CPU's stack, as system calls do: the kernel has nothing there then.
//! Traps from the kernel itself come while it halts, in code without a red zone, or are the end; those that must not
//! trust the stack (non-maskable interrupt, double fault, machine check) have one of their own.

use core::arch::asm;
use core::cell::UnsafeCell;

use zerocopy::FromZeros;

use super::area::{INTERRUPT_STACK, STACK, stack_end};
use super::ops::{msr, write_msr};
use super::{CPUS, zeroed};

/// Selectors as Linux has them: some programs look.
pub const USER_CS: u64 = 0x33;
/// See [`USER_CS`].
pub const USER_SS: u64 = 0x2b;
const KERNEL_CS: u64 = 0x10;
const TSS: u64 = 0x38;

/// Vectors that there are.
pub const STUBS: usize = 96;
/// Bytes of an entry.
const STUB: u64 = 16;

#[derive(FromZeros)]
#[repr(C, packed(4))]
struct TaskState {
    unused: u32,
    stack: u64,
    others: [u64; 3],
    interrupt_stack: u64,
    more: [u64; 7],
    ports: u32,
}

// without it a user could reach ports: the map of those it may use would lie in the table itself
const _: () = assert!(size_of::<TaskState>() == 104);

#[derive(FromZeros)]
#[repr(C, align(16))]
struct Tables {
    segments: [u64; 9],
    task: TaskState,
}

struct Shared<T>(UnsafeCell<T>);
// SAFETY: written by `start` only, before the CPU it belongs to uses it.
unsafe impl<T: Send> Sync for Shared<T> {}

static TABLES: [Shared<Tables>; CPUS] = [const { Shared(UnsafeCell::new(zeroed())) }; CPUS];
static INTERRUPTS: Shared<[[u64; 2]; STUBS]> = Shared(UnsafeCell::new([[0; 2]; STUBS]));

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    address: u64,
}

unsafe extern "C" {
    static trap_stubs: u8;
    static syscall_entry_0: u8;
    static syscall_entry_1: u8;
    static syscall_entry_2: u8;
    static syscall_entry_3: u8;
}

/// The gate of a vector.
fn gate(vector: u64) -> [u64; 2] {
    let entry = &raw const trap_stubs as u64 + vector * STUB;
    let own_stack = u64::from(matches!(vector, 2 | 8 | 18));
    // int3 and into may be used by programs
    let kind = if matches!(vector, 3 | 4) { 0xee00 } else { 0x8e00 };
    [
        entry & 0xffff | KERNEL_CS << 16 | own_stack << 32 | kind << 32 | (entry >> 16 & 0xffff) << 48,
        entry >> 32,
    ]
}

/// Loads the tables of this CPU. CPU 0 comes first.
///
/// # Safety
/// Once for each CPU, on this CPU, and before it leaves the kernel.
pub unsafe fn start(cpu: usize) {
    let tables = TABLES[cpu].0.get();
    let task = &raw const TABLES[cpu] as u64 + core::mem::offset_of!(Tables, task) as u64;
    let descriptor = 103 | (task & 0xff_ffff) << 16 | 0x89 << 40 | (task >> 24 & 0xff) << 56;
    // null, (unused), kernel code, kernel data, (user code of 32 bits), user data, user code, task state
    let segments = [
        0,
        0,
        0x00af_9a00_0000_ffff,
        0x00cf_9200_0000_ffff,
        0,
        0x00cf_f200_0000_ffff,
        0x00af_fa00_0000_ffff,
        descriptor,
        task >> 32,
    ];
    let interrupt_stack = stack_end(cpu) - (STACK - INTERRUPT_STACK) as u64;
    let ports = (size_of::<TaskState>() as u32) << 16;
    let task = TaskState { stack: stack_end(cpu), interrupt_stack, ports, ..zeroed() };
    // SAFETY: the caller's promise: nobody uses these tables yet.
    unsafe { *tables = Tables { segments, task } };
    if cpu == 0 {
        // SAFETY: as above; no other CPU is started yet.
        unsafe { *INTERRUPTS.0.get() = core::array::from_fn(|vector| gate(vector as u64)) };
    }
    let segments = Pointer { limit: 9 * 8 - 1, address: tables as u64 };
    let interrupts = Pointer { limit: STUBS as u16 * 16 - 1, address: INTERRUPTS.0.get() as u64 };
    let entries: [*const u8; CPUS] = [
        &raw const syscall_entry_0,
        &raw const syscall_entry_1,
        &raw const syscall_entry_2,
        &raw const syscall_entry_3,
    ];
    // SAFETY: the tables are right and stay; code goes on in the same segment.
    unsafe {
        asm!(
            "lgdt [{g}]", "lidt [{i}]", "ltr {t:x}", "mov ss, {s:e}",
            g = in(reg) &segments, i = in(reg) &interrupts, t = in(reg) TSS, s = in(reg) 0x18,
        );
        // the user's selectors are 8 and 16 further than what STAR has
        write_msr(msr::STAR, KERNEL_CS << 32 | (USER_SS - 8) << 48);
        write_msr(msr::LSTAR, entries[cpu] as u64);
        // masked in the kernel: interrupts, direction, trap, alignment check (which is SMAP's), nested task
        write_msr(msr::FMASK, 0x4_4700);
    }
}
