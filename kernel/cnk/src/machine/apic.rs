// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local interrupt controller: doorbells, calls to the other CPU, and the one-shot timer.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{ops, phys};

const BASE: u64 = 0xfee0_0000;
const ID: u64 = 0x20;
const PRIORITY: u64 = 0x80;
const END: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TO: u64 = 0x310;
const TIMER: u64 = 0x320;
const TIMER_START: u64 = 0x380;
const TIMER_NOW: u64 = 0x390;
const TIMER_DIVIDE: u64 = 0x3e0;

/// Vector of the doorbell of the device.
pub const DOORBELL: u8 = 0x40;
/// Vector of a call from the other CPU.
pub const CALL: u8 = 0x42;
/// Vector of the timer.
pub const ALARM: u8 = 0x50;

/// Counts of the timer in a second, for the timer was measured against the time stamp counter.
static TIMER_HZ: AtomicU64 = AtomicU64::new(0);

fn read(register: u64) -> u32 {
    // SAFETY: the controller's registers are there on every CPU of 64 bits; reading them has no effect.
    unsafe { phys::read(BASE + register) }
}

fn write(register: u64, value: u32) {
    // SAFETY: the registers are there; what is written makes interrupts only, for which there are handlers.
    unsafe { phys::write(BASE + register, value) }
}

/// Number of this CPU's controller.
pub fn id() -> u32 {
    read(ID) >> 24
}

/// Lets interrupts through to this CPU; the timer is off.
pub fn start() {
    write(PRIORITY, 0);
    write(TIMER_DIVIDE, 0xb);
    write(TIMER, u32::from(ALARM) | 1 << 16);
    write(TIMER_START, 0);
    // on, with the last vector for what is none
    write(SPURIOUS, 0x100 | (super::tables::STUBS as u32 - 1));
}

/// Orders all accesses before it and all after it, also where fences do not: QEMU leaves them, and the locks of
/// instructions, out of what it translates for a machine of one CPU. For a device it takes a lock of its host.
pub fn fence() {
    read(ID);
}

/// Acknowledges an interrupt.
pub fn end() {
    write(END, 0);
}

/// A message that interrupts another CPU.
pub const INTERRUPT: u32 = 0x4000 | CALL as u32;
/// Messages that start another CPU (Intel SDM volume 3, 9.4.4): the second with the number of its page below 1 MiB.
pub const INIT: u32 = 0x4500;
/// See [`INIT`].
pub const START: u32 = 0x4600;

/// Sends a message to another CPU, when the one before is on its way.
pub fn send(apic: u32, message: u32) {
    const PENDING: u32 = 1 << 12;
    while read(COMMAND) & PENDING != 0 {
        core::hint::spin_loop();
    }
    write(COMMAND_TO, apic << 24);
    write(COMMAND, message);
}

/// Lets the timer run down, to measure it; [`measured`] follows.
pub fn measure() {
    write(TIMER_START, u32::MAX);
}

/// Counts of the timer since [`measure`]; it is off then.
pub fn measured() -> u64 {
    let counts = u32::MAX - read(TIMER_NOW);
    write(TIMER_START, 0);
    u64::from(counts)
}

/// Tells how fast the timer counts.
pub fn set_timer_hz(hz: u64) {
    TIMER_HZ.store(hz, Relaxed);
}

/// One interrupt after `ns`, not earlier by more than the timer's error; if that is far off, an earlier one, after
/// which one looks again. It replaces the one before.
pub fn alarm_in(ns: u64) {
    let counts = u128::from(ns) * u128::from(TIMER_HZ.load(Relaxed)) / 1_000_000_000;
    write(TIMER, u32::from(ALARM));
    write(TIMER_START, u32::try_from(counts + 1).unwrap_or(u32::MAX));
}

/// No interrupt any more.
pub fn alarm_off() {
    write(TIMER_START, 0);
    write(TIMER, u32::from(ALARM) | 1 << 16);
}

/// Turns the controller on if firmware has left it off.
pub fn enable() {
    let base = ops::read_msr(ops::msr::APIC_BASE);
    if base & 1 << 11 == 0 {
        // SAFETY: the controller is at its usual address, which nothing else uses.
        unsafe { ops::write_msr(ops::msr::APIC_BASE, base | 1 << 11) };
    }
}
