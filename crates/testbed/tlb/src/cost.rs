// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time that misses cost on a processor.

use crate::{Counts, Setup};

/// A processor whose TLB misses are handled by software.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Processor {
    /// Clock rate, MHz.
    pub mhz: f64,
    /// Cycles of a miss: the exception, the search of the page table, the new entry.
    pub miss_cycles: f64,
    /// Cycles of an instruction of the emulated program without misses.
    pub cycles_per_instruction: f64,
}

impl Processor {
    /// The PowerPC 440 of Blue Gene/L at 700 MHz. `miss_cycles` is fitted to integer sort of class A (SC06 paper, Table 2: 17.3 s more on
    /// Linux, for 88.5 million misses of ours). `cycles_per_instruction` is fitted, too: the published times without misses of `is`, `cg`
    /// and `ep` are 1.6, 2.8 and 4.4 cycles for an x86 instruction of ours, and this is the geometric mean.
    pub const PPC440: Self = Self { mhz: 700.0, miss_cycles: 137.0, cycles_per_instruction: 2.7 };

    /// Time of so many misses, seconds.
    #[must_use]
    pub fn miss_time_s(&self, misses: u64) -> f64 {
        misses as f64 * self.miss_cycles / (self.mhz * 1e6)
    }

    /// Time of so many instructions without misses, seconds.
    #[must_use]
    pub fn instruction_time_s(&self, instructions: u64) -> f64 {
        instructions as f64 * self.cycles_per_instruction / (self.mhz * 1e6)
    }
}

/// Misses of one page size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Row {
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Misses.
    pub misses: u64,
    /// Misses in 1000 instructions; `None` if there were no instructions.
    pub misses_per_1000_instructions: Option<f64>,
    /// Time of all misses on the processor, seconds.
    pub miss_time_s: f64,
    /// Processor time with these misses, seconds.
    pub time_s: f64,
    /// Misses in a second of that time; `None` if there was no time.
    pub misses_per_second: Option<f64>,
    /// Share of that time that the misses take; `None` if there was no time.
    pub miss_share: Option<f64>,
}

/// A program's misses by page size, and the predicted times.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Prediction {
    /// The TLB.
    pub setup: Setup,
    /// The processor.
    pub processor: Processor,
    /// CPUs on which user code ran. All counts and times are sums over them.
    pub cpus: u32,
    /// Instructions of user code.
    pub instructions: u64,
    /// Reads and writes of user code.
    pub accesses: u64,
    /// Blocks of instructions that were fetched through the TLB.
    pub fetches: u64,
    /// Processor time without misses, seconds: given, or computed from instructions.
    pub base_time_s: f64,
    /// Set if `base_time_s` was given.
    pub base_time_given: bool,
    /// A row for each page size, ascending.
    pub rows: Vec<Row>,
}

/// Processor times of a program: `base_s` seconds without misses, or as long as its instructions take.
#[must_use]
pub fn predict(setup: &Setup, counts: &Counts, processor: Processor, base_s: Option<f64>) -> Prediction {
    let base_time_s = base_s.unwrap_or_else(|| processor.instruction_time_s(counts.instructions));
    let over = |dividend: f64, divisor: f64| (divisor > 0.0).then(|| dividend / divisor);
    let row = |(&shift, misses): (&u32, u64)| {
        let miss_time_s = processor.miss_time_s(misses);
        let time_s = base_time_s + miss_time_s;
        Row {
            page_bytes: 1 << shift,
            misses,
            misses_per_1000_instructions: over(misses as f64 * 1e3, counts.instructions as f64),
            miss_time_s,
            time_s,
            misses_per_second: over(misses as f64, time_s),
            miss_share: over(miss_time_s, time_s),
        }
    };
    Prediction {
        setup: setup.clone(),
        processor,
        cpus: counts.cpus,
        instructions: counts.instructions,
        accesses: counts.accesses,
        fetches: counts.fetches,
        base_time_s,
        base_time_given: base_s.is_some(),
        rows: setup.page_shifts().iter().zip(counts.misses).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESSOR: Processor = Processor { mhz: 100.0, miss_cycles: 50.0, cycles_per_instruction: 2.0 };

    fn counts() -> Counts {
        let mut counts = Counts { instructions: 100_000_000, accesses: 9, fetches: 8, ..Counts::default() };
        (counts.misses[0], counts.misses[1]) = (4_000_000, 0);
        counts
    }

    #[test]
    fn the_time_is_that_of_the_instructions_and_of_the_misses() {
        let found = predict(&Setup::ppc440(), &counts(), PROCESSOR, None);
        let [small, medium, _] = &found.rows[..] else { panic!("three sizes") };
        assert_eq!((found.base_time_s, small.miss_time_s, small.time_s), (2.0, 2.0, 4.0));
        assert_eq!((small.misses_per_second, small.miss_share), (Some(1e6), Some(0.5)));
        assert_eq!((small.page_bytes, small.misses_per_1000_instructions), (4096, Some(40.0)));
        assert_eq!((medium.misses_per_second, medium.time_s), (Some(0.0), 2.0));
    }

    #[test]
    fn a_given_time_replaces_that_of_the_instructions() {
        let found = predict(&Setup::ppc440(), &counts(), PROCESSOR, Some(6.0));
        assert_eq!((found.rows[0].time_s, found.rows[0].miss_share), (8.0, Some(0.25)));
    }

    #[test]
    fn a_program_that_did_nothing_has_no_rates() {
        let found = predict(&Setup::ppc440(), &Counts::default(), PROCESSOR, None);
        let row = found.rows[0];
        let rates = [row.misses_per_1000_instructions, row.misses_per_second, row.miss_share];
        assert_eq!(rates, [None; 3]);
    }
}
