// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time line of a run: the recorder of each PE, and the file of each process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colony_timeline::{
    DEFAULT_EVENTS, MessageId, Meta, Migration, Names, Process, Recorder, Recording, Stamp,
};

use crate::class::Classes;

/// The variable that names the files of a run's time line.
const VARIABLE: &str = "COLONY_TIMELINE";
/// The variable that sets how many events of each PE are kept.
const EVENTS: &str = "COLONY_TIMELINE_EVENTS";
/// Between two comparisons of the counter with the node's clock.
const ANCHOR: Duration = Duration::from_secs(1);

/// A time line of the run, for `colony timeline`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// Process `RANK` writes the file `PREFIX.RANK.timeline` at its end.
    pub prefix: PathBuf,
    /// The newest events of each PE that are kept, rounded up to a power of two. One takes 32 bytes.
    pub events: usize,
}

impl TimelineOptions {
    /// The newest million events of each PE.
    #[must_use]
    pub fn new(prefix: impl Into<PathBuf>) -> Self {
        Self { prefix: prefix.into(), events: DEFAULT_EVENTS }
    }

    /// The options in `COLONY_TIMELINE` (the prefix) and `COLONY_TIMELINE_EVENTS`. None if the first is not set or empty.
    ///
    /// # Errors
    /// A text for people, if the number of events is not one from 1 to 2^28.
    pub fn from_environment() -> Result<Option<Self>, String> {
        let Some(prefix) = std::env::var_os(VARIABLE).filter(|prefix| !prefix.is_empty()) else {
            return Ok(None);
        };
        let events = std::env::var_os(EVENTS).map_or(Ok(DEFAULT_EVENTS), |text| {
            let number = text.to_str().and_then(|text| text.parse().ok());
            number.filter(|events| (1..=1 << 28).contains(events)).ok_or_else(|| {
                format!("{EVENTS} is {text:?}; it has to be a number of events from 1 to {}", 1 << 28)
            })
        })?;
        Ok(Some(Self { prefix: prefix.into(), events }))
    }

    fn path(&self, rank: u32) -> PathBuf {
        let mut path = OsString::from(&self.prefix);
        path.push(format!(".{rank}.timeline"));
        path.into()
    }
}

/// Functions of every class that the runtime calls, after the entry methods of the class in the names of a time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    New,
    Arrived,
    Resume,
    Future,
}

impl Hook {
    const NAMES: [&str; 4] = ["new", "arrived", "resume", "future"];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The names of all entry methods and hooks, and the number of the first one of each class.
fn names<C>(classes: &Classes<C>) -> (Names, Vec<u16>) {
    let (mut names, mut first) = (Names::default(), Vec::new());
    for info in &classes.0 {
        first.push(names.entries.len() as u16);
        let Ok(class) = names.class(info.name) else { continue };
        let entries = info.entries.iter().map(|entry| entry.name).chain(Hook::NAMES);
        for entry in entries {
            // a program with more names than a time line can have shows the last ones without
            let _ = names.entry(class, entry);
        }
    }
    (names, first)
}

/// The recording of a process, shared by its PEs.
#[derive(Debug)]
pub(crate) struct Shared {
    options: TimelineOptions,
    recording: Recording,
}

impl Shared {
    pub(crate) fn begin(options: TimelineOptions) -> Arc<Self> {
        Arc::new(Self { options, recording: Recording::begin() })
    }

    /// Writes the file of a process.
    pub(crate) fn write<C>(
        shared: Arc<Self>,
        (rank, pes): (u32, u32),
        classes: &Classes<C>,
        tracks: Vec<Track>,
    ) -> Result<(), String> {
        let run = tracks.iter().map(|track| track.run).find(|run| *run != 0).unwrap_or(0);
        let recorders = tracks.into_iter().map(|track| track.recorder).collect();
        let Ok(Self { options, recording }) = Arc::try_unwrap(shared) else {
            return Err("the time line is not written: a PE of this process has not ended".to_owned());
        };
        let mut command = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let program = command.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let meta = Meta {
            command: std::iter::once(program.clone()).chain(command).collect(),
            program,
            build: crate::build::id(),
            run: format!("{run:016x}"),
            pes,
            seeds: Vec::new(),
            notes: Vec::new(),
        };
        let path = options.path(rank);
        let timeline = recording.end(meta, Process::here(rank), names(classes).0, recorders);
        timeline.and_then(|timeline| timeline.write(&path)).map_err(|error| format!("the time line: {error}"))
    }
}

/// The time line of one PE. One that is off costs a branch an event.
#[derive(Debug)]
pub(crate) struct Track {
    recorder: Recorder,
    /// The number of the first entry method of each class, and how many the class has.
    first: Vec<u16>,
    shared: Option<Arc<Shared>>,
    anchored: Instant,
    /// A number of the run that PE 0 draws.
    pub(crate) run: u64,
}

impl Track {
    /// The time line of a PE. The first PE of a process looks after the clock.
    pub(crate) fn new<C>(shared: Option<Arc<Shared>>, pe: u32, is_first: bool, classes: &Classes<C>) -> Self {
        let recorder = shared
            .as_ref()
            .and_then(|shared| shared.recording.recorder(pe, shared.options.events).ok())
            .unwrap_or_else(Recorder::off);
        let run = if recorder.is_on() && pe == 0 { draw() } else { 0 };
        let first = if recorder.is_on() { names(classes).1 } else { Vec::new() };
        Self { recorder, first, shared: shared.filter(|_| is_first), anchored: Instant::now(), run }
    }

    /// Lets go of what the process shares.
    pub(crate) fn end(&mut self) {
        self.shared = None;
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.recorder.is_on()
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> Stamp {
        self.recorder.now()
    }

    /// One pass of the scheduler begins.
    #[inline]
    pub(crate) fn begin_pass(&mut self) -> Stamp {
        if self.is_on() {
            self.recorder.look_at_cpu();
            self.anchor();
        }
        self.now()
    }

    fn anchor(&mut self) {
        let Some(shared) = &self.shared else { return };
        if self.anchored.elapsed() >= ANCHOR {
            shared.recording.anchor();
            self.anchored = Instant::now();
        }
    }

    fn number(&self, class: u16, entry: u16) -> u16 {
        self.first.get(usize::from(class)).map_or(u16::MAX, |first| first.saturating_add(entry))
    }

    /// An entry method has ended.
    #[inline]
    pub(crate) fn executed(&mut self, begin: Stamp, (class, entry): (u16, u16), message: u64, bytes: usize) {
        if self.is_on() {
            let number = self.number(class, entry);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.recorder.executed(begin, number, MessageId::from_bits(message), bytes);
        }
    }

    /// A hook of a class with this number of entry methods has ended.
    pub(crate) fn hooked(&mut self, begin: Stamp, class: u16, entries: usize, hook: Hook) {
        self.executed(begin, (class, (entries + hook as usize) as u16), NO_MESSAGE, 0);
    }

    /// The number of a message that is sent now.
    pub(crate) fn next_message(&mut self) -> u64 {
        self.recorder.next_message().to_bits()
    }

    /// A message has been sent.
    pub(crate) fn sent(&mut self, message: u64, to: u32, (class, entry): (u16, u16), bytes: usize) {
        let number = self.number(class, entry);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.recorder.sent(MessageId::from_bits(message), to, number, bytes);
    }

    /// The PE had nothing to do since `begin`.
    #[inline]
    pub(crate) fn idle(&mut self, begin: Stamp) {
        if self.is_on() {
            self.recorder.idle(begin);
        }
    }

    /// The PE balanced load since `begin`.
    pub(crate) fn balanced(&mut self, begin: Stamp) {
        if self.is_on() {
            self.recorder.balanced(begin);
        }
    }

    /// An object has left for another PE, or arrived from it.
    pub(crate) fn migrated(&mut self, leaves: bool, class: u16, object: u64, peer: u32, bytes: usize) {
        if self.is_on() {
            let migration =
                Migration { class, object, peer, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
            if leaves {
                self.recorder.migrated_out(migration);
            } else {
                self.recorder.migrated_in(migration);
            }
        }
    }
}

/// The number of a message that no time line knows.
pub(crate) const NO_MESSAGE: u64 = MessageId::NONE.to_bits();

/// A number that another run hardly has.
pub(crate) fn draw() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now())).max(1)
}
