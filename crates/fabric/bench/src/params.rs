// SPDX-License-Identifier: MIT OR Apache-2.0
use std::ffi::OsString;

use colony_time::text::Ns;
use colony_time::{DutyCycle, Windows};
use serde::{Deserialize, Serialize};

use crate::{ParamsError, Program};

/// Phase of the detours of different ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Every rank has a phase of its own, drawn from the seed
    #[default]
    Random,
    /// All at the same instants: multiples of the interval in TAI
    Aligned,
}

/// In-process detours by timer signal (Initial Results: Experiments on Watson BlueGene/L).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detours {
    /// Length of each.
    pub length_ns: u64,
    /// Interval from start to start.
    pub every_ns: u64,
    /// Phase of the ranks.
    pub phase: Phase,
}

impl Detours {
    /// Phase of `rank` in the interval, `0..every_ns`: 0 for all where aligned, else drawn from the seed.
    #[must_use]
    pub fn phase_ns(&self, seed: u64, rank: u32) -> u64 {
        match self.phase {
            Phase::Aligned => 0,
            Phase::Random => split_mix(split_mix(seed).wrapping_add(rank.into())) % self.every_ns.max(1),
        }
    }

    /// First start at or after `tai_ns` + 1 interval, so that the timer is surely set before it.
    #[must_use]
    pub fn first_ns(&self, tai_ns: i64, seed: u64, rank: u32) -> i64 {
        let every = i128::from(self.every_ns.max(1));
        let multiple = (i128::from(tai_ns).div_euclid(every) + 2) * every;
        (multiple + i128::from(self.phase_ns(seed, rank))) as i64
    }
}

/// `SplitMix64`: a well-mixed number from any.
const fn split_mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Everything needed to run a benchmark program again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// The program.
    pub program: Program,
    /// Stop after this many operations (a communicator size, in `glob`).
    pub ops: Option<u64>,
    /// Stop after this many seconds (a communicator size, in `glob`); whichever comes first.
    pub seconds: Option<f64>,
    /// Operations before the measurement, not counted.
    pub warmup: u64,
    /// Bytes of an operation: the reduced vector, the token, or what each pair of `alltoall` exchanges.
    pub bytes: u64,
    /// Work of each `bsp` operation, on an undisturbed CPU; 0 in the other programs.
    pub work_ns: u64,
    /// Detours to run in every rank.
    pub detours: Option<Detours>,
    /// Seed of the detours' phases.
    pub seed: u64,
    /// Windows to split the operations by, by their start.
    pub windows: Option<Windows>,
    /// Number of slowest operations to keep, with their start.
    pub slowest: u32,
    /// Bucket length of the time series; `None` for none.
    pub timeline_ns: Option<u64>,
    /// Blocks of the comparison with the same loop in C; 0 for none.
    pub compare_blocks: u32,
    /// Operations of a block of the comparison.
    pub compare_ops: u64,
}

impl Params {
    /// The defaults of `program`, the seeds' where they name one.
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self {
            program,
            ops: Some(program.default_ops()),
            seconds: None,
            warmup: if program == Program::Bsp { 10 } else { 1000 },
            bytes: program.default_bytes(),
            work_ns: if program == Program::Bsp { 1_000_000 } else { 0 },
            detours: None,
            seed: 1,
            windows: None,
            slowest: 32,
            timeline_ns: None,
            compare_blocks: 0,
            compare_ops: 5_000,
        }
    }

    /// Checks that the program can be run so.
    ///
    /// # Errors
    /// [`ParamsError`] names the first thing that cannot be.
    pub fn check(&self) -> Result<(), ParamsError> {
        let program = self.program;
        let wrong = |option: &'static str, why: String| Err(ParamsError { program, option, why });
        if self.ops.is_none() && self.seconds.is_none() {
            return wrong("--ops", "neither a number of operations nor a time to stop at is given".into());
        }
        if self.ops == Some(0) {
            return wrong("--ops", "no operation leaves nothing to measure; give at least 1".into());
        }
        if self.seconds.is_some_and(|s| !(s.is_finite() && s > 0.0 && s <= 1e6)) {
            return wrong("--seconds", "give a time above 0 and up to 1000000 seconds".into());
        }
        self.check_size()?;
        if let Some(d) = self.detours
            && (d.length_ns == 0 || d.length_ns >= d.every_ns)
        {
            let (length, every) = (Ns(d.length_ns), Ns(d.every_ns));
            let why = format!(
                "a detour of {length} every {every} is not possible; it must be longer than 0 and shorter than its interval"
            );
            return wrong("--detour", why);
        }
        if self.slowest > 100_000 {
            return wrong("--slowest", "at most 100000 operations are kept".into());
        }
        if self.timeline_ns.is_some_and(|b| b < 10_000) {
            return wrong("--timeline", "a bucket is at least 10us".into());
        }
        if self.compare_blocks > 0 && program != Program::Allreduce {
            return wrong("--compare-c", "only allreduce has a twin in C".into());
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), ParamsError> {
        const LIMIT: u64 = 1 << 28;
        let (program, bytes) = (self.program, self.bytes);
        let wrong = |option: &'static str, why: String| Err(ParamsError { program, option, why });
        match program {
            Program::Barrier | Program::Bsp if bytes != 0 => {
                wrong("--bytes", "it moves no data; leave the option out".into())
            }
            Program::Barrier | Program::Bsp => Ok(()),
            _ if bytes > LIMIT => wrong("--bytes", format!("{bytes} is too large; at most {LIMIT}")),
            Program::Allreduce | Program::Glob if bytes == 0 || bytes % 16 != 0 => {
                wrong("--bytes", format!("{bytes} is no multiple of 16 above 0 (pairs of doubles)"))
            }
            Program::Myallreduce | Program::Ring if bytes == 0 || bytes % 8 != 0 => {
                wrong("--bytes", format!("{bytes} is no multiple of 8 above 0"))
            }
            Program::Alltoall if bytes == 0 => wrong("--bytes", "each pair exchanges at least 1".into()),
            _ => Ok(()),
        }?;
        match (program, self.work_ns) {
            (Program::Bsp, 1_000..=10_000_000_000) => Ok(()),
            (Program::Bsp, ns) => wrong("--work", format!("{} is not in 1us..=10s", Ns(ns))),
            (_, 0) => Ok(()),
            _ => wrong("--work", "only bsp works between its operations; leave the option out".into()),
        }
    }

    /// The command line of `colony-bench` that gives these parameters.
    #[must_use]
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![self.program.name().into()];
        let mut option = |name: &str, value: String| args.push(format!("--{name}={value}").into());
        if let Some(ops) = self.ops {
            option("ops", ops.to_string());
        }
        if let Some(seconds) = self.seconds {
            option("seconds", seconds.to_string());
        }
        option("warmup", self.warmup.to_string());
        if self.bytes != 0 {
            option("bytes", self.bytes.to_string());
        }
        if self.work_ns != 0 {
            option("work", Ns(self.work_ns).to_string());
        }
        option("seed", self.seed.to_string());
        if let Some(d) = self.detours {
            option("detour", Ns(d.length_ns).to_string());
            option("every", Ns(d.every_ns).to_string());
            option("phase", if d.phase == Phase::Random { "random" } else { "aligned" }.into());
        }
        if let Some(w) = self.windows {
            option("period", Ns(w.period_ns()).to_string());
            option("duty", DutyCycle::Ns(w.favored_ns()).to_string());
            option("epoch-ns", w.epoch_ns().to_string());
        }
        option("slowest", self.slowest.to_string());
        if let Some(ns) = self.timeline_ns {
            option("timeline", Ns(ns).to_string());
        }
        if self.compare_blocks != 0 {
            option("compare-c", self.compare_blocks.to_string());
            option("compare-ops", self.compare_ops.to_string());
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_detours_start_at_multiples_and_random_ones_by_the_seed() {
        let mut d = Detours { length_ns: 16_000, every_ns: 1_000_000, phase: Phase::Aligned };
        assert!((0..8).all(|rank| d.first_ns(123_456_789, 7, rank) == 125_000_000));
        d.phase = Phase::Random;
        let starts = |seed| (0..64).map(|r| d.first_ns(123_456_789, seed, r)).collect::<Vec<_>>();
        assert_eq!(starts(7), starts(7), "the seed decides");
        assert_ne!(starts(7), starts(8));
        let (low, high) = starts(7).into_iter().fold((0, 0), |(low, high), s| {
            assert!((125_000_000..126_000_000).contains(&s));
            if s < 125_500_000 { (low + 1, high) } else { (low, high + 1) }
        });
        assert!(low > 16 && high > 16, "spread over the interval: {low} and {high}");
    }

    #[test]
    fn every_program_runs_with_its_defaults() {
        for program in Program::ALL {
            Params::new(program).check().expect("defaults work");
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let base = Params::new(Program::Allreduce);
        let detours = |length_ns| Some(Detours { length_ns, every_ns: 1000, phase: Phase::Random });
        for (option, params) in [
            ("--ops", Params { ops: None, ..base.clone() }),
            ("--ops", Params { ops: Some(0), ..base.clone() }),
            ("--seconds", Params { seconds: Some(f64::NAN), ..base.clone() }),
            ("--seconds", Params { seconds: Some(-1.0), ..base.clone() }),
            ("--bytes", Params { bytes: 24, ..base.clone() }),
            ("--bytes", Params { bytes: u64::MAX - 15, ..base.clone() }),
            ("--bytes", Params { bytes: 8, ..Params::new(Program::Barrier) }),
            ("--bytes", Params { bytes: 0, ..Params::new(Program::Alltoall) }),
            ("--work", Params { work_ns: 1_000_000, ..base.clone() }),
            ("--work", Params { work_ns: 0, ..Params::new(Program::Bsp) }),
            ("--detour", Params { detours: detours(1000), ..base.clone() }),
            ("--detour", Params { detours: detours(0), ..base.clone() }),
            ("--compare-c", Params { compare_blocks: 3, ..Params::new(Program::Glob) }),
        ] {
            let error = params.check().expect_err(option);
            assert!(error.to_string().contains(option), "{error}");
        }
    }
}
