// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fastest counter a program can read, what it counts per second, and what it says in other clocks.
//!
//! On x86-64 that is the time-stamp counter (`rdtsc`, about 10 ns) where it is invariant; elsewhere the
//! vDSO's clock (about 30 ns) stands in. A measuring loop is written once over [`Counter`] and compiled
//! for each.

use crate::clock::Clock;

/// A monotonic counter cheap enough for a measuring loop.
pub trait Counter: Copy + Send + Sync + 'static {
    /// The counter's value now.
    fn read() -> u64;
}

/// The x86-64 time-stamp counter.
#[derive(Clone, Copy, Debug)]
pub struct Tsc;

impl Counter for Tsc {
    #[inline(always)]
    fn read() -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has rdtsc; Linux leaves it open to user space unless a
        // process gives it up itself (PR_SET_TSC).
        unsafe {
            core::arch::x86_64::_rdtsc()
        }
        #[cfg(not(target_arch = "x86_64"))]
        Vdso::read()
    }
}

/// `CLOCK_MONOTONIC_RAW` through the vDSO, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Vdso;

impl Counter for Vdso {
    #[inline(always)]
    fn read() -> u64 {
        Clock::MonotonicRaw.now_ns() as u64
    }
}

/// The counter that a measurement uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum CounterKind {
    /// [`Tsc`].
    Tsc,
    /// [`Vdso`].
    Vdso,
}

impl CounterKind {
    /// The counter's value now.
    #[inline]
    #[must_use]
    pub fn read(self) -> u64 {
        match self {
            Self::Tsc => Tsc::read(),
            Self::Vdso => Vdso::read(),
        }
    }

    /// The time-stamp counter where it can be trusted, else the vDSO's clock.
    #[must_use]
    pub fn best() -> Self {
        if is_invariant() && kernel_trusts_tsc() { Self::Tsc } else { Self::Vdso }
    }
}

/// Returns `true` if the processor has a time-stamp counter of constant rate in all power states
/// (CPUID 0x8000_0007, EDX bit 8).
#[must_use]
pub fn is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns `true` unless the kernel has rejected the counter as unstable; a paravirtual clock reads it too.
fn kernel_trusts_tsc() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    std::fs::read_to_string(path).is_ok_and(|s| {
        s.split_whitespace().any(|c| matches!(c, "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page"))
    })
}

/// A counter and its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Calibration {
    /// The counter.
    pub kind: CounterKind,
    /// Counts per second against `CLOCK_MONOTONIC_RAW`.
    pub hz: f64,
    /// Bound on the rate's error in parts per million, from the reading uncertainty at both ends.
    pub uncertainty_ppm: f64,
}

/// A reading of a clock between two readings of the counter.
#[derive(Clone, Copy)]
struct Sandwich {
    counter: u64,
    clock_ns: i64,
    /// Distance of the two counter readings.
    width: u64,
}

fn sandwich(kind: CounterKind, clock: Clock) -> Sandwich {
    let one = || {
        let before = kind.read();
        let clock_ns = clock.now_ns();
        let width = kind.read().saturating_sub(before);
        Sandwich { counter: before + width / 2, clock_ns, width }
    };
    // the narrowest of some: whatever interrupts a reading only makes it wider
    (0..64).map(|_| one()).min_by_key(|s| s.width).unwrap_or_else(one)
}

impl Calibration {
    /// The worst uncertainty [`measure`](Self::measure) accepts before it measures longer.
    pub const WANTED_PPM: f64 = 5.0;

    /// Calibrates the best counter: 20 ms, and up to ten times longer while the uncertainty is above
    /// [`WANTED_PPM`](Self::WANTED_PPM).
    #[must_use]
    pub fn measure() -> Self {
        Self::measure_kind(CounterKind::best())
    }

    /// Calibrates the given counter.
    #[must_use]
    pub fn measure_kind(kind: CounterKind) -> Self {
        Self::measure_while(kind, std::thread::sleep)
    }

    /// Calibrates the given counter while `pass` lets that much time pass.
    #[must_use]
    pub fn measure_while(kind: CounterKind, pass: impl Fn(std::time::Duration)) -> Self {
        if kind == CounterKind::Vdso {
            return Self { kind, hz: crate::NS_PER_S as f64, uncertainty_ppm: 0.0 };
        }
        let a = sandwich(kind, Clock::MonotonicRaw);
        let mut best = Self { kind, hz: crate::NS_PER_S as f64, uncertainty_ppm: f64::INFINITY };
        for _ in 0..10 {
            pass(std::time::Duration::from_millis(20));
            let b = sandwich(kind, Clock::MonotonicRaw);
            let counts = b.counter.saturating_sub(a.counter) as f64;
            let hz = counts * crate::NS_PER_S as f64 / (b.clock_ns - a.clock_ns) as f64;
            let uncertainty_ppm = (a.width + b.width) as f64 / 2.0 / counts * 1e6;
            best = Self { kind, hz, uncertainty_ppm };
            if uncertainty_ppm < Self::WANTED_PPM {
                break;
            }
        }
        best
    }

    /// Nanoseconds of `counts`.
    #[must_use]
    pub fn to_ns(&self, counts: u64) -> f64 {
        counts as f64 * crate::NS_PER_S as f64 / self.hz
    }

    /// Counts of `ns`, rounded to the nearest.
    #[must_use]
    pub fn from_ns(&self, ns: f64) -> u64 {
        (ns * self.hz / crate::NS_PER_S as f64).round() as u64
    }

    /// The fewest counts that take `ns` or more: for thresholds and deadlines, which nothing may fall short of.
    /// Holds in both ways of going back: [`to_ns`](Self::to_ns), and a multiple of what one count takes.
    #[must_use]
    pub fn at_least_ns(&self, ns: f64) -> u64 {
        let enough = |counts: u64| self.to_ns(counts).min(counts as f64 * self.to_ns(1)) >= ns;
        let counts = (ns * self.hz / crate::NS_PER_S as f64).floor() as u64;
        (counts..counts.saturating_add(2)).find(|&c| enough(c)).unwrap_or(counts.saturating_add(2))
    }
}

/// Instants at which the counter and two clocks were read together.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    counter: u64,
    monotonic_ns: i64,
    tai_ns: i64,
}

/// Translates counter values to clock times and back, piecewise between [anchors](Self::anchor).
///
/// Between two anchors it interpolates, so that a clock steered by NTP is followed; outside it goes on
/// at the calibrated rate. Set one anchor before a measurement, one after, and one about every second.
#[derive(Clone, Debug)]
pub struct ClockMap {
    calibration: Calibration,
    anchors: Vec<Anchor>,
}

impl ClockMap {
    /// A map with its first anchor at this instant.
    #[must_use]
    pub fn new(calibration: Calibration) -> Self {
        let mut map = Self { calibration, anchors: Vec::new() };
        map.anchor();
        map
    }

    /// The calibration in use.
    #[must_use]
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Sets an anchor at this instant.
    pub fn anchor(&mut self) {
        let m = sandwich(self.calibration.kind, Clock::Monotonic);
        let t = sandwich(self.calibration.kind, Clock::Tai);
        // both clocks brought to one counter value: they run at the same, known rate
        let apart_ns = self.calibration.to_ns(t.counter.saturating_sub(m.counter)) as i64;
        let anchor = Anchor { counter: m.counter, monotonic_ns: m.clock_ns, tai_ns: t.clock_ns - apart_ns };
        if self.anchors.last().is_none_or(|last| last.counter < anchor.counter) {
            self.anchors.push(anchor);
        }
    }

    /// TAI at counter value `counter`.
    #[must_use]
    pub fn tai_ns(&self, counter: u64) -> i64 {
        self.clock_ns(counter, |a| a.tai_ns)
    }

    /// `CLOCK_MONOTONIC` at counter value `counter`.
    #[must_use]
    pub fn monotonic_ns(&self, counter: u64) -> i64 {
        self.clock_ns(counter, |a| a.monotonic_ns)
    }

    fn clock_ns(&self, counter: u64, clock: impl Fn(&Anchor) -> i64) -> i64 {
        let right = self.anchors.partition_point(|a| a.counter <= counter);
        let base = &self.anchors[right.saturating_sub(1)];
        let counts = counter as i128 - i128::from(base.counter);
        let ns_per_count = match (right.checked_sub(1), self.anchors.get(right)) {
            (Some(_), Some(next)) => {
                (clock(next) - clock(base)) as f64 / (next.counter - base.counter) as f64
            }
            _ => crate::NS_PER_S as f64 / self.calibration.hz,
        };
        clock(base) + (counts as f64 * ns_per_count).round() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rate_is_within_10_ppm_of_the_raw_clock() {
        let c = Calibration::measure();
        assert!(c.uncertainty_ppm < 10.0, "{c:?}");
        // checked over an interval of its own
        let a = sandwich(c.kind, Clock::MonotonicRaw);
        std::thread::sleep(std::time::Duration::from_millis(300));
        let b = sandwich(c.kind, Clock::MonotonicRaw);
        let expected_ns = (b.clock_ns - a.clock_ns) as f64;
        let error_ppm = (c.to_ns(b.counter - a.counter) / expected_ns - 1.0).abs() * 1e6;
        assert!(error_ppm < 10.0, "{error_ppm} ppm, {c:?}");
    }

    #[test]
    fn the_fallback_counts_nanoseconds() {
        let c = Calibration::measure_kind(CounterKind::Vdso);
        assert_eq!(c.to_ns(1234), 1234.0);
        assert_eq!((c.from_ns(1234.0), c.at_least_ns(1234.0)), (1234, 1234));
        let a = Vdso::read();
        assert!(Vdso::read() >= a);
    }

    proptest! {
        #[test]
        fn counts_of_at_least_a_time_never_fall_short_of_it(hz in 1e6..1e10f64, ns in 0u64..100_000_000_000) {
            let c = Calibration { kind: CounterKind::Vdso, hz, uncertainty_ppm: 0.0 };
            let counts = c.at_least_ns(ns as f64);
            prop_assert!(c.to_ns(counts) as u64 >= ns, "as whole nanoseconds, too");
            prop_assert!((counts as f64 * c.to_ns(1)) as u64 >= ns);
            prop_assert!(counts <= c.from_ns(ns as f64) + 2);
        }
    }

    #[test]
    fn the_map_agrees_with_the_clocks() {
        for kind in [CounterKind::best(), CounterKind::Vdso] {
            let mut map = ClockMap::new(Calibration::measure_kind(kind));
            std::thread::sleep(std::time::Duration::from_millis(20));
            let s = sandwich(kind, Clock::Tai);
            let m = sandwich(kind, Clock::Monotonic);
            std::thread::sleep(std::time::Duration::from_millis(20));
            map.anchor();
            // a whole microsecond is generous to shared machines; readings are ~50 ns wide
            let wide_ns = 1_000 + map.calibration().to_ns(s.width.max(m.width)) as u64;
            assert!(map.tai_ns(s.counter).abs_diff(s.clock_ns) < wide_ns);
            assert!(map.monotonic_ns(m.counter).abs_diff(m.clock_ns) < wide_ns);
        }
    }
}
