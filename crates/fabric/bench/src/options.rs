// SPDX-License-Identifier: MIT OR Apache-2.0
use colony_time::text::{TextError, parse_duty, parse_ns};
use colony_time::{DutyCycle, Windows};

use crate::{Detours, Params, ParamsError, Phase, Program};

/// The options of a benchmark program, for the command lines of `colony-bench` and `colony bench`.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Options {
    /// Stop after this many operations [default: glob 500000, bsp 10000, else 100000; none with --seconds]
    #[arg(long, value_name = "N", help_heading = "Length")]
    pub ops: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", help_heading = "Length")]
    pub seconds: Option<f64>,
    /// Operations before the measurement, not counted [default: a tenth of --ops, at most 1000, bsp 10]
    #[arg(long, value_name = "N", help_heading = "Length")]
    pub warmup: Option<u64>,
    /// Bytes of an operation; alltoall: of each pair [default: 32]
    #[arg(long, value_name = "N")]
    pub bytes: Option<u64>,
    /// Work of each bsp operation, on an undisturbed CPU [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub work: Option<u64>,
    /// Run detours of this length in every rank, by a timer signal
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Detours")]
    pub detour: Option<u64>,
    /// Interval of the detours, start to start [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "detour", help_heading = "Detours")]
    pub every: Option<u64>,
    /// Phase of the detours of different ranks
    #[arg(long, value_enum, requires = "detour", help_heading = "Detours")]
    pub phase: Option<Phase>,
    /// Seed of the detours' phases
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Detours")]
    pub seed: u64,
    /// Split the operations by windows of this period (favored, regular)
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Windows")]
    pub period: Option<u64>,
    /// Favored share of the period: 95%, 95ms or Blue Gene/L cycles [default: 95%]
    #[arg(long, value_name = "SHARE", value_parser = duty, requires = "period", help_heading = "Windows")]
    pub duty: Option<DutyCycle>,
    /// TAI instant of phase 0, in nanoseconds
    #[arg(
        long,
        value_name = "NS",
        requires = "period",
        allow_negative_numbers = true,
        help_heading = "Windows"
    )]
    pub epoch_ns: Option<i64>,
    /// Keep this many of the slowest operations, with their start
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Record")]
    pub slowest: u32,
    /// Also give a time series: operations and the slowest, by buckets of this length
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Record")]
    pub timeline: Option<u64>,
    /// Also run the same loop in C, block by block in turn, and give the ratio (allreduce)
    #[arg(long, value_name = "BLOCKS", num_args = 0..=1, default_missing_value = "51", help_heading = "Record")]
    pub compare_c: Option<u32>,
    /// Operations of a block of the comparison [default: 5000]
    #[arg(long, value_name = "N", requires = "compare_c", help_heading = "Record")]
    pub compare_ops: Option<u64>,
}

fn time(text: &str) -> Result<u64, TextError> {
    parse_ns(text)
}

fn duty(text: &str) -> Result<DutyCycle, TextError> {
    parse_duty(text)
}

impl Options {
    /// Interval of detours unless told otherwise.
    const EVERY_NS: u64 = 1_000_000;

    /// The parameters of `program` with these options, checked.
    ///
    /// # Errors
    /// [`ParamsError`] names the option that cannot be.
    pub fn params(&self, program: Program) -> Result<Params, ParamsError> {
        let base = Params::new(program);
        let ops = self.ops.or(if self.seconds.is_some() { None } else { base.ops });
        let warmup = base.warmup.min(ops.map_or(u64::MAX, |n| n / 10));
        let windows = self.period.map(|period_ns| {
            let duty = self.duty.unwrap_or(DutyCycle::Ppm(950_000));
            Windows::new(period_ns, duty, self.epoch_ns.unwrap_or(0)).map_err(|e| ParamsError {
                program,
                option: "--period and --duty",
                why: e.to_string(),
            })
        });
        let params = Params {
            program,
            ops,
            seconds: self.seconds,
            warmup: self.warmup.unwrap_or(warmup),
            bytes: self.bytes.unwrap_or(base.bytes),
            work_ns: self.work.unwrap_or(base.work_ns),
            detours: self.detour.map(|length_ns| Detours {
                length_ns,
                every_ns: self.every.unwrap_or(Self::EVERY_NS),
                phase: self.phase.unwrap_or_default(),
            }),
            seed: self.seed,
            windows: windows.transpose()?,
            slowest: self.slowest,
            timeline_ns: self.timeline,
            compare_blocks: self.compare_c.unwrap_or(0),
            compare_ops: self.compare_ops.unwrap_or(base.compare_ops),
        };
        params.check()?;
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use proptest::prelude::*;

    #[derive(Debug, Parser)]
    struct Cli {
        program: Program,
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &[&str]) -> Result<Params, ParamsError> {
        let cli = Cli::try_parse_from([&["x"], args].concat()).expect("known options");
        cli.options.params(cli.program)
    }

    #[test]
    fn the_seeds_lengths_are_the_defaults() {
        let glob = parse(&["glob"]).expect("valid");
        assert_eq!((glob.ops, glob.bytes, glob.warmup), (Some(500_000), 32, 1000));
        let bsp = parse(&["bsp"]).expect("valid");
        assert_eq!((bsp.ops, bsp.work_ns, bsp.bytes), (Some(10_000), 1_000_000, 0));
        assert_eq!(parse(&["bsp", "--ops", "50"]).expect("valid").warmup, 5);
        assert_eq!(parse(&["ring", "--seconds", "2"]).expect("valid").ops, None, "time alone decides");
    }

    #[test]
    fn wrong_use_is_refused() {
        for args in [
            &["allreduce", "--phase", "aligned"][..],
            &["allreduce", "--every", "1ms"],
            &["allreduce", "--duty", "50%"],
            &["allreduce", "--detour", "16"],
            &["nothing"],
            &["allreduce", "--ops=-1"],
        ] {
            Cli::try_parse_from([&["x"], args].concat()).expect_err("wrong use");
        }
        let error = parse(&["ring", "--period", "1s", "--duty", "100%"]).expect_err("no regular window");
        assert!(error.to_string().contains("regular window"), "{error}");
    }

    fn params() -> impl Strategy<Value = Params> {
        let program = prop::sample::select(&Program::ALL[..]);
        let windows = prop::option::of((1000u64..1 << 40, any::<i64>())).prop_map(|w| {
            w.map(|(period, epoch)| Windows::new(period, DutyCycle::Ns(period / 2), epoch).expect("valid"))
        });
        let detours = prop::option::of((1u64..1 << 30, any::<bool>())).prop_map(|d| {
            d.map(|(length_ns, aligned)| Detours {
                length_ns,
                every_ns: length_ns * 3,
                phase: if aligned { Phase::Aligned } else { Phase::Random },
            })
        });
        let length = (prop::option::of(1u64..), prop::option::of(0.001f64..1e5), any::<u64>());
        let rest = (any::<u64>(), 0u32..1000, prop::option::of(10_000u64..1 << 40), 0u32..100, 1u64..1 << 20);
        (program, windows, detours, length, rest).prop_map(|(program, windows, detours, length, rest)| {
            let base = Params::new(program);
            let (ops, seconds, warmup) = length;
            let (seed, slowest, timeline_ns, blocks, size) = rest;
            let compare = program == Program::Allreduce && blocks > 0;
            Params {
                ops: ops.or(if seconds.is_none() { Some(5) } else { None }),
                seconds,
                warmup,
                bytes: if base.bytes == 0 { 0 } else { size * 16 },
                work_ns: if base.work_ns == 0 { 0 } else { 999 + size },
                detours,
                seed,
                windows,
                slowest,
                timeline_ns,
                compare_blocks: if compare { blocks } else { 0 },
                compare_ops: if compare { size } else { base.compare_ops },
                ..base
            }
        })
    }

    proptest! {
        #[test]
        fn the_command_line_of_parameters_gives_them_back(params in params()) {
            let args = std::iter::once("x".into()).chain(params.to_args());
            let cli = Cli::try_parse_from(args).expect("our own words");
            prop_assert_eq!(cli.options.params(cli.program), Ok(params));
        }
    }
}
