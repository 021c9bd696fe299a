// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine: all code of the kernel that the compiler cannot check is in here, behind safe functions.

pub mod apic;
pub mod area;
pub mod console;
pub mod context;
pub mod devices;
pub mod fpu;
pub mod ops;
pub mod paging;
pub mod pci;
pub mod phys;
pub mod smp;
pub mod start;
pub mod tables;
pub mod virtio;
pub mod window;

use core::arch::global_asm;

use area::{Area, STACK, STACK_SHIFT};

pub use area::CPUS;

global_asm!(
    include_str!("start.s"),
    stack = const STACK,
    stack_shift = const STACK_SHIFT,
    trampoline = const smp::TRAMPOLINE,
    arrived = const smp::ARRIVED,
);
global_asm!(
    include_str!("entry.s"),
    stack = const STACK,
    stack_shift = const STACK_SHIFT,
    stubs = const tables::STUBS,
    area = const size_of::<Area>(),
    quick_len = const area::QUICK,
    quick = const core::mem::offset_of!(Area, quick),
    user_rsp = const core::mem::offset_of!(Area, user_rsp),
    local_calls = const core::mem::offset_of!(Area, local_calls),
    user_cs = const tables::USER_CS,
    user_ss = const tables::USER_SS,
);

/// A value that is all zero, for statics.
pub const fn zeroed<T: zerocopy::FromZeros>() -> T {
    // SAFETY: all zero is a `T`.
    unsafe { core::mem::zeroed() }
}
