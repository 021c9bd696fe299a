// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single instructions.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};

/// Model-specific registers that the kernel uses.
pub mod msr {
    pub const APIC_BASE: u32 = 0x1b;
    pub const STAR: u32 = 0xc000_0081;
    pub const LSTAR: u32 = 0xc000_0082;
    pub const FMASK: u32 = 0xc000_0084;
    pub const FS_BASE: u32 = 0xc000_0100;
    pub const GS_BASE: u32 = 0xc000_0101;
}

/// The processor's description of itself (`CPUID`).
pub fn cpuid(leaf: u32, sub: u32) -> CpuidResult {
    __cpuid_count(leaf, sub)
}

/// The largest extended leaf and so on are asked for before: whether `leaf` is there.
pub fn has_leaf(leaf: u32) -> bool {
    cpuid(leaf & 0x8000_0000, 0).eax >= leaf
}

/// Returns `true` if QEMU translates the instructions (its TCG), as the processor says.
pub fn in_emulator() -> bool {
    cpuid(1, 0).ecx & 1 << 31 != 0 && cpuid(0x4000_0000, 0).ebx == u32::from_le_bytes(*b"TCGT")
}

/// Time stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Writes a byte to a port.
pub fn outb(port: u16, value: u8) {
    // SAFETY: no device that the kernel reaches by ports (serial line, timer, interrupt controller) touches memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads a byte from a port.
pub fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as of `outb`.
    unsafe { asm!("in al, dx", out("al") value, in("dx") port, options(nomem, nostack, preserves_flags)) }
    value
}

/// Writes a model-specific register.
///
/// # Safety
/// The value is one that leaves the kernel's memory and stack as Rust has them.
pub unsafe fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack, preserves_flags))
    }
}

/// Sets the user's base of the segment fs. An address that is not canonical is refused.
#[must_use]
pub fn set_fs_base(address: u64) -> bool {
    canonical(address) && {
        // SAFETY: the kernel uses no segment but those of 64 bits without base.
        unsafe { write_msr(msr::FS_BASE, address) };
        true
    }
}

/// Sets the user's base of the segment gs, as [`set_fs_base`].
#[must_use]
pub fn set_gs_base(address: u64) -> bool {
    canonical(address) && {
        // SAFETY: as above; the kernel does without gs.
        unsafe { write_msr(msr::GS_BASE, address) };
        true
    }
}

/// Reads a base.
pub fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading has no effect for the registers of `msr`, which every processor of 64 bits has.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Returns `true` if an address of the user's half can be loaded.
pub const fn canonical(address: u64) -> bool {
    address < 1 << 47
}

/// The address of the last page fault.
pub fn fault_address() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Sets bits of control register 4.
///
/// # Safety
/// The processor has them, and they do not change how the kernel reaches its memory.
pub unsafe fn set_cr4(bits: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("mov {t}, cr4", "or {t}, {b}", "mov cr4, {t}", t = out(reg) _, b = in(reg) bits, options(nostack))
    }
}

/// Changes the address space.
///
/// # Safety
/// It has the kernel's half as all have it.
pub unsafe fn set_cr3(table: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr3, {}", in(reg) table, options(nostack, preserves_flags)) }
}

/// Empties the user's segment registers: a program before may have loaded them.
pub fn clear_segments() {
    // SAFETY: in 64 bits these are not used but for the bases of fs and gs, which are set anew for every program.
    unsafe {
        asm!("mov ds, {z:e}", "mov es, {z:e}", "mov fs, {z:e}", "mov gs, {z:e}", z = in(reg) 0, options(nostack));
    }
}

/// Halts until an interrupt; returns with interrupts masked. One that came before is not lost: `sti` lets it in only
/// after the next instruction has begun.
pub fn halt() {
    // SAFETY: no lock is held, and the handlers keep all registers.
    unsafe { asm!("sti", "hlt", "cli") }
}

/// Halts for good.
pub fn stop() -> ! {
    loop {
        // SAFETY: nothing follows.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}
