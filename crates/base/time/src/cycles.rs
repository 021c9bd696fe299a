// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Blue Gene/L notation: times as 32-bit counts of the 700 MHz processor clock.
//!
//! "The maximum period of 0xffffffff represents approximately 6 seconds on BlueGene/L's
//! 700,000,000 cycles/second processor clock" (Colony Linux kernel technical report, section 3.2).
//! A cycle is 10/7 ns, so every count of cycles survives the way to nanoseconds and back; a count
//! of nanoseconds is off by at most one after the way to cycles and back.

/// Cycles per second of a Blue Gene/L processor.
pub const HZ: u64 = 700_000_000;

/// The longest time the notation can say: `0xffffffff` cycles, 6.135 667 564 s.
pub const MAX_NS: u64 = to_ns(u32::MAX);

/// Nanoseconds of `cycles`, rounded to the nearest.
#[must_use]
pub const fn to_ns(cycles: u32) -> u64 {
    (cycles as u64 * 10 + 3) / 7
}

/// Cycles of `ns`, rounded to the nearest; `None` where 32 bits cannot hold them.
#[must_use]
pub const fn from_ns(ns: u64) -> Option<u32> {
    if ns > MAX_NS {
        return None;
    }
    let cycles = (ns * 7 + 5) / 10;
    if cycles > u32::MAX as u64 { None } else { Some(cycles as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_reports_figures_hold() {
        assert_eq!(MAX_NS, 6_135_667_564);
        // "a duty cycle of 0x7fffffff represents 50% of the cycles in a period"
        assert!(to_ns(0x7fff_ffff).abs_diff(MAX_NS / 2) <= 1);
        // 0xf4000000 leaves 0x0bffffff cycles: 288 ms
        assert!((MAX_NS - to_ns(0xf400_0000)).abs_diff(to_ns(0x0bff_ffff)) <= 1);
        assert_eq!(to_ns(700_000_000), 1_000_000_000);
    }

    proptest! {
        #[test]
        fn cycles_survive_the_way_to_ns_and_back(c: u32) {
            prop_assert_eq!(from_ns(to_ns(c)), Some(c));
        }

        #[test]
        fn ns_come_back_within_one(ns in 0..=MAX_NS) {
            let back = to_ns(from_ns(ns).expect("in range"));
            prop_assert!(back.abs_diff(ns) <= 1);
        }

        #[test]
        fn longer_than_the_notation_is_none(ns in MAX_NS + 1..) {
            prop_assert_eq!(from_ns(ns), None);
        }
    }
}
