// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data that the page's script draws. Its size is bounded for every run.

use colony_timeline::analysis::messages::Messages;
use colony_timeline::analysis::segments::{Segment, State, of_track};
use colony_timeline::analysis::summary::Summary;
use colony_timeline::analysis::utilization::{Times, Utilization};
use colony_timeline::{Event, NO_VALUE, Noise, Timeline, Track};
use serde::Serialize;

/// PEs with a lane of their own; a page of more cannot be read.
const MAX_LANES: usize = 512;
/// Segments of all lanes together.
const MAX_SEGMENTS: usize = 60_000;
/// Detours of all lanes together.
const MAX_DETOURS: usize = 20_000;
/// User events and migrations.
const MAX_MARKS: usize = 5_000;
/// Rows and columns of the matrix, and bars of the utilization; more PEs are taken together.
const MAX_GROUPS: usize = 64;

/// Kinds of segments beside entry methods, which are their numbers.
const IDLE: i32 = -1;
const OVERHEAD: i32 = -2;
const BALANCING: i32 = -3;
/// Many short segments: `MIXED - n` was busy for n % of its time.
const MIXED: i32 = -100;

/// A lane: segments as begin, length (nanoseconds) and kind, in three lists.
#[derive(Default, Serialize)]
pub(super) struct Lane {
    pe: u32,
    host: String,
    /// Begin of each segment after the end of the one before, nanoseconds; the first after the run's begin.
    gaps: Vec<u64>,
    lengths: Vec<u64>,
    kinds: Vec<i32>,
    /// For each segment, the PE that sent the message; -1 if no message caused the segment.
    sources: Vec<i32>,
    /// Detours of the CPU the PE ran on: begin after the run's begin, length, source.
    detours: Vec<(i64, i64, u16)>,
}

/// A mark on a lane: instant after the run's begin, lane, name.
#[derive(Serialize)]
pub(super) struct Mark(i64, usize, String);

/// The matrix of messages between groups of PEs.
#[derive(Serialize)]
pub(super) struct Matrix {
    /// Names of the groups: a PE, or the first and the last of several.
    groups: Vec<String>,
    /// Group that sent, group that executed, messages, bytes.
    cells: Vec<(usize, usize, u64, u64)>,
}

/// All that is drawn.
#[derive(Serialize)]
pub(super) struct Drawn {
    duration_ns: u64,
    lanes: Vec<Lane>,
    marks: Vec<Mark>,
    sources: Vec<String>,
    /// Names of the entry methods, by number.
    entries: Vec<String>,
    /// Number of the entry methods by their own time, for the colours.
    order: Vec<u16>,
    slice_ns: u64,
    slices: Vec<Times>,
    /// Busy, overhead, balancing and idle time of groups of PEs.
    groups: Vec<(String, Times)>,
    matrix: Matrix,
    /// Begins of the listed stragglers after the run's begin, nanoseconds.
    stragglers: Vec<i64>,
    /// Shorter segments are drawn together; 0 if each is there.
    pub(super) together_ns: u64,
    /// Shorter detours are left out; 0 if none is.
    pub(super) detours_from_ns: u64,
    /// PEs without a lane.
    pub(super) without_lane: usize,
}

impl Drawn {
    pub(super) fn of(timeline: &Timeline, noise: Option<&Noise>, s: &Summary) -> Self {
        let (u, m) = (&s.utilization, &s.messages);
        let order: Vec<u16> = s.entries.iter().map(|e| e.entry).collect();
        let (begin_ns, end_ns) = timeline.span();
        let tracks = timeline.tracks().get(..MAX_LANES).unwrap_or(timeline.tracks());
        let cut: Vec<Vec<Segment>> = tracks.iter().map(of_track).collect();
        let together_ns = threshold(&cut);
        let mut lanes: Vec<Lane> = tracks
            .iter()
            .zip(&cut)
            .map(|(t, segments)| lane(timeline, t, segments, begin_ns, together_ns))
            .collect();
        let detours_from_ns = noise.map_or(0, |noise| add_detours(timeline, noise, tracks, &mut lanes));
        let most =
            order.iter().map(|&e| usize::from(e) + 1).max().unwrap_or(0).max(timeline.names().entries.len());
        Self {
            duration_ns: end_ns.saturating_sub(begin_ns).max(0) as u64,
            marks: marks(timeline, tracks, begin_ns),
            sources: noise.map_or(Vec::new(), |n| n.sources().to_vec()),
            entries: (0..most).map(|e| timeline.names().of_entry(e as u16)).collect(),
            order,
            slice_ns: u.end_ns.saturating_sub(u.begin_ns).max(0) as u64 / u.slices.len().max(1) as u64,
            slices: u.slices.clone(),
            groups: groups(u),
            matrix: matrix(timeline, m),
            stragglers: s.stragglers.list.iter().map(|x| x.begin_ns.saturating_sub(begin_ns)).collect(),
            lanes,
            together_ns,
            detours_from_ns,
            without_lane: timeline.tracks().len() - tracks.len(),
        }
    }
}

/// The length below which segments are drawn together, so that all lanes fit the page.
fn threshold(cut: &[Vec<Segment>]) -> u64 {
    let count = |ns: u64| -> usize { cut.iter().map(|s| joined(s, ns).len()).sum() };
    let mut ns = 0;
    while count(ns) > MAX_SEGMENTS && ns < 1 << 60 {
        ns = (ns * 2).max(128);
    }
    ns
}

/// A segment, or a run of short ones.
struct Piece {
    begin_ns: i64,
    end_ns: i64,
    busy_ns: u64,
    /// The segment if it is one alone.
    one: Option<Segment>,
}

/// Segments, those shorter than `together_ns` put together in pieces of some of that length.
fn joined(segments: &[Segment], together_ns: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for s in segments {
        let (length, busy) = (s.length_ns(), if s.state == State::Busy { s.length_ns() } else { 0 });
        let room = |p: &&mut Piece| {
            let short = p.one.is_none_or(|one| one.length_ns() < together_ns);
            short && (p.end_ns - p.begin_ns) < 4 * together_ns.min(1 << 60) as i64
        };
        match pieces.last_mut().filter(|p| length < together_ns && room(p)) {
            Some(piece) => {
                piece.end_ns = s.end_ns;
                piece.busy_ns += busy;
                piece.one = None;
            }
            None => {
                pieces.push(Piece { begin_ns: s.begin_ns, end_ns: s.end_ns, busy_ns: busy, one: Some(*s) })
            }
        }
    }
    pieces
}

fn lane(timeline: &Timeline, track: &Track, segments: &[Segment], begin_ns: i64, together_ns: u64) -> Lane {
    let host = timeline.process(track.process).map_or_else(String::new, |p| p.host.clone());
    let mut lane = Lane { pe: track.pe, host, ..Lane::default() };
    let mut at = begin_ns;
    for piece in joined(segments, together_ns) {
        let length = (piece.end_ns - piece.begin_ns).max(1) as u64;
        let event = piece.one.and_then(|s| track.records.get(s.record?)?.event());
        let (kind, source) = match (piece.one.map(|s| s.state), event) {
            (None, _) => (MIXED - (piece.busy_ns * 100 / length) as i32, None),
            (Some(State::Busy), Some(Event::Executed { entry, message, .. })) => {
                (entry.into(), message.source())
            }
            (Some(State::Idle), _) => (IDLE, None),
            (Some(State::Balancing), _) => (BALANCING, None),
            (Some(_), _) => (OVERHEAD, None),
        };
        lane.gaps.push((piece.begin_ns - at).max(0) as u64);
        lane.lengths.push(length);
        lane.kinds.push(kind);
        lane.sources.push(source.map_or(-1, |pe| pe as i32));
        at = piece.end_ns;
    }
    lane
}

/// Gives each lane the detours of the CPUs its PE ran on, while it ran there: returns the length from which on they are kept.
fn add_detours(timeline: &Timeline, noise: &Noise, tracks: &[Track], lanes: &mut [Lane]) -> u64 {
    let (begin_ns, _) = timeline.span();
    let mut all: Vec<(usize, (i64, i64, u16))> = Vec::new();
    for (number, (track, lane)) in tracks.iter().zip(lanes.iter()).enumerate() {
        for (cpu, from, to) in stays(track) {
            all.extend(noise.hits(&lane.host, cpu, from, to).map(|d| {
                let (from, to) = (d.begin_ns.max(from), d.end_ns.min(to));
                (number, (from - begin_ns, to - from, d.source))
            }));
        }
    }
    let mut lengths: Vec<i64> = all.iter().map(|(_, d)| d.1).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let from_ns = lengths.get(MAX_DETOURS).map_or(0, |n| n + 1);
    for (number, detour) in all.into_iter().filter(|(_, d)| d.1 >= from_ns) {
        if let Some(lane) = lanes.get_mut(number) {
            lane.detours.push(detour);
        }
    }
    from_ns as u64
}

/// The CPUs a PE ran on, as far as its events know: each with begin and end of the stay.
fn stays(track: &Track) -> Vec<(u16, i64, i64)> {
    let mut stays: Vec<(u16, i64, i64)> = Vec::new();
    for t in track.events().filter(|t| t.cpu != colony_timeline::NO_CPU) {
        match stays.last_mut() {
            Some(last) if last.0 == t.cpu => {}
            Some(last) => {
                last.2 = t.begin_ns;
                stays.push((t.cpu, t.begin_ns, track.end_ns));
            }
            None => stays.push((t.cpu, track.begin_ns, track.end_ns)),
        }
    }
    stays
}

fn marks(timeline: &Timeline, tracks: &[Track], begin_ns: i64) -> Vec<Mark> {
    let names = timeline.names();
    let all = tracks.iter().enumerate().flat_map(|(lane, track)| {
        track.events().filter_map(move |t| {
            let name = match t.event {
                Event::User { event, value: NO_VALUE } => names.of_event(event),
                Event::User { event, value } => format!("{} {value}", names.of_event(event)),
                Event::MigratedOut(m) => format!("{} {} to PE {}", names.of_class(m.class), m.object, m.peer),
                Event::MigratedIn(m) => {
                    format!("{} {} from PE {}", names.of_class(m.class), m.object, m.peer)
                }
                _ => return None,
            };
            Some(Mark(t.begin_ns - begin_ns, lane, name))
        })
    });
    all.take(MAX_MARKS).collect()
}

/// The size of a group of PEs, for at most [`MAX_GROUPS`] groups.
fn group_size(pes: usize) -> usize {
    pes.div_ceil(MAX_GROUPS).max(1)
}

fn group_name(first: u32, last: u32) -> String {
    if first == last { first.to_string() } else { format!("{first}–{last}") }
}

fn groups(u: &Utilization) -> Vec<(String, Times)> {
    let of = |pes: &[colony_timeline::analysis::utilization::PeTimes]| {
        let name = group_name(pes[0].pe, pes[pes.len() - 1].pe);
        let mut sum = Times::default();
        for times in pes.iter().map(|p| p.times) {
            State::ALL.iter().for_each(|&state| sum.add(state, times.of(state)));
        }
        (name, sum)
    };
    u.pes.chunks(group_size(u.pes.len())).map(of).collect()
}

fn matrix(timeline: &Timeline, m: &Messages) -> Matrix {
    // PEs that messages name, whether they have a track or not
    let mut pes: Vec<u32> = timeline.tracks().iter().map(|t| t.pe).collect();
    pes.extend(m.cells.iter().flat_map(|c| [c.from, c.to]));
    pes.sort_unstable();
    pes.dedup();
    let size = group_size(pes.len());
    let group = |pe: u32| pes.binary_search(&pe).unwrap_or(0) / size;
    let mut cells = std::collections::BTreeMap::<(usize, usize), (u64, u64)>::new();
    for c in &m.cells {
        let (messages, bytes) = cells.entry((group(c.from), group(c.to))).or_default();
        *messages += c.messages;
        *bytes = bytes.saturating_add(c.bytes);
    }
    Matrix {
        groups: pes.chunks(size).map(|g| group_name(g[0], g[g.len() - 1])).collect(),
        cells: cells.into_iter().map(|((from, to), (messages, bytes))| (from, to, messages, bytes)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_timeline::{Meta, Names, Process, Record, Timed};

    /// A PE that was busy every other microsecond.
    fn busy(pe: u32, executions: i64) -> Track {
        let event = Event::Executed { entry: 0, message: colony_timeline::MessageId::NONE, bytes: 0 };
        let timed = |n| Timed { begin_ns: n * 2000, duration_ns: 1000, cpu: 0, event };
        let records = (0..executions).map(timed).map(Record::from).collect();
        Track { pe, process: 0, begin_ns: 0, kept_from_ns: 0, end_ns: executions * 2000, dropped: 0, records }
    }

    fn drawn(tracks: Vec<Track>, noise: Option<&Noise>) -> Drawn {
        let process = Process { host: "h".into(), ..Process::default() };
        let t = Timeline::new(Meta::default(), vec![process], Names::default(), tracks).expect("a run");
        Drawn::of(&t, noise, &Summary::of(&t, noise, 50, 10))
    }

    #[test]
    fn a_long_run_fits_the_page_and_keeps_its_shares() {
        let d = drawn((0..4).map(|pe| busy(pe, 50_000)).collect(), None);
        assert!(d.together_ns > 1000);
        for lane in &d.lanes {
            assert!(lane.kinds.len() < MAX_SEGMENTS / 4);
            assert_eq!(lane.gaps.iter().sum::<u64>() + lane.lengths.iter().sum::<u64>(), 100_000_000);
            // the last piece is what is left
            let pieces = &lane.kinds[..lane.kinds.len() - 1];
            assert!(pieces.iter().all(|k| (MIXED - 60..=MIXED - 40).contains(k)), "half of it was busy");
        }
    }

    #[test]
    fn a_short_run_is_drawn_as_it_was() {
        let d = drawn(vec![busy(7, 3)], None);
        assert_eq!((d.together_ns, d.lanes[0].pe), (0, 7));
        assert_eq!(d.lanes[0].kinds, [0, OVERHEAD, 0, OVERHEAD, 0, OVERHEAD]);
        assert_eq!(d.lanes[0].sources, [-1; 6]);
    }

    #[test]
    fn many_pes_are_taken_together_and_the_longest_detours_stay() {
        let mut noise = Noise::default();
        let observed = colony_timeline::Observed { begin_ns: 0, end_ns: 1 << 40 };
        noise.add("h", observed, (0..30_000).map(|n| (0, n * 2, n * 2 + 1 + n % 2, "nmi")));
        let d = drawn((0..600).map(|pe| busy(pe, 100)).collect(), Some(&noise));
        assert_eq!((d.lanes.len(), d.without_lane), (512, 88));
        assert_eq!((d.groups.len(), d.groups[0].0.as_str()), (60, "0–9"));
        assert_eq!(d.matrix.groups.len(), 60);
        let detours: usize = d.lanes.iter().map(|l| l.detours.len()).sum();
        assert!(detours <= MAX_DETOURS && d.detours_from_ns > 0, "{detours}");
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        let d = drawn(Vec::new(), Some(&Noise::default()));
        assert!(d.lanes.is_empty() && d.matrix.groups.is_empty() && d.slices.is_empty());
    }
}
