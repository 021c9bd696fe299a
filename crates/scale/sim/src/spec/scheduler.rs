// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schedulers of a scenario.

use std::sync::Arc;

use colony_time::{DutyCycle, Windows};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::SpecError;
use crate::scheduler::{ClockError, Coordinated, Fair, NodeClock, Preempt, Quiet, Scheduler, SpareCore};

/// A scheduler: its name alone, or with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerSpec {
    /// No noise at all: a compute node kernel.
    None,
    /// Noise first, as soon as it comes.
    Preempt,
    /// Noise and job take turns.
    Fair(Slices),
    /// Noise waits for windows that all nodes share.
    Coordinated(Windowed),
    /// A core of every node takes the noise of all.
    SpareCore,
}

/// The turns of [`Fair`]; those of Linux 2.6.16 as they come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slices {
    /// Longest turn of a thread.
    #[serde(with = "colony_time::notation::ns", rename = "noise_slice")]
    pub noise_slice_ns: u64,
    /// The job's turn between two.
    #[serde(with = "colony_time::notation::ns", rename = "job_slice")]
    pub job_slice_ns: u64,
}

impl Default for Slices {
    fn default() -> Self {
        let Fair { noise_slice_ns, job_slice_ns } = Fair::LINUX_2_6_16;
        Self { noise_slice_ns, job_slice_ns }
    }
}

/// The windows of [`Coordinated`], and how well nodes keep them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Windowed {
    /// A favored window and the regular one after it.
    #[serde(with = "colony_time::notation::ns", rename = "period")]
    pub period_ns: u64,
    /// Favored share.
    #[serde(with = "colony_time::notation::duty")]
    pub duty_cycle: DutyCycle,
    /// Standard deviation of the nodes' clock offsets.
    #[serde(with = "colony_time::notation::ns", rename = "clock_offset", skip_serializing_if = "is_zero")]
    pub clock_offset_ns: u64,
    /// Standard deviation of the nodes' clock drifts, parts per million.
    #[serde(skip_serializing_if = "is_none")]
    pub clock_drift_ppm: f64,
    /// Measured clocks, one of which each node has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<NodeClock>,
    /// Lateness of edges, one of which each has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edge_lateness_ns: Vec<u64>,
}

fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

fn is_none(x: &f64) -> bool {
    *x == 0.0
}

impl Default for Windowed {
    fn default() -> Self {
        Self {
            period_ns: 100_000_000,
            duty_cycle: DutyCycle::Ppm(800_000),
            clock_offset_ns: 0,
            clock_drift_ppm: 0.0,
            clocks: Vec::new(),
            edge_lateness_ns: Vec::new(),
        }
    }
}

impl SchedulerSpec {
    /// All names, for messages.
    pub const NAMES: &'static str = "none, preempt, fair, coordinated, spare-core";

    /// The scheduler of a name, with the parameters it comes with.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "preempt" => Self::Preempt,
            "fair" => Self::Fair(Slices::default()),
            "coordinated" => Self::Coordinated(Windowed::default()),
            "spare-core" => Self::SpareCore,
            _ => return None,
        })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Preempt => "preempt",
            Self::Fair(_) => "fair",
            Self::Coordinated(_) => "coordinated",
            Self::SpareCore => "spare-core",
        }
    }

    /// The scheduler itself.
    ///
    /// # Errors
    /// [`SpecError::Value`] for windows that are not possible, turns of no length, a drift that is none.
    pub fn scheduler(&self) -> Result<Arc<dyn Scheduler>, SpecError> {
        let wrong = |fault: String| SpecError::value(format!("schedulers.{}", self.name()), fault);
        let scheduler: Arc<dyn Scheduler> = match self {
            Self::None => Arc::new(Quiet),
            Self::Preempt => Arc::new(Preempt),
            Self::SpareCore => Arc::new(SpareCore),
            &Self::Fair(Slices { noise_slice_ns, job_slice_ns }) => {
                Arc::new(Fair { noise_slice_ns, job_slice_ns })
            }
            Self::Coordinated(w) => Arc::new(Coordinated {
                windows: Windows::new(w.period_ns, w.duty_cycle, 0).map_err(|e| wrong(e.to_string()))?,
                clock: ClockError {
                    offset_sigma_ns: w.clock_offset_ns as f64,
                    drift_sigma_ppm: w.clock_drift_ppm,
                    measured: w.clocks.clone(),
                },
                edge_lateness_ns: w.edge_lateness_ns.clone(),
            }),
        };
        scheduler.check().map_err(|e| wrong(e.to_string()))?;
        Ok(scheduler)
    }
}

impl<'de> Deserialize<'de> for SchedulerSpec {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Visitor)
    }
}

/// Takes `"fair"` and `{ fair = { … } }`.
struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = SchedulerSpec;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a scheduler ({}), or a table of one with its parameters", SchedulerSpec::NAMES)
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<SchedulerSpec, E> {
        SchedulerSpec::named(name)
            .ok_or_else(|| E::custom(format!("no scheduler `{name}`; there are: {}", SchedulerSpec::NAMES)))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<SchedulerSpec, A::Error> {
        let name: String =
            map.next_key()?.ok_or_else(|| de::Error::custom("an empty table names no scheduler"))?;
        let scheduler = match name.as_str() {
            "fair" => SchedulerSpec::Fair(map.next_value()?),
            "coordinated" => SchedulerSpec::Coordinated(map.next_value()?),
            other => {
                let fault = "it has no parameters: write its name alone";
                let named = SchedulerSpec::named(other).map(|_| fault);
                return Err(de::Error::custom(format!(
                    "`{other}`: {}",
                    named.unwrap_or("no such scheduler")
                )));
            }
        };
        match map.next_key::<String>()? {
            None => Ok(scheduler),
            Some(more) => Err(de::Error::custom(format!("`{more}` beside `{name}`: one scheduler a table"))),
        }
    }
}
