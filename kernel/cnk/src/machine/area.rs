// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of each CPU that the entry code reaches by its address: the stack, and the table of quick answers.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// CPUs that the kernel uses at most.
pub const CPUS: usize = colony_fship::layout::CHANNELS;
/// log2 of [`STACK`].
pub const STACK_SHIFT: u32 = 13;
/// Bytes of a CPU's stack; the lowest [`INTERRUPT_STACK`] are for what must not trust the rest (see `tables.rs`).
pub const STACK: usize = 1 << STACK_SHIFT;
/// See [`STACK`].
pub const INTERRUPT_STACK: usize = 2048;

/// Memory that is written through its address only.
#[repr(C, align(4096))]
pub struct Stacks([[UnsafeCell<u8>; STACK]; CPUS]);

// SAFETY: nobody reaches the bytes through this; each CPU has its own part as its stack.
unsafe impl Sync for Stacks {}

#[unsafe(no_mangle)]
static STACKS: Stacks = Stacks([const { [const { UnsafeCell::new(0) }; STACK] }; CPUS]);

/// Address of the end of a CPU's stack.
pub fn stack_end(cpu: usize) -> u64 {
    &raw const STACKS as u64 + ((cpu + 1) * STACK) as u64
}

/// Calls below this number can be quick.
pub const QUICK: usize = 192;
/// In the table of quick answers: not that simple.
pub const SLOW: u64 = 1 << 63;

/// See the module. The watch for kernels that hang reads the counters of calls and pulses by their places here
/// (`look.rs` of colony-nodes).
#[repr(C, align(64))]
pub struct Area {
    /// The user's stack pointer, for a moment.
    pub user_rsp: AtomicU64,
    /// Calls that were done here, on this node.
    pub local_calls: AtomicU64,
    /// Raised wherever the kernel may be for long. Where a CPU is in the kernel, and neither this nor the calls change, it hangs.
    pub pulses: AtomicU64,
    /// The answer to a call; [`SLOW`] where it is not known beforehand.
    pub quick: [AtomicU64; QUICK],
}

#[unsafe(no_mangle)]
static AREAS: [Area; CPUS] = [const {
    Area {
        user_rsp: AtomicU64::new(0),
        local_calls: AtomicU64::new(0),
        pulses: AtomicU64::new(0),
        quick: [const { AtomicU64::new(SLOW) }; QUICK],
    }
}; CPUS];

/// The area of a CPU.
pub fn area(cpu: usize) -> &'static Area {
    &AREAS[cpu]
}

impl Area {
    /// From now on call `number` is answered with `value` at once.
    pub fn answer(&self, number: u32, value: u32) {
        if let Some(place) = self.quick.get(number as usize) {
            place.store(u64::from(value), Relaxed);
        }
    }
}
