// SPDX-License-Identifier: MIT OR Apache-2.0
//! Actions that a program may not do: privileged instructions, and accesses to memory that is not the program's.

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering::Relaxed};

use colony_fship::calls::number as n;

use crate::report::Report;

/// Bytes of the instruction that is tried: the handler goes on behind it.
static LENGTH: AtomicI64 = AtomicI64::new(0);
/// The signal that came, and its code.
static SEEN: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

extern "C" fn skip(signal: i32, info: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
    SEEN[0].store(signal, Relaxed);
    // SAFETY: the system passes both.
    unsafe {
        SEEN[1].store((*info).si_code, Relaxed);
        (*context).uc_mcontext.gregs[libc::REG_RIP as usize] += LENGTH.load(Relaxed);
    }
}

/// Tries an instruction of `$length` bytes, with the accumulator as given.
macro_rules! attempt {
    ($report:expr, $what:literal, $length:literal, $bytes:literal, $rax:expr) => {
        LENGTH.store($length, Relaxed);
        SEEN.iter().for_each(|s| s.store(0, Relaxed));
        // SAFETY: the instruction faults and is stepped over; it would change only what is named here.
        unsafe { std::arch::asm!($bytes, inout("rax") $rax => _, out("rcx") _, out("rdx") _) };
        let [signal, code] = SEEN.each_ref().map(|s| s.load(Relaxed));
        $report.line(n::rt_sigaction, $what, &format!("signal {signal} code {code}"));
    };
}

pub(crate) fn try_all(r: &mut Report) {
    let signals = [libc::SIGSEGV, libc::SIGILL, libc::SIGTRAP, libc::SIGBUS];
    // SAFETY: all zeroes is an empty action; the handler does only what is safe in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = skip as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in signals {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
    attempt!(r, "hlt", 1, "hlt", 0u64);
    attempt!(r, "cli", 1, "cli", 0u64);
    attempt!(r, "in", 2, "in al, 0x60", 0u64);
    attempt!(r, "out", 2, "out 0x80, al", 0u64);
    attempt!(r, "out to the serial line", 1, "mov edx, 0x3f8; out dx, al", 0u64);
    attempt!(r, "read cr3", 3, "mov rax, cr3", 0u64);
    attempt!(r, "rdmsr", 2, "rdmsr", 0u64);
    attempt!(r, "wrmsr", 2, "wrmsr", 0u64);
    attempt!(r, "undefined", 2, "ud2", 0u64);
    attempt!(r, "breakpoint", 0, "int3", 0u64);
    attempt!(r, "interrupt of a device", 2, "int 0x40", 0u64);
    attempt!(r, "the kernel's data segment", 2, ".byte 0x8e, 0xd8", 0x18u64);
    attempt!(r, "read the kernel", 3, ".byte 0x48, 0x8b, 0x00", 0xffff_ffff_8020_0000u64);
    attempt!(r, "write the kernel", 3, ".byte 0x48, 0x89, 0x00", 0xffff_ffff_8040_0000u64);
    attempt!(r, "physical memory", 3, ".byte 0x48, 0x8b, 0x00", 0xffff_8000_0000_0000u64);
    attempt!(r, "no address", 3, ".byte 0x48, 0x8b, 0x00", 1u64 << 63);
    for signal in signals {
        // SAFETY: back to the default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
