// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extended state: x87, SSE, and AVX where the processor has it.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use zerocopy::IntoBytes as _;

use super::ops;

/// Bytes of the state that every processor has.
pub const LEGACY: u64 = 512;
/// Bytes of the header behind it, where the processor has XSAVE.
pub const HEADER: u64 = 64;

/// xmm0–15 of a program: where the kernel runs, they are in its `Context`.
#[derive(Clone, Copy, Debug, zerocopy::FromBytes)]
#[repr(C, align(16))]
pub struct Xmm([[u64; 2]; 16]);

/// Enabled features (XCR0); 0 without XSAVE.
static ENABLED: AtomicU64 = AtomicU64::new(0);
static SIZE: AtomicU32 = AtomicU32::new(LEGACY as u32);

/// A state as a program finds it at its start.
#[repr(C, align(64))]
struct Initial([u64; 72]);
static INITIAL: Initial = {
    let mut words = [0; 72];
    words[0] = 0x37f; // x87 control word
    words[3] = 0x1f80; // MXCSR
    Initial(words)
};

unsafe extern "C" {
    fn save_state(area: *mut u8, features: u32, xmm: *const Xmm);
    fn restore_state(area: *const u8, features: u32, xmm: *mut Xmm) -> u32;
    static restore_at: u8;
    static restore_legacy_at: u8;
    static restore_refused: u8;
}

/// Bytes of the largest state: with AVX-512.
const LARGEST: usize = 2688;

/// The state of a thread that has no CPU.
#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct State([u8; LARGEST]);

impl State {
    /// The state that a program starts with.
    pub fn renew(&mut self) {
        self.0[..size_of::<Initial>()].copy_from_slice(INITIAL.0.as_bytes());
    }

    /// Saves the state of this CPU.
    pub fn save(&mut self, xmm: &Xmm) {
        self.0[LEGACY as usize..(LEGACY + HEADER) as usize].fill(0);
        // SAFETY: aligned, and large enough by `start`.
        unsafe { save(self.0.as_mut_ptr(), xmm) };
    }

    /// Makes it the state of this CPU.
    pub fn load(&self, xmm: &mut Xmm) {
        // SAFETY: as of `save`. What was saved is a state; else nothing happens
        let done = unsafe { restore(self.0.as_ptr(), xmm) };
        debug_assert!(done);
    }
}

/// Lets programs use what the processor has.
pub fn start() {
    if ops::cpuid(1, 0).ecx & 1 << 26 == 0 {
        return;
    }
    // x87, SSE, AVX, AVX-512
    let wanted = 0xe7 & u64::from(ops::cpuid(0xd, 0).eax);
    let wanted = wanted & if wanted & 4 == 0 { 3 } else { !0 };
    let wanted = wanted & if wanted & 0xe0 == 0xe0 { !0 } else { 7 };
    // SAFETY: the processor has XSAVE, and these states, by CPUID; the kernel uses none beyond SSE.
    unsafe {
        ops::set_cr4(1 << 18);
        asm!("xsetbv", in("ecx") 0, in("eax") wanted as u32, in("edx") 0, options(nostack, preserves_flags));
    }
    ENABLED.store(wanted, Relaxed);
    let size = ops::cpuid(0xd, 0).ebx;
    assert!(size as usize <= LARGEST, "an extended state of {size} bytes");
    SIZE.store(size, Relaxed);
}

/// Enabled features, as XCR0 has them; 0 without XSAVE.
pub fn enabled() -> u64 {
    ENABLED.load(Relaxed)
}

/// Bytes of the whole state.
pub fn size() -> u64 {
    u64::from(SIZE.load(Relaxed))
}

/// Saves the state of this CPU, with these xmm0–15.
///
/// # Safety
/// `area` is aligned to 64 and has [`size`] writable bytes, the header among them zero.
pub unsafe fn save(area: *mut u8, xmm: &Xmm) {
    // SAFETY: the caller's promise.
    unsafe { save_state(area, enabled() as u32, xmm) }
}

/// Restores a state, whatever it is, and copies its xmm0–15; `false` if the processor does not take it.
///
/// # Safety
/// `area` is aligned to 64 and has [`size`] bytes that may be read.
#[must_use]
pub unsafe fn restore(area: *const u8, xmm: &mut Xmm) -> bool {
    // SAFETY: the caller's promise; a state that is none faults where `refused` knows.
    unsafe { restore_state(area, enabled() as u32, xmm) != 0 }
}

/// The state that a program starts with.
pub fn reset(xmm: &mut Xmm) {
    // SAFETY: with an empty header nothing behind it is read.
    let done = unsafe { restore((&raw const INITIAL).cast(), xmm) };
    debug_assert!(done);
}

/// The address at which to continue after a fault of the kernel at `rip`: [`restore`] expects one.
pub fn refused(rip: u64) -> Option<u64> {
    let expected = [&raw const restore_at as u64, &raw const restore_legacy_at as u64];
    expected.contains(&rip).then_some(&raw const restore_refused as u64)
}

const _: () = assert!(LEGACY + HEADER <= size_of::<Initial>() as u64);
