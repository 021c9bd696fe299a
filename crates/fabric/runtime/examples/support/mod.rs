// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the examples share: command lines of options with one value each, `--name VALUE`, and load balancing.

#![allow(dead_code, reason = "each example uses a part of this module")]

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use colony_runtime::{BalanceOptions, BalanceReport, Options};

/// Mixes two numbers: the work of objects, checksums, and random numbers of a key.
pub(crate) fn mix(value: u64, with: u64) -> u64 {
    let mixed = (value ^ with).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 32
}

/// The options that were given.
pub(crate) struct Arguments(Vec<(String, String)>);

impl Arguments {
    /// Reads the command line. `usage` names every option, as `[--name VALUE]`.
    fn read(usage: &str) -> Result<Self, String> {
        let mut given: Vec<(String, String)> = Vec::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").filter(|name| usage.contains(&format!("[--{name} ")));
            let Some(name) = name else { return Err(format!("unknown argument `{word}`; usage: {usage}")) };
            let Some(value) = words.next() else {
                return Err(format!("--{name} has no value; usage: {usage}"));
            };
            if given.iter().any(|(known, _)| known == name) {
                return Err(format!("--{name} is given twice; usage: {usage}"));
            }
            given.push((name.to_owned(), value));
        }
        Ok(Self(given))
    }

    /// The text of an option, if it was given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The number of an option.
    pub(crate) fn number<N>(&self, name: &str, default: N, range: RangeInclusive<N>) -> Result<N, String>
    where
        N: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.text(name) else { return Ok(default) };
        let (first, last) = (range.start(), range.end());
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(format!("--{name} is `{text}`, not a number from {first} to {last}")),
        }
    }

    /// The options of a run: `--threads`, and the strategy of `--strategy` at every load balancing. Without load
    /// balancing, if the strategy is `none`.
    pub(crate) fn run_options(&self, strategy: &str) -> Result<Options, String> {
        let threads = self.number("threads", 1, 1..=1024)?;
        let name = self.text("strategy").unwrap_or(strategy);
        let balance = match name {
            "none" => None,
            name => Some(BalanceOptions::strategy(name)?),
        };
        Ok(Options { threads, balance, ..Options::default() })
    }
}

/// One line of a load balancing; loads are those that objects had until then.
pub(crate) fn balancing(report: &BalanceReport) -> String {
    let [before, after] = report.imbalance;
    let (number, strategy, moved) = (report.round + 1, report.strategy.unwrap_or("none"), report.moved);
    format!("balancing {number}: {strategy} moved {moved} objects, imbalance {before:.3} -> {after:.3}")
}

/// Reads the command line by `read`. If it is wrong, ends the process with exit code 2, and one rank of a job prints why.
pub(crate) fn arguments<S>(usage: &str, read: impl FnOnce(&Arguments) -> Result<S, String>) -> S {
    Arguments::read(usage).and_then(|given| read(&given)).unwrap_or_else(|error| {
        let is_other = |name| std::env::var(name).is_ok_and(|rank| rank != "0");
        if is_other("COLONY_JOB_RANK") || is_other("COLONY_RANK") {
            std::process::exit(2);
        }
        eprintln!("error: {error}");
        std::process::exit(2)
    })
}
