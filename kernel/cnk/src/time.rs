// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock: the time stamp counter, measured once.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cnk_logic::clock::{Rate, SECOND};

use crate::machine::{apic, ops};
use spin::Once;

static RATE: Once<Rate> = Once::new();
/// Wall clock at counter value 0, ns since 1970; wraps where the counter is ahead of the clock.
static EPOCH_NS: AtomicU64 = AtomicU64::new(0);

/// Rate of the counter.
pub fn rate() -> Rate {
    RATE.get().copied().unwrap_or(Rate::new(SECOND))
}

/// Time since the machine was switched on, ns.
pub fn monotonic_ns() -> u64 {
    rate().ns(ops::tsc())
}

/// Wall clock, ns since 1970.
pub fn realtime_ns() -> u64 {
    monotonic_ns().wrapping_add(EPOCH_NS.load(Relaxed))
}

/// The monotonic time at which the wall clock shows `ns`.
pub fn from_realtime(ns: u64) -> u64 {
    ns.saturating_sub(EPOCH_NS.load(Relaxed))
}

/// The wall clock is `ns` now.
pub fn set_realtime(ns: u64) {
    EPOCH_NS.store(ns.wrapping_sub(monotonic_ns()), Relaxed);
}

/// Counts a second of the PC's timer.
const PIT_HZ: u64 = 1_193_182;
/// Counts of it to measure against: 2 ms.
const SPAN: u64 = PIT_HZ / 500;

/// Time stamp counts in which the PC's timer, which wraps after 55 ms, has not wrapped, however fast they are.
const TRUSTED: u64 = 25_000_000;

/// Measures the time stamp counter and the interrupt controller's timer, unless the processor tells the first.
///
/// The PC's timer is the reference, channel 0: `microvm` has no port for the gate of channel 2. A busy host may stop
/// a virtual processor at any place for longer than the PC's timer counts; then it is measured again.
pub fn calibrate() {
    for (port, value) in [(0x43, 0x34), (0x40, 0xff), (0x40, 0xff)] {
        ops::outb(port, value);
    }
    let measured = (0..50).map(|_| measure()).find(|m| m.whole < TRUSTED).unwrap_or_else(measure);
    // an end once in place of every 55 ms: nothing wakes the machine of a node that has nothing to do
    ops::outb(0x43, 0x30);
    let hz = reported_hz().unwrap_or(measured.hz);
    RATE.call_once(|| Rate::new(hz));
    apic::set_timer_hz((u128::from(measured.timer) * u128::from(hz) / u128::from(measured.whole)) as u64);
}

/// A measurement of the counter and of the timer.
struct Measured {
    /// Time stamp counts of a second.
    hz: u64,
    /// Counts of the interrupt controller's timer, in so many time stamp counts.
    timer: u64,
    whole: u64,
}

/// Reading the PC's timer takes longer than a microsecond in a virtual machine; of several readings the one that took
/// least is the start, and another such the end.
fn measure() -> Measured {
    let begun = ops::tsc();
    apic::measure();
    let (start_count, start) = best_reading();
    let (mut end_count, mut end) = best_reading();
    while start_count.wrapping_sub(end_count) < SPAN as u16 {
        (end_count, end) = best_reading();
    }
    let timer = apic::measured();
    let whole = ops::tsc().wrapping_sub(begun).max(1);
    let counted = u64::from(start_count.wrapping_sub(end_count)).max(1);
    let hz = end.wrapping_sub(start) * PIT_HZ / counted;
    Measured { hz, timer, whole }
}

/// The PC timer's count, which goes down, and the counter in the middle of reading it.
fn best_reading() -> (u16, u64) {
    let readings = core::array::from_fn::<_, 4, _>(|_| {
        let before = ops::tsc();
        ops::outb(0x43, 0);
        let count = u16::from(ops::inb(0x40)) | u16::from(ops::inb(0x40)) << 8;
        let took = ops::tsc().wrapping_sub(before);
        (took, count, before + took / 2)
    });
    let (_, count, at) = readings.into_iter().min().unwrap_or_default();
    (count, at)
}

/// The rate that the processor (leaf 0x15) or the hypervisor (leaf 0x4000_0010, kHz) reports.
fn reported_hz() -> Option<u64> {
    if ops::cpuid(1, 0).ecx & 1 << 31 != 0 {
        let khz = (ops::cpuid(0x4000_0000, 0).eax >= 0x4000_0010).then(|| ops::cpuid(0x4000_0010, 0).eax)?;
        return (khz != 0).then_some(u64::from(khz) * 1000);
    }
    let leaf = ops::has_leaf(0x15).then(|| ops::cpuid(0x15, 0))?;
    let ratio = (leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0).then_some(leaf)?;
    Some(u64::from(ratio.ecx) * u64::from(ratio.ebx) / u64::from(ratio.eax))
}
