// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise half of a [`Node`](crate::Node) on real Linux: measuring and injecting, nothing scheduled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use colony_inject::leibniz::{predicted_noise, terms_per_s_of};
use colony_inject::{Amount, LeibnizPlan, LeibnizReport};
use colony_measure::selfish;
use colony_measure::{self as measure, Attribution, Measurement};
use colony_node::cpu::CpuSet;
use colony_project::{Steal, node_noise};
use colony_sim::NodeNoise;
use colony_time::text::Ns;
use colony_trace::{Trace, periodic};

use crate::error::step;
use crate::node::{Injection, OwnNoise};
use crate::noise::summarise;
use crate::results::{Explained, Noise, SourceRow};
use crate::{StudyError, own};

/// Time a noise daemon sleeps after each calculation.
const DAEMON_SLEEP: Duration = Duration::from_millis(500);

/// Measures noise on these CPUs.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The job's CPUs.
    pub cpus: CpuSet,
    /// Seed of injected noise.
    pub seed: u64,
}

impl Measuring {
    /// The node's own noise, attributed where privileges allow it.
    ///
    /// # Errors
    /// [`StudyError::Step`] says what was found.
    pub fn noise(&self, seconds: f64) -> Result<OwnNoise, StudyError> {
        let mut started = own::names();
        let (measurement, trace) = self.measure(seconds)?;
        started.extend(own::names());
        let command = format!(
            "colony measure --cpus {} --duration {} --out trace.parquet",
            self.cpus,
            Ns((seconds * 1e9) as u64)
        );
        let merged = node_noise(&trace, Steal::Excluded)?;
        Ok(OwnNoise { summary: reported(&measurement, &trace, &command), merged, trace, started })
    }

    /// The noise under `injection`, begun half a second before, which is the daemon's sleep.
    ///
    /// # Errors
    /// As [`Measuring::noise`].
    pub fn detours(&self, seconds: f64, injection: &Injection) -> Result<NodeNoise, StudyError> {
        let (measured, _) = self.beside(injection, DAEMON_SLEEP, seconds + 10.0, || self.measure(seconds))?;
        Ok(node_noise(&measured?.1, Steal::Excluded)?)
    }

    /// Runs `work` while noise daemons, begun `settle` before, run on the CPUs; they end with it, or after
    /// `bound_s` seconds, whatever becomes of us. Just the work where no daemon is asked for.
    pub(crate) fn beside<T>(
        &self,
        injection: &Injection,
        settle: Duration,
        bound_s: f64,
        work: impl FnOnce() -> T,
    ) -> Result<(T, Option<LeibnizReport>), StudyError> {
        let Injection::Leibniz { percent } = *injection else { return Ok((work(), None)) };
        let what = "injecting noise";
        let plan = LeibnizPlan {
            amount: Amount::Noise(percent / 100.0),
            cpus: Some(self.cpus.clone()),
            seed: self.seed,
            duration_ns: (bound_s * 1e9) as u64,
            ..LeibnizPlan::default()
        };
        let stop = AtomicBool::new(false);
        let (done, injected) = std::thread::scope(|s| {
            let injecting = s.spawn(|| plan.run(&stop));
            std::thread::sleep(settle);
            let done = (!injecting.is_finished()).then(work);
            stop.store(true, Ordering::SeqCst);
            (done, injecting.join())
        });
        let report = injected
            .map_err(|_| step(what, &"the daemon's thread ended by itself"))?
            .map_err(|e| step(what, &e))?;
        let done = done.ok_or_else(|| step(what, &"the daemon ended before its time"))?;
        Ok((done, Some(report)))
    }

    /// Noise of each upper bound of terms on the first of the CPUs, from its calibrated speed.
    ///
    /// # Errors
    /// As [`Measuring::noise`].
    pub fn leibniz_levels(&self, max_terms: &[u64]) -> Result<Vec<f64>, StudyError> {
        let speed = terms_per_s_of(self.cpus.first().unwrap_or(0))
            .map_err(|e| step("calibrating the noise daemon", &e))?;
        Ok(max_terms.iter().map(|&n| predicted_noise(n, speed)).collect())
    }

    fn measure(&self, seconds: f64) -> Result<(Measurement, Trace), StudyError> {
        let config = measure::Config {
            observe: selfish::Config {
                cpus: self.cpus.clone(),
                duration_ns: (seconds * 1e9) as u64,
                threshold_ns: 100,
                // the job's own class: what it would meet itself
                fifo: None,
                all_cpus: false,
                ring: 1 << 20,
                until: None,
            },
            attribution: Attribution::Auto,
            node: 0,
        };
        measure::measure(&config, |_| true).map_err(|e| step("measuring noise", &e))
    }
}

/// The periods that a reader would act on: most of their ticks are there. The whole list is
/// `colony noise show`'s.
fn telling_periods(trace: &Trace) -> Vec<String> {
    let found = periodic::of_trace(trace);
    found.iter().filter(|f| f.period.occupancy >= 0.5).take(4).map(ToString::to_string).collect()
}

/// The trace summed up, with what the measurement knows besides.
fn reported(measurement: &Measurement, trace: &Trace, command: &str) -> Noise {
    let a = &measurement.attribution;
    let explained = Explained {
        of_stolen: a.explained.stolen,
        of_detours: a.explained.detours,
        of_stolen_without_throttle: a.explained_without_throttle.stolen,
        of_detours_without_throttle: a.explained_without_throttle.detours,
    };
    let detours = measurement.per_cpu.iter().map(|c| c.detours).sum();
    let mut noise = summarise(trace, command);
    // the attribution knows what was nested in what; a row knows its main source only
    for part in &measurement.sources {
        let name = part.source.to_string();
        match noise.sources.iter_mut().find(|row| row.source == name) {
            Some(row) => (row.events, row.stolen_ns) = (part.events, part.stolen_ns),
            None => noise.sources.push(SourceRow {
                source: name,
                events: part.events,
                count: part.detours,
                stolen_ns: part.stolen_ns,
                max_ns: part.lengths.max_ns,
            }),
        }
    }
    Noise {
        explained: a.active.then_some(explained),
        // the histograms lose nothing; rows may
        stolen_share: measurement.stolen_share(),
        measuring_share: measurement.measuring_itself.as_ref().map(|own| own.stolen_share),
        detours,
        lost_events: a.lost_events,
        periodic: telling_periods(trace),
        ..noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_node_is_measured_and_its_noise_projected() {
        let cpus = colony_node::cpu::usable().expect("CPUs").iter().take(1).collect();
        let measuring = Measuring { cpus, seed: 1 };
        let OwnNoise { summary: noise, merged: node, trace, started } =
            measuring.noise(0.4).expect("an ordinary observer needs nothing");
        assert!(!trace.meta.cpus.is_empty() && !started.is_empty());
        assert!(noise.observed_s > 0.0 && noise.stolen_share < 1.0);
        assert!(noise.sources.iter().map(|s| s.count).sum::<u64>() <= noise.detours);
        // a row has one source: a detour of others in which a thread of ours ran too is theirs
        let own = noise.measuring_share.unwrap_or(0.0);
        assert!(node.stolen_share() <= noise.stolen_share + own + 0.05);
        let levels = measuring.leibniz_levels(&[1_000_000, 2_000_000]).expect("a CPU");
        assert!(levels[1] > 1.9 * levels[0]);
    }

    #[test]
    fn injected_noise_is_seen() {
        let cpus = colony_node::cpu::usable().expect("CPUs").iter().take(1).collect();
        let measuring = Measuring { cpus, seed: 3 };
        let with = measuring.detours(2.5, &Injection::leibniz(60.0)).expect("injected");
        assert!(with.stolen_share() > 0.05, "{}", with.stolen_share());
    }
}
