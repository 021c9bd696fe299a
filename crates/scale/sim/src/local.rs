// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine profile fitted to measured MPI programs: what `colony bench` found becomes `local`.
//!
//! Every operation of *m* messages one after the other takes *m · (r + (bytes − 1) · G)* where nothing
//! disturbs it, with *r = 2o + L*: the level engine's own arithmetic. *r* and G follow by least squares of
//! the relative errors. Times of whole operations say no more: how *r* splits into o and L, and g, O and S,
//! are assumed, and the profile says so.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::network::Topology;
use crate::{LogGops, SimError};

/// A program that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measurable {
    /// A barrier: ⌈log₂ n⌉ rounds.
    Barrier,
    /// An allreduce: log₂ n rounds; where n is no power of two two more, which are up to L faster than that.
    Allreduce,
    /// An alltoall of `bytes` for each pair: n − 1 rounds.
    Alltoall,
    /// A token around all ranks: n messages.
    Ring,
}

/// The time of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The operation.
    pub operation: Measurable,
    /// Ranks, at least 2.
    pub ranks: u32,
    /// Size of its messages.
    pub bytes: u64,
    /// Its time, nanoseconds: the median rather than the mean, so that noise is not taken for the network.
    pub ns: f64,
}

impl Measured {
    /// Messages one after the other.
    #[must_use]
    pub fn messages(&self) -> u32 {
        let rounds = self.ranks.checked_ilog2().unwrap_or(0);
        match self.operation {
            Measurable::Alltoall => self.ranks.saturating_sub(1),
            Measurable::Ring => self.ranks,
            _ if self.ranks.is_power_of_two() => rounds,
            Measurable::Barrier => rounds + 1,
            Measurable::Allreduce => rounds + 2,
        }
    }

    fn model_ns(&self, round_ns: f64, per_byte_ns: f64) -> f64 {
        f64::from(self.messages()) * (round_ns + self.bytes.saturating_sub(1) as f64 * per_byte_ns)
    }
}

/// The part of a result of `colony bench` (JSON, schema `colony.bench/2`) that the fit needs.
///
/// ```
/// let text = r#"{ "params": { "program": "allreduce", "bytes": 32 },
///                 "results": [{ "ranks": 2, "all": { "p50_ns": 650 } }] }"#;
/// let report: colony_sim::local::BenchReport = serde_json::from_str(text)?;
/// assert_eq!(report.measured()[0].ns, 650.0);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
pub struct BenchReport {
    params: BenchParams,
    results: Vec<BenchMeasurement>,
}

#[derive(Clone, Debug, Deserialize)]
struct BenchParams {
    program: String,
    bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct BenchMeasurement {
    ranks: u32,
    all: BenchTimes,
}

#[derive(Clone, Debug, Deserialize)]
struct BenchTimes {
    p50_ns: u64,
}

impl BenchReport {
    /// Its medians; none for programs that do more than communicate (`bsp`, `myallreduce`).
    #[must_use]
    pub fn measured(&self) -> Vec<Measured> {
        let operation = match self.params.program.as_str() {
            "barrier" => Measurable::Barrier,
            "allreduce" | "glob" => Measurable::Allreduce,
            "alltoall" => Measurable::Alltoall,
            "ring" => Measurable::Ring,
            _ => return Vec::new(),
        };
        let one = |m: &BenchMeasurement| Measured {
            operation,
            ranks: m.ranks,
            bytes: self.params.bytes,
            ns: m.all.p50_ns as f64,
        };
        self.results.iter().map(one).collect()
    }
}

/// A fitted machine, and how well it fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The machine, named `local`; its sources say what was measured and what assumed.
    pub machine: Machine,
    /// Each measurement with the time that the machine gives it, nanoseconds, in the order given.
    pub residuals: Vec<(Measured, f64)>,
    /// Root of the mean square of the relative errors.
    pub rms: f64,
}

/// Measurements no machine can be fitted to.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// A measurement that is none.
    #[error(
        "measurement {number} ({operation:?}, {ranks} ranks, {ns} ns) needs 2 ranks or more and a time above 0"
    )]
    Measurement {
        /// Its number, from 1.
        number: usize,
        /// Its operation.
        operation: Measurable,
        /// Its ranks.
        ranks: u32,
        /// Its time.
        ns: f64,
    },
    /// Sizes that tell no time a byte.
    #[error("{0} measured size(s) of messages: the time a byte takes two; measure say 32 and 16384 bytes")]
    Sizes(usize),
    /// A time that no machine has.
    #[error(transparent)]
    Machine(#[from] SimError),
}

/// S of Open MPI between processes of one node, bytes.
const EAGER_BYTES: u64 = 4096;

/// The machine that fits `measured` best.
///
/// # Errors
/// [`FitError`] where there is too little, or what is no measurement.
pub fn fit(measured: &[Measured]) -> Result<Fit, FitError> {
    let wrong = |m: &Measured| m.ranks < 2 || !m.ns.is_finite() || m.ns <= 0.0;
    if let Some((i, &Measured { operation, ranks, ns, .. })) =
        measured.iter().enumerate().find(|(_, m)| wrong(m))
    {
        return Err(FitError::Measurement { number: i + 1, operation, ranks, ns });
    }
    let mut sizes: Vec<u64> = measured.iter().map(|m| m.bytes.max(1)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return Err(FitError::Sizes(sizes.len()));
    }
    let (round_ns, per_byte_ns) = least_squares(measured);
    let overhead_ns = (round_ns / 3.0).round() as u64;
    let machine = Machine {
        name: "local".into(),
        sources: sources(measured),
        ranks_per_node: 1,
        loggops: LogGops {
            latency_ns: (round_ns.round() as u64).saturating_sub(2 * overhead_ns),
            overhead_ns,
            gap_ns: 0,
            gap_per_byte_ps: (per_byte_ns * 1e3).round() as u64,
            overhead_per_byte_ps: 0,
            eager_bytes: EAGER_BYTES,
        },
        topology: Topology::Flat,
        inside_ns: None,
        hardware_barrier: None,
        hardware_reduce: None,
    };
    machine.check()?;
    let p = machine.loggops;
    let (round_ns, per_byte_ns) = ((2 * p.overhead_ns + p.latency_ns) as f64, p.gap_per_byte_ps as f64 / 1e3);
    let residuals: Vec<_> = measured.iter().map(|m| (*m, m.model_ns(round_ns, per_byte_ns))).collect();
    let squares: f64 = residuals.iter().map(|(m, model)| (model / m.ns - 1.0).powi(2)).sum();
    Ok(Fit { machine, rms: (squares / residuals.len() as f64).sqrt(), residuals })
}

/// Time of a message of one byte and time of each byte more, neither below 0: the sum of the squares of
/// (model / measured − 1) is least.
fn least_squares(measured: &[Measured]) -> (f64, f64) {
    // columns of the model over the measured time: for the time of a message, for that of a byte
    let (mut aa, mut ab, mut bb, mut a1, mut b1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for m in measured {
        let (a, b) = (m.model_ns(1.0, 0.0) / m.ns, m.model_ns(0.0, 1.0) / m.ns);
        (aa, ab, bb, a1, b1) = (aa + a * a, ab + a * b, bb + b * b, a1 + a, b1 + b);
    }
    let det = aa * bb - ab * ab;
    let (round, byte) = ((a1 * bb - b1 * ab) / det, (b1 * aa - a1 * ab) / det);
    match (round >= 0.0, byte >= 0.0) {
        (true, true) => (round, byte),
        (false, _) => (0.0, b1 / bb),
        (true, false) => (a1 / aa, 0.0),
    }
}

fn sources(measured: &[Measured]) -> Vec<String> {
    let mut ranks: Vec<u32> = measured.iter().map(|m| m.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let ranks = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    vec![
        format!("2o + L and G: least squares of {} medians of `colony bench`; ranks: {ranks}", measured.len()),
        "assumed, for times of whole operations do not tell them: o = L, g and O of nothing, S as Open MPI's \
         between processes of one node"
            .into(),
        "every rank as far from every other as those measured: ranks that share memory make a network as fast \
         as memory"
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use Measurable::{Allreduce, Alltoall, Barrier, Ring};
    use proptest::prelude::*;

    fn points(round_ns: f64, per_byte_ns: f64) -> Vec<Measured> {
        let mut all = Vec::new();
        for operation in [Barrier, Allreduce, Alltoall, Ring] {
            for (ranks, bytes) in [(2, 32), (2, 65_536), (4, 1024), (6, 32)] {
                let bytes = if operation == Barrier { 0 } else { bytes };
                let m = Measured { operation, ranks, bytes, ns: 1.0 };
                all.push(Measured { ns: m.model_ns(round_ns, per_byte_ns), ..m });
            }
        }
        all
    }

    proptest! {
        #[test]
        fn a_machine_is_found_again_from_the_times_it_makes(round in 100u32..100_000, byte_ps in 10u32..100_000) {
            let fit = fit(&points(f64::from(round), f64::from(byte_ps) / 1e3)).expect("enough");
            let p = fit.machine.loggops;
            prop_assert_eq!(2 * p.overhead_ns + p.latency_ns, u64::from(round));
            prop_assert_eq!(p.gap_per_byte_ps, u64::from(byte_ps));
            prop_assert!(fit.rms < 1e-6);
        }
    }

    #[test]
    fn one_disturbed_measurement_shows_in_the_residuals() {
        let mut all = points(1000.0, 0.1);
        all[5].ns *= 1.5;
        let fit = fit(&all).expect("enough");
        let worst = fit.residuals.iter().map(|(m, model)| (model / m.ns - 1.0).abs());
        let worst = worst.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).expect("some");
        assert_eq!(worst.0, 5);
        assert!(fit.rms > 0.05 && fit.rms < 0.15, "{}", fit.rms);
    }

    #[test]
    fn times_are_never_negative_in_the_fit() {
        let at = |bytes, ns| Measured { operation: Ring, ranks: 2, bytes, ns };
        let p = fit(&[at(8, 900.0), at(1 << 20, 800.0)]).expect("enough").machine.loggops;
        assert_eq!(p.gap_per_byte_ps, 0);
        let p = fit(&[at(8, 1.0), at(1 << 10, 90_000.0)]).expect("enough").machine.loggops;
        assert_eq!((p.latency_ns, p.overhead_ns), (0, 0));
    }

    #[test]
    fn too_little_is_refused() {
        let one = Measured { operation: Ring, ranks: 2, bytes: 8, ns: 900.0 };
        assert_eq!(fit(&[]), Err(FitError::Sizes(0)));
        assert_eq!(fit(&[one, one]), Err(FitError::Sizes(1)));
        for m in [Measured { ranks: 1, ..one }, Measured { ns: f64::NAN, ..one }, Measured { ns: 0.0, ..one }]
        {
            assert!(matches!(fit(&[one, m]), Err(FitError::Measurement { number: 2, .. })), "{m:?}");
        }
    }

    #[test]
    fn results_of_the_benchmark_are_read() {
        let text = r#"{ "schema": "colony.bench/2", "params": { "program": "glob", "bytes": 32, "seed": 1 },
            "results": [{ "ranks": 2, "all": { "p50_ns": 500 } }, { "ranks": 4, "all": { "p50_ns": 1000 } }] }"#;
        let all = serde_json::from_str::<BenchReport>(text).expect("reads").measured();
        assert_eq!(
            all.iter().map(|m| (m.operation, m.ranks, m.ns)).collect::<Vec<_>>(),
            [(Allreduce, 2, 500.0), (Allreduce, 4, 1000.0)]
        );
        let bsp = text.replace("glob", "bsp");
        assert!(serde_json::from_str::<BenchReport>(&bsp).expect("reads").measured().is_empty());
    }
}
