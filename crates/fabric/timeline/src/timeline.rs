// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time line of a run: the tracks of its PEs, and facts about the run.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::TimelineError;
use crate::names::Names;
use crate::record::{MAX_PES, Record, Timed};

/// Instants are within 2^61 ns of 1970 (73 years), so that no difference or end of two overflows.
pub(crate) const FAR_NS: i64 = 1 << 61;

/// The run: the same in the file of every process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Name of the program.
    pub program: String,
    /// Build id of the program; processes of one run have the same.
    pub build: String,
    /// Name of the run, for people; a job number for example.
    #[serde(default)]
    pub run: String,
    /// PEs of the whole run; 0 if unknown.
    #[serde(default)]
    pub pes: u32,
    /// Seeds of the run's random number generators.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Command line, for running it again.
    #[serde(default)]
    pub command: Vec<String>,
    /// What a file of another format, from which the run was read, holds or lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A process of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Number of the process in the run.
    pub rank: u32,
    /// Name of its host; empty if unknown.
    pub host: String,
    /// Process id on its host; 0 if unknown, and then absent in JSON.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub pid: u32,
    /// Counts per second of the counter that recorded; 0 if unknown, and then absent in JSON.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub counter_hz: f64,
    /// Seconds TAI was ahead of UTC; 0 if nobody told the kernel.
    #[serde(default)]
    pub tai_offset_s: i64,
}

/// Zero stands for an unknown number.
fn is_unknown<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl Process {
    /// This process as process `rank` of the run.
    #[must_use]
    pub fn here(rank: u32) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { rank, host: host.trim().to_owned(), pid: std::process::id(), ..Self::default() }
    }
}

/// The track of one PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// The PE.
    pub pe: u32,
    /// Rank of its process.
    pub process: u32,
    /// Begin of the recording: TAI nanoseconds.
    pub begin_ns: i64,
    /// From here on, every event is kept: `begin_ns`, or later if events were dropped.
    pub kept_from_ns: i64,
    /// End of the recording: TAI nanoseconds.
    pub end_ns: i64,
    /// Events dropped since the ring was full: the oldest.
    pub dropped: u64,
    /// The events kept, by begin; of those that begin together the longest first.
    pub records: Vec<Record>,
}

impl Track {
    /// The events, by begin. Records of an unknown kind are left out.
    pub fn events(&self) -> impl Iterator<Item = Timed> {
        self.records.iter().filter_map(Record::timed)
    }

    /// Nanoseconds of the run that the events cover.
    #[must_use]
    pub fn covered_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.kept_from_ns).max(0) as u64
    }
}

/// The time lines of a run, or of a part of its processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    meta: Meta,
    processes: Vec<Process>,
    names: Names,
    tracks: Vec<Track>,
}

impl Timeline {
    /// A time line of these tracks, in order of their PEs.
    ///
    /// # Errors
    /// [`TimelineError`] if a PE or a process occurs twice, or a track names a process that is not there.
    pub fn new(
        meta: Meta,
        mut processes: Vec<Process>,
        names: Names,
        mut tracks: Vec<Track>,
    ) -> Result<Self, TimelineError> {
        processes.sort_by_key(|p| p.rank);
        tracks.sort_by_key(|t| t.pe);
        if let Some(pair) = processes.windows(2).find(|pair| pair[0].rank == pair[1].rank) {
            return Err(TimelineError::TwiceProcess(pair[0].rank));
        }
        if let Some(pair) = tracks.windows(2).find(|pair| pair[0].pe == pair[1].pe) {
            return Err(TimelineError::TwicePe(pair[0].pe));
        }
        if let Some(track) = tracks.last().filter(|t| t.pe >= MAX_PES) {
            return Err(TimelineError::Pe(track.pe));
        }
        let ranks: BTreeSet<u32> = processes.iter().map(|p| p.rank).collect();
        if let Some(Track { pe, process, .. }) = tracks.iter().find(|t| !ranks.contains(&t.process)) {
            return Err(TimelineError::NoProcess { pe: *pe, process: *process });
        }
        Ok(Self { meta, processes, names, tracks })
    }

    /// Parts that are known to be right.
    pub(crate) fn of_parts(meta: Meta, processes: Vec<Process>, names: Names, tracks: Vec<Track>) -> Self {
        Self { meta, processes, names, tracks }
    }

    /// Puts the time lines of a run's processes together.
    ///
    /// # Errors
    /// [`TimelineError`] if they are of different runs, or one occurs twice.
    pub fn merge(self, other: Self) -> Result<Self, TimelineError> {
        let differ = |what, first: &str, other: &str| match first == other {
            true => Ok(()),
            false => Err(TimelineError::OtherRun { what, first: first.into(), other: other.into() }),
        };
        differ("the program", &self.meta.program, &other.meta.program)?;
        differ("the build id", &self.meta.build, &other.meta.build)?;
        differ("the run", &self.meta.run, &other.meta.run)?;
        differ("the number of PEs", &self.meta.pes.to_string(), &other.meta.pes.to_string())?;
        if self.names != other.names {
            let count = |n: &Names| format!("{} entry methods", n.entries.len());
            return Err(TimelineError::OtherRun {
                what: "the table of names",
                first: count(&self.names),
                other: count(&other.names),
            });
        }
        let processes = self.processes.into_iter().chain(other.processes).collect();
        let tracks = self.tracks.into_iter().chain(other.tracks).collect();
        Self::new(self.meta, processes, self.names, tracks)
    }

    /// Facts about the run.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The processes, by rank.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The process of this rank.
    #[must_use]
    pub fn process(&self, rank: u32) -> Option<&Process> {
        let index = self.processes.binary_search_by_key(&rank, |p| p.rank).ok()?;
        self.processes.get(index)
    }

    /// The names.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The tracks, by PE.
    #[must_use]
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Begin of the first track and end of the last, TAI nanoseconds; `(0, 0)` without tracks.
    #[must_use]
    pub fn span(&self) -> (i64, i64) {
        let begin = self.tracks.iter().map(|t| t.begin_ns).min().unwrap_or(0);
        let end = self.tracks.iter().map(|t| t.end_ns).max().unwrap_or(0);
        (begin, end.max(begin))
    }

    /// Events dropped on all PEs.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.tracks.iter().fold(0, |sum, t| sum.saturating_add(t.dropped))
    }
}
