// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces for Perfetto (ui.perfetto.dev): a track for each PE, slices for intervals, instants for messages that were sent, flows from the
//! sending to the execution, and tracks for the detours of each CPU.
//!
//! The fields are those of Perfetto's `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto` and `interned_data.proto`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;

use crate::error::{Problem, TimelineError};
use crate::noise::Noise;
use crate::protobuf::Message;
use crate::record::{ALL_PES, Event, MessageId, NO_CPU, NO_VALUE, Timed};
use crate::timeline::{Timeline, Track};

/// Numbers of fields.
mod field {
    pub(super) const PACKET: u32 = 1;
    // TracePacket
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED: u32 = 12;
    pub(super) const FLAGS: u32 = 13;
    pub(super) const DESCRIPTOR: u32 = 60;
    // TrackEvent
    pub(super) const CATEGORY_ID: u32 = 3;
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_ID: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const FLOW: u32 = 47;
    pub(super) const LAST_OF_FLOW: u32 = 48;
    // TrackDescriptor
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PROCESS: u32 = 3;
    pub(super) const PARENT: u32 = 5;
    pub(super) const CHILD_ORDER: u32 = 11;
    pub(super) const RANK: u32 = 12;
    // ProcessDescriptor
    pub(super) const PID: u32 = 1;
    pub(super) const PROCESS_NAME: u32 = 6;
    // InternedData, and its entries
    pub(super) const CATEGORIES: u32 = 1;
    pub(super) const NAMES: u32 = 2;
    pub(super) const ANNOTATION_NAMES: u32 = 3;
    pub(super) const ID: u32 = 1;
    pub(super) const ID_NAME: u32 = 2;
    // DebugAnnotation
    pub(super) const ANNOTATION_ID: u32 = 1;
    pub(super) const UNSIGNED: u32 = 3;
}

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
/// Tracks of a process are in order of their `sibling_order_rank`.
const EXPLICIT: u64 = 3;
/// The packet begins a sequence, and names of earlier ones are forgotten.
const CLEARED: u64 = 1;
/// The packet uses names of earlier ones.
const NEEDS_NAMES: u64 = 2;
/// The one sequence of packets.
const SEQUENCE: u64 = 1;

/// Categories, in order of their ids.
const CATEGORIES: [&str; 8] =
    ["entry", "message", "idle", "overhead", "balancing", "migration", "user", "noise"];

/// Names of annotations, in order of their ids.
const ANNOTATIONS: [&str; 7] = ["bytes", "from PE", "to PE", "CPU", "object", "value", "message"];

/// Writes a trace: whole or not at all.
///
/// # Errors
/// [`TimelineError::File`] with the file system's reason.
pub fn write(timeline: &Timeline, noise: Option<&Noise>, path: &Path) -> Result<(), TimelineError> {
    colony_node::file::write_atomically::<Problem>(path, |out| Ok(write_to(timeline, noise, out)?))
        .map_err(|problem| TimelineError::File { doing: "writing", path: path.into(), problem })
}

/// Writes the bytes of a trace.
///
/// # Errors
/// An error of `out`.
pub fn write_to(timeline: &Timeline, noise: Option<&Noise>, out: impl Write) -> io::Result<()> {
    let mut w = Writer { out, names: HashMap::new(), broadcasts: broadcasts(timeline), timeline };
    w.begin(noise)?;
    for process in timeline.processes() {
        let mut name = format!("{} {}", timeline.meta().program, process.rank);
        if !process.host.is_empty() {
            name = format!("{name} on {}", process.host);
        }
        if process.pid != 0 {
            name = format!("{name} (pid {})", process.pid);
        }
        w.process(process_uuid(process.rank), process.rank.into(), &name)?;
    }
    for track in timeline.tracks() {
        w.child(
            pe_uuid(track.pe),
            process_uuid(track.process),
            track.pe.into(),
            &format!("PE {}", track.pe),
        )?;
        w.track(track)?;
    }
    if let Some(noise) = noise {
        w.noise(noise)?;
    }
    w.out.flush()
}

const fn process_uuid(rank: u32) -> u64 {
    (1 << 40) | rank as u64
}

const fn pe_uuid(pe: u32) -> u64 {
    (2 << 40) | pe as u64
}

fn host_uuid(host: usize) -> u64 {
    (3 << 40) | host as u64
}

fn cpu_uuid(host: usize, cpu: u16) -> u64 {
    (4 << 40) | (host as u64) << 16 | u64::from(cpu)
}

/// Messages that more than one PE may execute.
fn broadcasts(timeline: &Timeline) -> HashSet<MessageId> {
    let events = timeline.tracks().iter().flat_map(Track::events);
    let to_all = events.filter_map(|t| match t.event {
        Event::Sent { message, to: ALL_PES, .. } => Some(message),
        _ => None,
    });
    to_all.collect()
}

struct Writer<'a, W> {
    out: W,
    timeline: &'a Timeline,
    names: HashMap<String, u64>,
    broadcasts: HashSet<MessageId>,
}

impl<W: Write> Writer<'_, W> {
    fn packet(&mut self, packet: Message) -> io::Result<()> {
        let packet = packet.number(field::SEQUENCE, SEQUENCE);
        self.out.write_all(Message::default().message(field::PACKET, &packet).as_bytes())
    }

    /// The packet that begins the sequence: with every name.
    fn begin(&mut self, noise: Option<&Noise>) -> io::Result<()> {
        let mut all: BTreeSet<String> = BTreeSet::new();
        for t in self.timeline.tracks().iter().flat_map(Track::events) {
            all.insert(self.name(&t.event));
        }
        all.extend(noise.into_iter().flat_map(|n| n.sources().iter().cloned()));
        self.names = all.into_iter().zip(1..).collect();
        let mut interned = Message::default();
        let entry = |name: &str, id: u64| Message::default().number(field::ID, id).text(field::ID_NAME, name);
        for (name, id) in CATEGORIES.into_iter().zip(1..) {
            interned = interned.message(field::CATEGORIES, &entry(name, id));
        }
        for (name, id) in ANNOTATIONS.into_iter().zip(1..) {
            interned = interned.message(field::ANNOTATION_NAMES, &entry(name, id));
        }
        let mut names: Vec<(&String, &u64)> = self.names.iter().collect();
        names.sort_by_key(|(_, id)| **id);
        for (name, id) in names {
            interned = interned.message(field::NAMES, &entry(name, *id));
        }
        let packet = Message::default().number(field::FLAGS, CLEARED).message(field::INTERNED, &interned);
        self.packet(packet)
    }

    fn process(&mut self, uuid: u64, rank: u64, name: &str) -> io::Result<()> {
        // numbers of processes of different hosts may be alike, and 0 is the kernel's
        let process = Message::default().number(field::PID, rank + 1).text(field::PROCESS_NAME, name);
        let track = Message::default()
            .number(field::UUID, uuid)
            .message(field::PROCESS, &process)
            .number(field::CHILD_ORDER, EXPLICIT);
        self.packet(Message::default().message(field::DESCRIPTOR, &track))
    }

    fn child(&mut self, uuid: u64, parent: u64, rank: u64, name: &str) -> io::Result<()> {
        let track = Message::default()
            .number(field::UUID, uuid)
            .number(field::PARENT, parent)
            .text(field::NAME, name)
            .number(field::RANK, rank);
        self.packet(Message::default().message(field::DESCRIPTOR, &track))
    }

    fn event(&mut self, at_ns: i64, event: &Message) -> io::Result<()> {
        let packet = Message::default()
            .number(field::TIMESTAMP, at_ns.max(0) as u64)
            .message(field::TRACK_EVENT, event)
            .number(field::FLAGS, NEEDS_NAMES);
        self.packet(packet)
    }

    /// The slices and instants of a PE. A slice ends at the latest with the one around it.
    fn track(&mut self, track: &Track) -> io::Result<()> {
        let uuid = pe_uuid(track.pe);
        let mut open: Vec<i64> = Vec::new();
        for t in track.events() {
            self.close(uuid, &mut open, t.begin_ns)?;
            let what = self.what(&t, uuid);
            if is_interval(&t) {
                let end = open.last().map_or(t.end_ns(), |&outer| t.end_ns().min(outer));
                self.event(t.begin_ns, &what.number(field::TYPE, SLICE_BEGIN))?;
                open.push(end);
            } else {
                self.event(t.begin_ns, &what.number(field::TYPE, INSTANT))?;
            }
        }
        self.close(uuid, &mut open, i64::MAX)
    }

    /// Ends the slices that end at `at_ns` or before.
    fn close(&mut self, uuid: u64, open: &mut Vec<i64>, at_ns: i64) -> io::Result<()> {
        while let Some(end) = open.pop_if(|end| *end <= at_ns) {
            let event = Message::default().number(field::TYPE, SLICE_END).number(field::TRACK, uuid);
            self.event(end, &event)?;
        }
        Ok(())
    }

    fn name(&self, event: &Event) -> String {
        let names = self.timeline.names();
        match *event {
            Event::Executed { entry, .. } => names.of_entry(entry),
            Event::Sent { entry, .. } => format!("send {}", names.of_entry(entry)),
            Event::Idle => "idle".into(),
            Event::Overhead => "overhead".into(),
            Event::Balancing => "load balancing".into(),
            Event::MigratedOut(m) => format!("{} migrated out", names.of_class(m.class)),
            Event::MigratedIn(m) => format!("{} migrated in", names.of_class(m.class)),
            Event::User { event, .. } => names.of_event(event),
        }
    }

    /// An event but for its type.
    fn what(&self, t: &Timed, uuid: u64) -> Message {
        let id = self.names.get(&self.name(&t.event)).copied().unwrap_or(0);
        let mut m = Message::default().number(field::TRACK, uuid).number(field::NAME_ID, id);
        let mut about: Vec<(&str, u64)> = Vec::new();
        let category = match t.event {
            Event::Executed { message, bytes, .. } => {
                about.push(("bytes", bytes.into()));
                if let Some(source) = message.source() {
                    about.push(("from PE", source.into()));
                    let broadcast = self.broadcasts.contains(&message);
                    let field = if broadcast { field::FLOW } else { field::LAST_OF_FLOW };
                    m = m.fixed(field, flow(message));
                }
                "entry"
            }
            Event::Sent { message, to, bytes, .. } => {
                about.push(("bytes", bytes.into()));
                if to != ALL_PES {
                    about.push(("to PE", to.into()));
                }
                m = m.fixed(field::FLOW, flow(message));
                "message"
            }
            Event::Idle => "idle",
            Event::Overhead => "overhead",
            Event::Balancing => "balancing",
            Event::MigratedOut(o) => {
                about.extend([("to PE", u64::from(o.peer)), ("object", o.object), ("bytes", o.bytes.into())]);
                "migration"
            }
            Event::MigratedIn(o) => {
                about.extend([
                    ("from PE", u64::from(o.peer)),
                    ("object", o.object),
                    ("bytes", o.bytes.into()),
                ]);
                "migration"
            }
            Event::User { value, .. } => {
                if value != NO_VALUE {
                    about.push(("value", value));
                }
                "user"
            }
        };
        if t.cpu != NO_CPU {
            about.push(("CPU", t.cpu.into()));
        }
        let m = m.number(field::CATEGORY_ID, id_of(&CATEGORIES, category));
        about.into_iter().fold(m, |m, (name, value)| {
            let annotation = Message::default()
                .number(field::ANNOTATION_ID, id_of(&ANNOTATIONS, name))
                .number(field::UNSIGNED, value);
            m.message(field::ANNOTATION, &annotation)
        })
    }

    /// A process for each host that was observed, with a track for each CPU.
    fn noise(&mut self, noise: &Noise) -> io::Result<()> {
        let ranks = self.timeline.processes().last().map_or(0, |p| u64::from(p.rank) + 1);
        for (number, host) in noise.observed().keys().enumerate() {
            self.process(host_uuid(number), ranks + number as u64, &format!("noise of {host}"))?;
            for cpu in noise.cpus(host) {
                let uuid = cpu_uuid(number, cpu);
                self.child(uuid, host_uuid(number), cpu.into(), &format!("CPU {cpu}"))?;
                let mut open = Vec::new();
                for d in noise.hits(host, cpu, i64::MIN, i64::MAX) {
                    self.close(uuid, &mut open, d.begin_ns)?;
                    let name = noise.sources().get(usize::from(d.source)).and_then(|s| self.names.get(s));
                    let event = Message::default()
                        .number(field::TRACK, uuid)
                        .number(field::NAME_ID, name.copied().unwrap_or(0))
                        .number(field::CATEGORY_ID, id_of(&CATEGORIES, "noise"))
                        .number(field::TYPE, SLICE_BEGIN);
                    self.event(d.begin_ns, &event)?;
                    open.push(open.last().map_or(d.end_ns, |&outer| d.end_ns.min(outer)));
                }
                self.close(uuid, &mut open, i64::MAX)?;
            }
        }
        Ok(())
    }
}

fn is_interval(t: &Timed) -> bool {
    match t.event {
        Event::Executed { .. } | Event::Idle | Event::Overhead | Event::Balancing => true,
        Event::User { .. } => t.duration_ns > 0,
        Event::Sent { .. } | Event::MigratedOut(_) | Event::MigratedIn(_) => false,
    }
}

/// The flow of a message; 0 is no flow.
fn flow(message: MessageId) -> u64 {
    message.to_bits().wrapping_add(1)
}

/// The id of one of our own words, from 1.
fn id_of(words: &[&str], word: &str) -> u64 {
    words.iter().position(|w| *w == word).map_or(0, |i| i as u64 + 1)
}
