// SPDX-License-Identifier: MIT OR Apache-2.0
//! All figures of a run together.

use serde::Serialize;

use crate::analysis::entries::{self, EntryTimes};
use crate::analysis::messages::Messages;
use crate::analysis::stragglers::Stragglers;
use crate::analysis::utilization::Utilization;
use crate::noise::Noise;
use crate::record::Event;
use crate::timeline::{Meta, Process, Timeline};

/// Objects that moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Migrations {
    /// Objects that left a PE.
    pub out: u64,
    /// Objects that arrived on a PE.
    pub arrived: u64,
    /// Bytes of the objects that arrived.
    pub bytes: u64,
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The run.
    pub meta: Meta,
    /// Its processes.
    pub processes: Vec<Process>,
    /// PEs with a track.
    pub pes: u64,
    /// Events that were kept.
    pub events: u64,
    /// Events that were dropped.
    pub dropped: u64,
    /// From the begin of the first track to the end of the last, nanoseconds.
    pub duration_ns: u64,
    /// Utilization of each PE and over time.
    pub utilization: Utilization,
    /// Entry methods, by their own time.
    pub entries: Vec<EntryTimes>,
    /// Messages between PEs.
    pub messages: Messages,
    /// Objects that moved.
    pub migrations: Migrations,
    /// Executions that took longer than is usual.
    pub stragglers: Stragglers,
    /// Reasons to read the figures with care.
    pub notes: Vec<String>,
}

impl Summary {
    /// The figures of a run: utilization over time in `slices` parts, and the `stragglers` longest stragglers.
    #[must_use]
    pub fn of(timeline: &Timeline, noise: Option<&Noise>, slices: usize, stragglers: usize) -> Self {
        let (begin, end) = timeline.span();
        Self {
            meta: timeline.meta().clone(),
            processes: timeline.processes().to_vec(),
            pes: timeline.tracks().len() as u64,
            events: timeline.tracks().iter().map(|t| t.records.len() as u64).sum(),
            dropped: timeline.dropped(),
            duration_ns: end.saturating_sub(begin).max(0) as u64,
            utilization: Utilization::of(timeline, slices),
            entries: entries::of(timeline),
            messages: Messages::of(timeline),
            migrations: migrations(timeline),
            stragglers: Stragglers::of(timeline, noise, stragglers),
            notes: notes(timeline, noise),
        }
    }
}

fn migrations(timeline: &Timeline) -> Migrations {
    let mut all = Migrations::default();
    for t in timeline.tracks().iter().flat_map(|t| t.events()) {
        match t.event {
            Event::MigratedOut(_) => all.out += 1,
            Event::MigratedIn(m) => {
                all.arrived += 1;
                all.bytes = all.bytes.saturating_add(m.bytes.into());
            }
            _ => {}
        }
    }
    all
}

fn notes(timeline: &Timeline, noise: Option<&Noise>) -> Vec<String> {
    let mut notes = timeline.meta().notes.clone();
    let (there, of_run) = (timeline.tracks().len(), timeline.meta().pes as usize);
    if there < of_run {
        notes.push(format!(
            "the files have {there} of the run's {of_run} PEs; give the files of all processes"
        ));
    }
    let dropped: Vec<u32> = timeline.tracks().iter().filter(|t| t.dropped > 0).map(|t| t.pe).collect();
    if let Some(first) = dropped.first() {
        notes.push(format!(
            "the ring was full on {} of {there} PEs (PE {first} is the first): {} events are missing at the begin, and figures \
             are of what is left; record with a larger ring",
            dropped.len(),
            timeline.dropped()
        ));
    }
    let offsets: Vec<i64> = timeline.processes().iter().map(|p| p.tai_offset_s).collect();
    if offsets.iter().any(|o| Some(o) != offsets.first()) {
        notes.push("the hosts do not agree on the offset of TAI: instants of different hosts are seconds apart; set it (chronyd's \
                    leapsectz does)".into());
    }
    notes.extend(noise.into_iter().flat_map(|noise| noise_notes(timeline, noise)));
    notes
}

fn noise_notes(timeline: &Timeline, noise: &Noise) -> Vec<String> {
    let (begin, end) = timeline.span();
    let mut hosts: Vec<&str> = timeline.processes().iter().map(|p| p.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let note = |host: &str| match noise.observed().get(host) {
        None => Some(format!("no noise trace is of {host}: detours on it are unknown")),
        Some(o) if o.end_ns <= begin || o.begin_ns >= end => {
            let apart_s = begin.saturating_sub(o.end_ns).max(o.begin_ns.saturating_sub(end)) / 1_000_000_000;
            Some(format!(
                "the noise trace of {host} and the run share no time ({apart_s} s are between them): measure while the program runs"
            ))
        }
        Some(o) if o.begin_ns > begin || o.end_ns < end => {
            Some(format!("the noise trace of {host} covers a part of the run only"))
        }
        Some(_) => None,
    };
    hosts.into_iter().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Observed;
    use crate::synthetic::{any_timeline, small};
    use proptest::prelude::*;

    #[test]
    fn a_run_has_its_figures_and_no_notes() {
        let s = Summary::of(&small(), None, 10, 5);
        assert_eq!((s.pes, s.events, s.duration_ns), (2, 11, 100_000));
        assert_eq!(s.migrations, Migrations { out: 1, arrived: 1, bytes: 512 });
        assert_eq!(s.notes, Vec::<String>::new());
    }

    #[test]
    fn a_trace_that_does_not_fit_is_told() {
        for (host, begin_ns, end_ns, says) in [
            ("node1", 0, 100_000, "no noise trace is of node0"),
            ("node0", 200_000, 300_000, "share no time"),
            ("node0", -5, 0, "share no time"),
            ("node0", 50_000, 300_000, "a part of the run"),
        ] {
            let mut noise = Noise::default();
            noise.add(host, Observed { begin_ns, end_ns }, []);
            let notes = Summary::of(&small(), Some(&noise), 1, 1).notes;
            assert!(notes.len() == 1 && notes[0].contains(says), "{notes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_run_has_a_summary(t in any_timeline()) {
            let s = Summary::of(&t, Some(&Noise::default()), 7, 3);
            prop_assert!(serde_json::to_string(&s).is_ok());
            prop_assert!(s.notes.iter().any(|n| n.contains("is of h0")));
        }
    }
}
