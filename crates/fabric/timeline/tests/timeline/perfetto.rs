// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace for Perfetto, decoded by another protobuf library with the fields of Perfetto's `.proto` files.

use std::collections::{BTreeMap, BTreeSet};

use colony_timeline::{Event, Noise, Observed, Timeline, Track, perfetto, sample};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "Type", optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Type {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "1")]
    event_categories: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Named>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(int32, optional, tag = "12")]
    sibling_order_rank: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

/// A slice or an instant of a track.
#[derive(Clone, Debug, PartialEq)]
struct Slice {
    begin: u64,
    end: u64,
    name: String,
    depth: usize,
    flows: Vec<u64>,
    ends: Vec<u64>,
}

/// The slices of each track, by the rules of Perfetto: an end closes the innermost slice of its track.
fn slices(trace: &Trace) -> BTreeMap<u64, Vec<Slice>> {
    let (first, rest) = trace.packet.split_first().expect("packets");
    assert_eq!(first.sequence_flags, Some(1), "the first packet clears the state");
    let names = first.interned_data.as_ref().expect("names");
    let by_id = |list: &[Named]| -> BTreeMap<u64, String> {
        assert!(list.iter().all(|n| n.iid > 0));
        let map: BTreeMap<_, _> = list.iter().map(|n| (n.iid, n.name.clone())).collect();
        assert_eq!(map.len(), list.len(), "an id has one name");
        map
    };
    let (events, categories) = (by_id(&names.event_names), by_id(&names.event_categories));
    let annotations = by_id(&names.debug_annotation_names);
    let mut described = BTreeSet::new();
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut all: BTreeMap<u64, Vec<Slice>> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for p in rest {
        assert_eq!(p.trusted_packet_sequence_id, Some(1));
        if let Some(d) = &p.track_descriptor {
            assert!(d.parent_uuid.is_none_or(|parent| described.contains(&parent)), "parents come first");
            assert!(described.insert(d.uuid), "a track is described once");
        }
        let Some(e) = &p.track_event else { continue };
        assert_eq!(p.sequence_flags, Some(2));
        let track = e.track_uuid.expect("a track");
        assert!(described.contains(&track), "a track is described before its events");
        let at = p.timestamp.expect("an instant");
        assert!(last.insert(track, at).is_none_or(|before| before <= at), "time runs backwards");
        let (stack, list) = (open.entry(track).or_default(), all.entry(track).or_default());
        if e.kind() == Type::SliceEnd {
            let slice: usize = stack.pop().expect("an open slice");
            list[slice].end = at;
            continue;
        }
        assert!(e.category_iids.iter().all(|c| categories.contains_key(c)) && e.category_iids.len() == 1);
        assert!(e.debug_annotations.iter().all(|a| annotations.contains_key(&a.name_iid.expect("a name"))));
        let name = events[&e.name_iid.expect("a name")].clone();
        let (flows, ends) = (e.flow_ids.clone(), e.terminating_flow_ids.clone());
        list.push(Slice { begin: at, end: at, name, depth: stack.len(), flows, ends });
        if e.kind() == Type::SliceBegin {
            stack.push(list.len() - 1);
        } else {
            assert_eq!(e.kind(), Type::Instant);
        }
    }
    assert!(open.values().all(Vec::is_empty), "every slice ends");
    all
}

fn decode(timeline: &Timeline, noise: Option<&Noise>) -> Trace {
    let mut bytes = Vec::new();
    perfetto::write_to(timeline, noise, &mut bytes).expect("memory");
    Trace::decode(&bytes[..]).expect("protobuf")
}

fn run() -> (Timeline, Noise) {
    let ([a, b], rows) = sample::stencil();
    let t = a.merge(b).expect("one run");
    let (begin_ns, end_ns) = t.span();
    let mut noise = Noise::default();
    noise.add(sample::HOST, Observed { begin_ns, end_ns }, rows);
    (t, noise)
}

#[test]
fn every_event_is_on_the_track_of_its_pe_with_its_name_and_flow() {
    let (t, noise) = run();
    let trace = decode(&t, Some(&noise));
    let slices = slices(&trace);
    let track_of = |name: &str| {
        let d = trace.packet.iter().filter_map(|p| p.track_descriptor.as_ref());
        d.filter(|d| d.name.as_deref() == Some(name)).map(|d| d.uuid).next().expect("a track")
    };
    for track in t.tracks() {
        let found = &slices[&track_of(&format!("PE {}", track.pe))];
        assert_eq!(found.len(), track.records.len());
        for (slice, timed) in found.iter().zip(track.events()) {
            assert_eq!((slice.begin, slice.end), (timed.begin_ns as u64, timed.end_ns() as u64));
            if let Event::Executed { entry, .. } = timed.event {
                assert_eq!(slice.name, t.names().of_entry(entry));
            }
        }
    }
    let all: Vec<&Slice> = slices.values().flatten().collect();
    let sent: BTreeSet<u64> =
        all.iter().filter(|s| s.name.starts_with("send ")).flat_map(|s| s.flows.clone()).collect();
    let ended: Vec<u64> = all.iter().flat_map(|s| s.ends.clone()).collect();
    assert!(!ended.contains(&0) && ended.iter().all(|f| sent.contains(f)), "every execution has its sending");
    let unique: BTreeSet<u64> = ended.iter().copied().collect();
    assert_eq!(unique.len(), ended.len(), "a flow ends once");
    let resumed = all.iter().filter(|s| s.name == "Block::resume");
    assert!(
        resumed.clone().count() > 100 && resumed.clone().all(|s| s.flows.len() == 1 && s.ends.is_empty())
    );
    let processes: BTreeSet<i32> = trace
        .packet
        .iter()
        .filter_map(|p| Some(p.track_descriptor.as_ref()?.process.as_ref()?.pid))
        .collect();
    assert_eq!(processes, BTreeSet::from([1, 2, 3]), "two processes, and the noise of their host");
    assert!(slices[&track_of("CPU 2")].iter().any(|s| s.name == "thread:kworker/2:1"));
}

#[test]
fn slices_nest_even_if_the_intervals_cross() {
    use colony_timeline::{MessageId, Meta, Names, Process, Record, Timed};
    let run = Event::Executed { entry: 0, message: MessageId::NONE, bytes: 0 };
    let timed = |begin_ns, duration_ns, event| Record::from(Timed { begin_ns, duration_ns, cpu: 0, event });
    let records = vec![timed(10, 20, run), timed(15, 5, run), timed(18, 30, Event::Idle), timed(100, 0, run)];
    let track = Track { pe: 9, process: 0, begin_ns: 0, kept_from_ns: 0, end_ns: 200, dropped: 0, records };
    let t = Timeline::new(Meta::default(), vec![Process::default()], Names::default(), vec![track])
        .expect("a run");
    let all = slices(&decode(&t, None));
    let found: Vec<_> = all.values().flatten().map(|s| (s.begin, s.end, s.depth)).collect();
    assert_eq!(found, [(10, 30, 0), (15, 20, 1), (18, 20, 2), (100, 100, 0)]);
}
