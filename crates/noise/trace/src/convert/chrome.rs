// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrome trace JSON, which Perfetto and `chrome://tracing` show: a complete event (`"ph":"X"`) a detour,
//! `pid` the node, `tid` the CPU, times in microseconds.
//!
//! Viewers keep times as doubles, too coarse for nanoseconds since 1970: times count from the start of the
//! observation, which `otherData` tells.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

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
    let found: File = serde_json::from_reader(WordLimit::new(input)).map_err(|e| match e.classify() {
        serde_json::error::Category::Io => Problem::Io(e.into()),
        _ => Problem::Json(e.to_string()),
    })?;
    let mut trace = found.events.0;
    match found.meta {
        Some(meta) => {
            trace.shift(meta.start_ns);
            trace.build(meta)
        }
        None if !found.has_events => Err(Problem::Json(match found.schema {
            Some(schema) => format!(
                "this is a result of Colony (`{}`), which has no single detours; `colony measure --out FILE.parquet` keeps them",
                schema.chars().take(60).collect::<String>()
            ),
            None => "the object has no `traceEvents`".into(),
        })),
        None if trace.is_empty() => Err(Problem::Empty("complete events (\"ph\":\"X\") in traceEvents")),
        None => {
            trace.note("the process and thread numbers of the events are taken for nodes and CPUs");
            trace.build_foreign(Stated::default())
        }
    }
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
}

impl Event {
    /// The detour and its source's name; `None` for events of other kinds.
    fn detour(self) -> Result<Option<(Detour, Source)>, String> {
        if self.ph.as_deref() != Some("X") {
            return Ok(None);
        }
        fn number<T: TryFrom<i128>>(field: &str, value: Option<&RawValue>, places: i32) -> Result<T, String> {
            let text = value.map_or("", RawValue::get);
            decimal(text, places).and_then(|v| v.try_into().ok()).ok_or_else(|| {
                let shown: String = text.chars().take(40).collect();
                format!("an event's `{field}` must be a number in its range and is `{shown}`")
            })
        }
        let optional =
            |field, value: Option<&RawValue>| value.map_or(Ok(0u32), |v| number(field, Some(v), 0));
        let tid = optional("tid", self.tid.as_deref())?;
        let detour = Detour {
            node: optional("pid", self.pid.as_deref())?,
            cpu: tid.try_into().map_err(|_| Problem::Cpu(tid.into()).to_string())?,
            start_ns: number("ts", self.ts.as_deref(), 3)?,
            duration_ns: number("dur", self.dur.as_deref(), 3)?,
            source: 0,
        };
        let source = self.name.as_deref().map_or(Source::Unexplained, Source::from);
        Ok(Some((detour, source)))
    }
}

/// `traceEvents`, taken in one by one.
#[derive(Default)]
struct Events(TraceBuilder);

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Seq;
        impl<'de> Visitor<'de> for Seq {
            type Value = Events;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of trace events")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Events, A::Error> {
                collect(seq)
            }
        }
        d.deserialize_seq(Seq)
    }
}

fn collect<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Events, A::Error> {
    use serde::de::Error;
    let mut trace = TraceBuilder::new();
    while let Some(event) = seq.next_element::<Event>()? {
        if let Some((mut detour, source)) = event.detour().map_err(A::Error::custom)? {
            detour.source = trace.source(&source).map_err(A::Error::custom)?;
            trace.push(detour).map_err(A::Error::custom)?;
        }
    }
    Ok(Events(trace))
}

/// `{"traceEvents":[…], …}` or a bare array of events.
#[derive(Default)]
struct File {
    events: Events,
    has_events: bool,
    meta: Option<TraceMeta>,
    /// The value of `schema`, which Colony's results have.
    schema: Option<String>,
}

#[derive(Deserialize)]
struct Other {
    #[serde(rename = "colony.meta")]
    meta: Option<Box<RawValue>>,
}

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = File;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`, or an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<File, A::Error> {
        Ok(File { events: collect(seq)?, has_events: true, ..File::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
        use serde::de::Error;
        let mut file = File::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => (file.events, file.has_events) = (map.next_value()?, true),
                "schema" => file.schema = map.next_value::<serde_json::Value>()?.as_str().map(str::to_owned),
                "otherData" => {
                    let other: Other = map.next_value()?;
                    let meta = other.meta.map(|m| TraceMeta::from_json(m.get()));
                    file.meta = meta.transpose().map_err(A::Error::custom)?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(file)
    }
}
