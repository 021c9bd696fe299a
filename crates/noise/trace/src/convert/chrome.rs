// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrome trace JSON, which Perfetto and `chrome://tracing` show: a complete event (`"ph":"X"`) a detour,
//! `pid` the node, `tid` the CPU, times in microseconds.
//!
//! In a file of another tool, `pid` and `tid` are numbers of processes and threads. Only a thread or a process that is named `CPU 3`
//! is a CPU, and events without such a name are no detours.
//!
//! Viewers keep times as doubles, too coarse for nanoseconds since 1970: times count from the start of the
//! observation, which `otherData` tells.

mod kind;
mod lanes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use self::kind::{Kind, Text};
use self::lanes::Lanes;
use super::text::{WordLimit, decimal, micros};
use crate::Source;
use crate::trace::{Detour, Problem, Stated, Trace, TraceBuilder, TraceMeta, parquet::META_KEY};

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), Problem> {
    let json = |text: &str| serde_json::Value::from(text).to_string();
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"{META_KEY}\":{}}},", trace.meta.to_json()?)?;
    write!(out, "\"traceEvents\":[")?;
    let mut comma = "";
    for lane in trace.lanes() {
        let name = json(&format!("CPU {}", lane.cpu));
        write!(
            out,
            "{comma}\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{name}}}}}",
            lane.node, lane.cpu
        )?;
        comma = ",";
    }
    let names: Vec<String> = trace.sources.iter().map(|s| json(&s.to_string())).collect();
    for d in &trace.detours {
        let name = names.get(usize::from(d.source)).map_or("\"unexplained\"", String::as_str);
        let (ts, dur) = (i128::from(d.start_ns) - i128::from(trace.meta.start_ns), i128::from(d.duration_ns));
        write!(
            out,
            "{comma}\n{{\"ph\":\"X\",\"name\":{name},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{}}}",
            d.node,
            d.cpu,
            micros(ts),
            micros(dur)
        )?;
        comma = ",";
    }
    write!(out, "\n]}}\n")?;
    Ok(())
}

pub(super) fn read(input: impl Read) -> Result<Trace, Problem> {
    let mut input = BufReader::new(input);
    if input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        input.consume(3);
    }
    let mut file = File::default();
    let mut json = serde_json::Deserializer::from_reader(WordLimit::new(input));
    let parsed = FileSeed(&mut file).deserialize(&mut json).and_then(|()| json.end());
    if let Err(e) = parsed {
        file.forgive(e)?;
    }
    file.trace()
}

/// One event as it stands in the file. Numbers stay text: a double would round them.
#[derive(Deserialize)]
struct Event {
    ph: Option<String>,
    name: Option<String>,
    pid: Option<Box<RawValue>>,
    tid: Option<Box<RawValue>>,
    ts: Option<Box<RawValue>>,
    dur: Option<Box<RawValue>>,
    args: Option<Box<RawValue>>,
}

/// A number in microseconds, as nanoseconds.
fn nanoseconds<T: TryFrom<i128>>(field: &str, value: Option<&RawValue>) -> Result<T, String> {
    let text = value.map_or("", RawValue::get);
    decimal(text, 3).and_then(|v| v.try_into().ok()).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        format!("an event's `{field}` must be a number in its range and is `{shown}`")
    })
}

/// The kernel's idle thread, as its tracer names it.
fn is_idle(source: &Source) -> bool {
    let name = source.to_string();
    let name = name.strip_prefix("thread:").unwrap_or(&name);
    let number = name.strip_prefix("swapper").map(|rest| rest.strip_prefix('/').unwrap_or(rest));
    number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

/// The text of a number or a string.
fn plain(value: Option<&RawValue>) -> &str {
    value.map_or("", |value| value.get().trim_matches('"'))
}

/// The events of a file, taken in one by one. Until the whole file is read, `node` of a detour is the number of its row.
#[derive(Default)]
struct Events {
    trace: TraceBuilder,
    lanes: Lanes,
    /// Beginnings (with their source) and ends (without) by row, in any order, as the format allows.
    edges: HashMap<u32, Vec<(i64, Option<Source>)>>,
    /// Events of the idle thread.
    idle: u64,
    /// First and last instant of any event.
    span_ns: Option<(i64, i64)>,
    /// Whole events of the file, of every kind.
    whole: u64,
}

impl Events {
    fn take(&mut self, event: Event) -> Result<(), String> {
        self.whole += 1;
        let (pid, tid) = (plain(event.pid.as_deref()), plain(event.tid.as_deref()));
        let source = || event.name.as_deref().map_or(Source::Unexplained, Source::from);
        let kind = event.ph.as_deref().unwrap_or_default();
        if kind == "M" {
            self.name(event.name.as_deref(), pid, tid, event.args.as_deref());
            return Ok(());
        }
        let start_ns: Result<i64, String> = nanoseconds("ts", event.ts.as_deref());
        match kind {
            "X" => {
                let duration_ns = nanoseconds("dur", event.dur.as_deref())?;
                let row = self.lanes.row(pid, tid);
                self.push(row, &source(), start_ns?, duration_ns)
            }
            "B" | "E" => {
                let (row, at_ns) = (self.lanes.row(pid, tid), start_ns?);
                self.see(at_ns, at_ns);
                self.edges.entry(row).or_default().push((at_ns, (kind == "B").then(source)));
                Ok(())
            }
            _ => {
                if let Ok(at_ns) = start_ns {
                    self.see(at_ns, at_ns);
                }
                Ok(())
            }
        }
    }

    fn name(&mut self, name: Option<&str>, pid: &str, tid: &str, args: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let Some(Named { name: text }) = args.and_then(|args| serde_json::from_str(args.get()).ok()) else {
            return;
        };
        match name {
            Some("thread_name") => self.lanes.name_thread(pid, tid, text),
            Some("process_name") => self.lanes.name_process(pid, text),
            _ => {}
        }
    }

    fn see(&mut self, start_ns: i64, end_ns: i64) {
        let (first, last) = self.span_ns.unwrap_or((start_ns, end_ns));
        self.span_ns = Some((first.min(start_ns), last.max(end_ns)));
    }

    /// Makes events of beginnings and ends. Returns the number of those without the other.
    fn pair_edges(&mut self) -> Result<u64, Problem> {
        let mut single = 0;
        for (row, mut edges) in std::mem::take(&mut self.edges) {
            // of one instant, the order of the file counts
            edges.sort_by_key(|(at_ns, _)| *at_ns);
            let mut open: Vec<(Source, i64)> = Vec::new();
            for (at_ns, source) in edges {
                match (source, open.pop()) {
                    (Some(source), outer) => open.extend(outer.into_iter().chain([(source, at_ns)])),
                    (None, Some((source, start_ns))) => {
                        self.push(row, &source, start_ns, at_ns.abs_diff(start_ns)).map_err(Problem::Json)?;
                    }
                    (None, None) => single += 1,
                }
            }
            single += open.len() as u64;
        }
        Ok(single)
    }

    fn push(&mut self, row: u32, source: &Source, start_ns: i64, duration_ns: u64) -> Result<(), String> {
        self.see(start_ns, start_ns.saturating_add_unsigned(duration_ns));
        if is_idle(source) {
            self.idle += 1;
            return Ok(());
        }
        let source = self.trace.source(source).map_err(|e| e.to_string())?;
        let detour = Detour { node: row, cpu: 0, start_ns, duration_ns, source };
        self.trace.push(detour).map_err(|e| e.to_string())
    }

    /// The trace of another tool.
    fn foreign(mut self, pairs: &[(String, String)]) -> Result<Trace, Problem> {
        let single = self.pair_edges()?;
        let mut trace = self.trace;
        if self.idle > 0 {
            trace.note(format!("{} events of the idle thread are no noise: they are left out", self.idle));
        }
        if trace.is_empty() && self.idle == 0 {
            return Err(Problem::Empty("complete events (\"ph\":\"X\", or \"B\" and \"E\") in traceEvents"));
        }
        let named = self.lanes.by_name()?;
        let all = trace.len();
        trace.move_lanes(|row| named.lanes.get(row.node as usize).copied().flatten());
        match all - trace.len() {
            0 => {}
            n => trace.note(format!(
                "{n} of {all} events are of threads that are not named as CPUs: they are left out"
            )),
        }
        if named.has_nodes_of_processes {
            trace.note("CPUs are named in several processes: the process numbers are taken for nodes");
        }
        if single > 0 {
            trace.note(format!("{single} events lack their beginning or their end: they are left out"));
        }
        let mut stated = Stated::of_pairs(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
        stated.cpus.get_or_insert(named.cpus);
        let detours = (trace.first_ns(), trace.last_ns());
        if let Some((first, last)) = self.span_ns.filter(|span| (Some(span.0), Some(span.1)) != detours)
            && stated.observed_s.is_none()
            && stated.start_ns.is_none()
        {
            // other events say more of what was observed
            stated.start_ns = Some(first);
            stated.observed_s = Some(last.abs_diff(first) as f64 / 1e9);
        }
        trace.build_foreign(stated)
    }
}

/// `{"traceEvents":[…], …}` or a bare array of events.
#[derive(Default)]
struct File {
    events: Events,
    has_events: bool,
    is_array: bool,
    meta: Option<TraceMeta>,
    /// Numbers and texts of `otherData`.
    pairs: Vec<(String, String)>,
    /// Kind of the file, if it has no events.
    kind: Kind,
}

impl File {
    /// Accepts the error of an array without its end, which the format allows: a killed tool leaves such a file.
    fn forgive(&mut self, e: serde_json::Error) -> Result<(), Problem> {
        let is_cut = match e.classify() {
            serde_json::error::Category::Io => return Err(Problem::Io(e.into())),
            category => category == serde_json::error::Category::Eof,
        };
        if !self.has_events {
            return Err(self.kind.name().map_or_else(|| Problem::Json(e.to_string()), Problem::OtherFile));
        }
        if !is_cut {
            return Err(Problem::Json(e.to_string()));
        }
        if !self.is_array || self.events.trace.is_empty() && self.events.edges.is_empty() {
            return Err(Problem::CutChrome {
                line: e.line(),
                column: e.column(),
                whole_events: self.events.whole,
                end: if self.is_array { "]" } else { "]}" },
            });
        }
        self.events.trace.note(
            "the file ends without the closing `]`: the tool was ended while it wrote, and its last events may be missing",
        );
        Ok(())
    }

    fn trace(self) -> Result<Trace, Problem> {
        match self.meta {
            Some(meta) => {
                let mut events = self.events;
                events.pair_edges()?;
                let lanes = events.lanes.by_number()?;
                let mut trace = events.trace;
                trace.move_lanes(|row| lanes.get(row.node as usize).copied().flatten());
                trace.shift(meta.start_ns);
                trace.build(meta)
            }
            None if !self.has_events => Err(self
                .kind
                .name()
                .map_or_else(|| Problem::Json("the object has no `traceEvents`".into()), Problem::OtherFile)),
            None => self.events.foreign(&self.pairs),
        }
    }

    /// Takes the value of `otherData` in; what is no object says nothing.
    fn other_data(&mut self, value: &RawValue) -> Result<(), Problem> {
        let Ok(pairs) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(value.get()) else {
            return Ok(());
        };
        for (key, value) in pairs {
            if key == META_KEY {
                self.meta = Some(TraceMeta::from_json(value.get())?);
            } else if !value.get().starts_with(['{', '[']) {
                self.pairs.push((key, plain(Some(&value)).to_owned()));
            }
        }
        Ok(())
    }
}

struct EventsSeed<'a>(&'a mut Events);

impl<'de> DeserializeSeed<'de> for EventsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EventsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of trace events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        use serde::de::Error;
        while let Some(event) = seq.next_element::<Event>()? {
            self.0.take(event).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

struct FileSeed<'a>(&'a mut File);

impl<'de> DeserializeSeed<'de> for FileSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FileSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`, or an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        (self.0.has_events, self.0.is_array) = (true, true);
        EventsSeed(&mut self.0.events).visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        use serde::de::Error;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => {
                    self.0.has_events = true;
                    map.next_value_seed(EventsSeed(&mut self.0.events))?;
                }
                "otherData" => {
                    let value = map.next_value::<Box<RawValue>>()?;
                    self.0.other_data(&value).map_err(A::Error::custom)?;
                }
                key if Kind::KEYS.contains(&key) => self.0.kind.field(key, map.next_value::<Text>()?.0),
                key => {
                    self.0.kind.field(key, None);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
