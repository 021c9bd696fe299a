// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the file of another tool states about its observation.

use std::collections::BTreeMap;
use std::str::FromStr;

use colony_node::cpu::CpuSet;

use super::{Problem, TraceMeta};
use crate::{Class, Source};

/// Note on rows without a CPU.
pub(crate) const NO_CPU: &str = "the file has no column `cpu`: all detours are taken for those of CPU 0";

/// What the file of another tool states about its observation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stated {
    /// Detours shorter than this were not looked for, nanoseconds.
    pub(crate) threshold_ns: Option<u64>,
    /// The CPUs that were observed.
    pub(crate) cpus: Option<CpuSet>,
    /// Length of the observation in seconds.
    pub(crate) observed_s: Option<f64>,
    /// Start of the observation, TAI nanoseconds.
    pub(crate) start_ns: Option<i64>,
    /// Events that the tool lost.
    pub(crate) lost_events: u64,
    /// Detours that the tool counted and did not write.
    pub(crate) dropped: u64,
    /// Classes of sources.
    pub(crate) classes: BTreeMap<Source, Class>,
    /// Lengths of detours that overlap on one CPU.
    pub(crate) lengths: Lengths,
    /// The instants were not in the file: see [`TraceMeta::has_random_instants`].
    pub(crate) has_random_instants: bool,
}

/// Lengths of detours that overlap on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// Gross where it is not expected: rows that overlap are cut, with a note.
    #[default]
    Gross,
    /// Gross, and interrupts are expected inside threads: rows that overlap are cut.
    Nested,
    /// Net: the time of an inner detour is not part of the outer one's length.
    Net,
}

impl Stated {
    /// Reads the pairs that have the names of [`TraceMeta::plain`]; other pairs are left out.
    ///
    /// # Errors
    /// [`Problem::Meta`] if one of these pairs has a value of another kind: the trace would be read with a wrong one.
    pub(crate) fn of_pairs<'a>(
        pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Result<Self, Problem> {
        let text = |key: &str| pairs.clone().find(|(k, _)| *k == key).map(|(_, value)| value);
        fn value<T: FromStr>(text: Option<&str>, key: &str, expected: &str) -> Result<Option<T>, Problem> {
            let Some(text) = text else { return Ok(None) };
            text.parse().map(Some).map_err(|_| unreadable(key, text, expected))
        }
        let number = |key| value::<u64>(text(key), key, "a whole number");
        let seconds = "a number of seconds above 0";
        let observed_s = value::<f64>(text("observed_s"), "observed_s", seconds)?;
        if let Some(s) = observed_s.filter(|s| !s.is_finite() || *s <= 0.0) {
            return Err(unreadable("observed_s", &s.to_string(), seconds));
        }
        let classes =
            text(TraceMeta::CLASSES).filter(|json| json.starts_with('{')).map(classes).transpose()?;
        Ok(Self {
            threshold_ns: number("threshold_ns")?,
            cpus: value(text("cpus"), "cpus", "a list of CPUs, as `0-3,8`")?,
            observed_s,
            start_ns: value(text("start_ns"), "start_ns", "a whole number of nanoseconds")?,
            lost_events: number("lost_events")?.unwrap_or(0),
            dropped: number("dropped")?.unwrap_or(0),
            classes: classes.unwrap_or_default(),
            lengths: Lengths::Gross,
            has_random_instants: false,
        })
    }
}

/// Reads a map of sources to classes.
///
/// # Errors
/// [`Problem::Meta`].
pub(crate) fn classes(json: &str) -> Result<BTreeMap<Source, Class>, Problem> {
    serde_json::from_str(json)
        .map_err(|e| Problem::Meta(format!("`classes` must map sources to classes: {e}")))
}

fn unreadable(key: &str, value: &str, expected: &str) -> Problem {
    let shown: String = value.chars().take(60).collect();
    Problem::Meta(format!("`{key}` is `{shown}` and must be {expected}; correct it or remove it"))
}
