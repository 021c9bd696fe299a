// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise daemon of the Colony Linux kernel technical report (appendix A.1, section 3.1.7): it
//! calculates π by Leibniz' series with a random number of terms, sleeps 500 ms, and starts over.
//!
//! The report's program uses `long double`, this one `f64`: the type of a processor's vector
//! unit has, and only the time counts, which is [calibrated](terms_per_s). Each CPU gets a daemon of its
//! own, of the ordinary scheduling class, as the daemons are that it stands for.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use colony_node::{class::Class, cpu, cpu::CpuSet, record::NodeRecord};
use colony_time::clock::Clock;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::InjectError;
use super::injector::enter;
use super::schedule::random_of;
use super::threads::{DAEMON, Stop, join, spawn};

/// Sleep after each calculation (section 3.1.7).
pub const SLEEP_NS: u64 = 500_000_000;
/// Terms every calculation has, whatever the random number (appendix A.1).
const FEWEST_TERMS: u64 = 10;
/// Largest upper bound of terms: hours of calculation on any processor.
pub const MOST_TERMS: u64 = 1 << 48;
/// Largest noise share that can be asked for.
pub const MOST_NOISE: f64 = 0.95;
/// Terms between two looks at the stop flag; some milliseconds.
const STRIDE: u64 = 1 << 20;

/// π by Leibniz' series, in the order of operations of the report's program.
#[derive(Clone, Debug)]
pub struct Calculation {
    term: u64,
    denominator: f64,
    pi: f64,
}

impl Default for Calculation {
    fn default() -> Self {
        Self { term: 0, denominator: 1.0, pi: 0.0 }
    }
}

impl Calculation {
    /// Adds the next `terms` terms.
    #[inline(never)]
    pub fn advance(&mut self, terms: u64) {
        for term in self.term..self.term.saturating_add(terms) {
            let quotient = 4.0 / self.denominator;
            if term & 1 == 1 {
                self.pi -= quotient;
            } else {
                self.pi += quotient;
            }
            self.denominator += 2.0;
        }
        self.term = self.term.saturating_add(terms);
        // a result somebody may look at: without it the loop could be left out
        black_box(self.pi);
    }

    /// The sum so far.
    #[must_use]
    pub fn pi(&self) -> f64 {
        self.pi
    }
}

/// Terms the calling thread calculates in a second of processor time: the median of 15 runs of some
/// milliseconds. The first runs, while caches and frequency settle, only find the number of terms.
#[must_use]
pub fn terms_per_s() -> f64 {
    let time = |terms: u64| {
        let before_ns = Clock::ThreadCpu.now_ns();
        black_box(Calculation::default()).advance(black_box(terms));
        (Clock::ThreadCpu.now_ns() - before_ns).max(1) as f64
    };
    let mut terms = 50_000;
    while time(terms) < 2e6 && terms < MOST_TERMS {
        terms *= 2;
    }
    let mut speeds: Vec<f64> = (0..15).map(|_| terms as f64 / time(terms) * 1e9).collect();
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}

/// [`terms_per_s`] of a CPU.
///
/// # Errors
/// [`InjectError::Node`] where the CPU cannot be used.
pub fn terms_per_s_of(cpu: usize) -> Result<f64, InjectError> {
    let name = "the thread that calibrates";
    let thread = std::thread::Builder::new()
        .spawn(move || cpu::pin(cpu).and_then(|()| enter(Class::Other(0))).map(|()| terms_per_s()))
        .map_err(|source| InjectError::Thread { thread: name, source })?;
    Ok(thread.join().map_err(|_| InjectError::Panicked { thread: name })??)
}

/// Mean number of terms of a calculation of `random % max_terms + 10` terms.
#[must_use]
pub fn mean_terms(max_terms: u64) -> f64 {
    max_terms.saturating_sub(1) as f64 / 2.0 + FEWEST_TERMS as f64
}

/// Noise share as the report defines it, mean calculation time over sleep: "an average 10,000 microsecond
/// calculation followed by the fixed 500,000 microsecond sleep […] was termed 2% Noise Overhead".
#[must_use]
pub fn predicted_noise(max_terms: u64, terms_per_s: f64) -> f64 {
    mean_terms(max_terms) / terms_per_s * 1e9 / SLEEP_NS as f64
}

/// The upper bound of terms that makes the noise share `noise`; the reverse of [`predicted_noise`].
#[must_use]
pub fn max_terms_for(noise: f64, terms_per_s: f64) -> u64 {
    let mean = noise * SLEEP_NS as f64 / 1e9 * terms_per_s;
    ((2.0 * (mean - FEWEST_TERMS as f64) + 1.0).round() as u64).clamp(1, MOST_TERMS)
}

/// A noise share of what people write: `21%`, `0.21`.
///
/// # Errors
/// [`InjectError::NoiseText`] for text that is none, [`InjectError::Noise`] for one out of range.
pub fn parse_noise(text: &str) -> Result<f64, InjectError> {
    let number = |t: &str, whole: f64| t.trim().parse::<f64>().ok().map(|n| n / whole);
    let noise = match text.trim().strip_suffix('%') {
        Some(percent) => number(percent, 100.0),
        None => number(text, 1.0),
    };
    check_noise(noise.ok_or_else(|| InjectError::NoiseText { text: text.chars().take(40).collect() })?)
}

fn check_noise(noise: f64) -> Result<f64, InjectError> {
    if noise > 0.0 && noise <= MOST_NOISE {
        return Ok(noise);
    }
    Err(InjectError::Noise { noise: noise * 100.0, limit: MOST_NOISE * 100.0 })
}

pub(super) fn check_terms(max_terms: u64) -> Result<u64, InjectError> {
    match max_terms {
        1..=MOST_TERMS => Ok(max_terms),
        _ => Err(InjectError::Terms { max_terms, limit: MOST_TERMS }),
    }
}

/// The amount of noise that a daemon makes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// This share (0.21 is 21 %), for which the upper bound of terms is calibrated on this machine.
    Noise(f64),
    /// This upper bound of terms, `maxTermsPerCalc` of the report.
    MaxTerms(u64),
}

/// Noise daemons to run. The default is 2 % on every usable CPU for 10 s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeibnizPlan {
    /// The amount of noise.
    pub amount: Amount,
    /// The CPUs, one daemon each; `None` is every usable one.
    pub cpus: Option<CpuSet>,
    /// Seed of the random numbers of terms.
    pub seed: u64,
    /// This node's number; it makes its random numbers differ from another node's.
    pub node: u32,
    /// Duration of the run; `u64::MAX`: until the stop flag is set.
    pub duration_ns: u64,
}

impl Default for LeibnizPlan {
    fn default() -> Self {
        Self { amount: Amount::Noise(0.02), cpus: None, seed: 1, node: 0, duration_ns: 10_000_000_000 }
    }
}

impl LeibnizPlan {
    /// Runs the daemons. Blocks until they are over or `stop` is set (then for a sleep, 500 ms, at most).
    ///
    /// # Errors
    /// [`InjectError`] for a plan that cannot be.
    pub fn run(&self, stop: &AtomicBool) -> Result<LeibnizReport, InjectError> {
        let cpus = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => cpu::usable()?,
        };
        cpu::check(&cpus)?;
        if self.duration_ns == 0 {
            return Err(InjectError::Empty { run: "a noise daemon" });
        }
        let wished = match self.amount {
            Amount::Noise(noise) => Amount::Noise(check_noise(noise)?),
            Amount::MaxTerms(terms) => Amount::MaxTerms(check_terms(terms)?),
        };
        let terms_per_s = terms_per_s_of(cpus.first().unwrap_or(0))?;
        let (max_terms, noise_asked) = match wished {
            Amount::Noise(noise) => (max_terms_for(noise, terms_per_s), noise),
            Amount::MaxTerms(terms) => (terms, predicted_noise(terms, terms_per_s)),
        };
        let node = NodeRecord::now();
        let before_ns = Clock::Monotonic.now_ns();
        let end_ns = before_ns.saturating_add_unsigned(self.duration_ns);
        let failed = AtomicBool::new(false);
        let stop = Stop { asked: stop, failed: &failed };
        let done = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for cpu in cpus.iter() {
                let daemon = Daemon { cpu, max_terms, sleep_ns: SLEEP_NS, end_ns, calculations: u64::MAX };
                let random = random_of(self.seed, self.node, cpu);
                threads
                    .push(spawn(scope, stop, DAEMON, move || stop.unless_failed(daemon.run(random, stop)))?);
            }
            threads.into_iter().map(|t| join(t, DAEMON)?).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(LeibnizReport {
            schema: LeibnizReport::SCHEMA.into(),
            plan: self.clone(),
            terms_per_s,
            max_terms,
            noise_asked,
            elapsed_s: (Clock::Monotonic.now_ns() - before_ns) as f64 / 1e9,
            stopped: stop.asked.load(Ordering::Relaxed),
            cpus: done,
            warnings: node.warnings(),
            node,
        })
    }
}

/// One CPU's daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Daemon {
    pub(super) cpu: usize,
    pub(super) max_terms: u64,
    pub(super) sleep_ns: u64,
    /// Monotonic instant at which it ends,
    pub(super) end_ns: i64,
    /// or after this many calculations.
    pub(super) calculations: u64,
}

impl Daemon {
    /// Makes the calling thread this daemon.
    pub(super) fn run(self, mut random: impl RngExt, stop: Stop<'_>) -> Result<CpuNoise, InjectError> {
        cpu::pin(self.cpu)?;
        enter(Class::Other(0))?;
        let begin_ns = Clock::Monotonic.now_ns();
        let begin_cpu_ns = Clock::ThreadCpu.now_ns();
        let over = || stop.is_set() || Clock::Monotonic.now_ns() >= self.end_ns;
        let (mut calculations, mut all_terms, mut cpu_ns, mut wall_ns) = (0, 0, 0, 0);
        while calculations < self.calculations && !over() {
            let terms = random.random_range(0..self.max_terms) + FEWEST_TERMS;
            let (wall_before, cpu_before) = (Clock::Monotonic.now_ns(), Clock::ThreadCpu.now_ns());
            if !calculate(terms, over) {
                break;
            }
            cpu_ns += Clock::ThreadCpu.now_ns() - cpu_before;
            wall_ns += Clock::Monotonic.now_ns() - wall_before;
            calculations += 1;
            all_terms += terms;
            let wake_ns = Clock::Monotonic.now_ns().saturating_add_unsigned(self.sleep_ns);
            Clock::Monotonic.sleep_until(wake_ns.min(self.end_ns));
        }
        let per = |sum: f64, n: f64| if n > 0.0 { sum / n } else { 0.0 };
        let mean_calculation_ns = per(cpu_ns as f64, calculations as f64);
        let term_ns = per(cpu_ns as f64, all_terms as f64);
        let cpu_time_ns = Clock::ThreadCpu.now_ns() - begin_cpu_ns;
        Ok(CpuNoise {
            cpu: self.cpu,
            calculations,
            terms: all_terms,
            mean_calculation_ns,
            mean_elapsed_ns: per(wall_ns as f64, calculations as f64),
            noise: mean_calculation_ns / SLEEP_NS as f64,
            noise_long_run: term_ns * mean_terms(self.max_terms) / SLEEP_NS as f64,
            cpu_time_ns: cpu_time_ns as u64,
            cpu_share: per(cpu_time_ns as f64, (Clock::Monotonic.now_ns() - begin_ns) as f64),
        })
    }
}

/// One calculation; whether it came to its end before `over`.
fn calculate(terms: u64, over: impl Fn() -> bool) -> bool {
    let mut calculation = black_box(Calculation::default());
    let mut left = terms;
    while left > 0 {
        let now = left.min(STRIDE);
        calculation.advance(now);
        left -= now;
        if left > 0 && over() {
            return false;
        }
    }
    true
}

/// The record of the daemon of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuNoise {
    /// The CPU.
    pub cpu: usize,
    /// Calculations that came to their end.
    pub calculations: u64,
    /// Their terms.
    pub terms: u64,
    /// Mean processor time of a calculation.
    pub mean_calculation_ns: f64,
    /// Mean time of a calculation from start to end: longer where others had the CPU meanwhile.
    pub mean_elapsed_ns: f64,
    /// Noise share made: mean processor time of a calculation over the sleep of 500 ms.
    pub noise: f64,
    /// Noise share the daemon tends to at the speed measured: free of the luck of few random numbers.
    pub noise_long_run: f64,
    /// Processor time used, all in all.
    pub cpu_time_ns: u64,
    /// Share of the CPU used; below the noise share, which is a part of the sleep and not of all time.
    pub cpu_share: f64,
}

/// Leibniz noise asked for and made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeibnizReport {
    /// [`LeibnizReport::SCHEMA`].
    pub schema: String,
    /// The plan.
    pub plan: LeibnizPlan,
    /// Terms a second, calibrated on the first CPU.
    pub terms_per_s: f64,
    /// Upper bound of terms used.
    pub max_terms: u64,
    /// Noise share asked for, or that the terms asked for should make.
    pub noise_asked: f64,
    /// Seconds the daemons ran.
    pub elapsed_s: f64,
    /// True if the stop flag ended the run.
    pub stopped: bool,
    /// The record of each CPU's daemon.
    pub cpus: Vec<CpuNoise>,
    /// Warnings about the validity of the figures.
    pub warnings: Vec<String>,
    /// The node.
    pub node: NodeRecord,
}

impl LeibnizReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.inject.leibniz/1";
}

impl fmt::Display for LeibnizReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Leibniz noise of {:.2} % ({} terms at most, {:.1} M terms/s), {:.1} s",
            self.noise_asked * 100.0,
            self.max_terms,
            self.terms_per_s / 1e6,
            self.elapsed_s
        )?;
        writeln!(
            f,
            "{:>4} {:>12} {:>14} {:>14} {:>9} {:>11} {:>8}",
            "CPU", "calculations", "mean CPU us", "mean wall us", "noise %", "long run %", "CPU %"
        )?;
        for c in &self.cpus {
            writeln!(
                f,
                "{:>4} {:>12} {:>14.0} {:>14.0} {:>9.2} {:>11.2} {:>8.2}",
                c.cpu,
                c.calculations,
                c.mean_calculation_ns / 1e3,
                c.mean_elapsed_ns / 1e3,
                c.noise * 100.0,
                c.noise_long_run * 100.0,
                c.cpu_share * 100.0
            )?;
        }
        self.warnings.iter().try_for_each(|w| writeln!(f, "note: {w}"))
    }
}

#[cfg(test)]
mod tests;
