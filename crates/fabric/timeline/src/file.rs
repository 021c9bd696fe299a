// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a time line, `colony.timeline/1`: a line with the schema, a line of JSON, the events.
//!
//! Both lines are text, so `head -n 2` shows them. The JSON line ends in blanks, so that the events begin at a multiple of 32 bytes. The
//! events are those of the tracks in the order of the JSON, 32 bytes each ([`Record`]). A file is read within the bounds of its
//! own length: nothing is allocated on the word of its header alone.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::error::{MAGIC, Problem, SCHEMA, TimelineError};
use crate::names::Names;
use crate::projections;
use crate::record::{ALL_PES, Event, MAX_PES, Record};
use crate::timeline::{FAR_NS, Meta, Process, Timeline, Track};

/// The longest header: names of 65,535 entry methods, and 16 million tracks would not fit a file anyway.
const MAX_HEADER: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
struct Header {
    #[serde(flatten)]
    meta: Meta,
    processes: Vec<Process>,
    names: Names,
    tracks: Vec<TrackHeader>,
}

#[derive(Serialize, Deserialize)]
struct TrackHeader {
    pe: u32,
    process: u32,
    begin_ns: i64,
    kept_from_ns: i64,
    end_ns: i64,
    dropped: u64,
    events: u64,
}

impl Timeline {
    /// Reads a file.
    ///
    /// # Errors
    /// [`TimelineError::File`] with the problem.
    pub fn read(path: &Path) -> Result<Self, TimelineError> {
        let error = |problem| TimelineError::File { doing: "reading", path: path.into(), problem };
        let file = File::open(path).map_err(|e| error(e.into()))?;
        let meta = file.metadata().map_err(|e| error(e.into()))?;
        if !meta.is_file() {
            return Err(error(io::Error::other("it is no regular file").into()));
        }
        read(BufReader::with_capacity(1 << 20, file), meta.len()).map_err(error)
    }

    /// Reads the files of a run's processes as one time line. An `.sts` file or a folder is a [run of Projections](projections::read()).
    ///
    /// # Errors
    /// [`TimelineError`] if a file cannot be read, or they are not of one run.
    pub fn read_all<P: AsRef<Path>>(paths: &[P]) -> Result<Self, TimelineError> {
        let mut all: Option<Self> = None;
        for path in paths {
            let path = path.as_ref();
            let next = if projections::is_run(path) { projections::read(path)? } else { Self::read(path)? };
            all = Some(match all {
                None => next,
                Some(all) => all.merge(next)?,
            });
        }
        match all {
            Some(all) => Ok(all),
            None => Self::new(Meta::default(), Vec::new(), Names::default(), Vec::new()),
        }
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`Problem`] of the content.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        read(bytes, bytes.len() as u64)
    }

    /// Writes a file: whole or not at all.
    ///
    /// # Errors
    /// [`TimelineError::File`] with the file system's reason.
    pub fn write(&self, path: &Path) -> Result<(), TimelineError> {
        colony_node::file::write_atomically(path, |out| self.write_to(BufWriter::new(out)))
            .map_err(|problem| TimelineError::File { doing: "writing", path: path.into(), problem })
    }

    /// Writes the bytes of a file.
    ///
    /// # Errors
    /// [`Problem::Io`] of `out`.
    pub fn write_to(&self, mut out: impl Write) -> Result<(), Problem> {
        let tracks = self.tracks().iter().map(|t| TrackHeader {
            pe: t.pe,
            process: t.process,
            begin_ns: t.begin_ns,
            kept_from_ns: t.kept_from_ns,
            end_ns: t.end_ns,
            dropped: t.dropped,
            events: t.records.len() as u64,
        });
        let header = Header {
            meta: self.meta().clone(),
            processes: self.processes().to_vec(),
            names: self.names().clone(),
            tracks: tracks.collect(),
        };
        let mut text = format!("{SCHEMA}\n").into_bytes();
        serde_json::to_writer(&mut text, &header).map_err(|e| Problem::Header(e.to_string()))?;
        let blanks = (Record::SIZE - (text.len() + 1) % Record::SIZE) % Record::SIZE;
        text.extend(std::iter::repeat_n(b' ', blanks));
        text.push(b'\n');
        out.write_all(&text)?;
        for track in self.tracks() {
            out.write_all(track.records.as_bytes())?;
        }
        Ok(out.flush()?)
    }
}

/// Reads a time line of `length` bytes.
fn read(mut from: impl BufRead, length: u64) -> Result<Timeline, Problem> {
    let schema = line(&mut from, 80)?.filter(|l| l.starts_with(MAGIC)).ok_or(Problem::NotATimeline)?;
    if schema != SCHEMA {
        return Err(Problem::Schema(schema));
    }
    let json = line(&mut from, MAX_HEADER)?.ok_or_else(|| Problem::Header("it has no end".into()))?;
    let header: Header = serde_json::from_str(&json).map_err(|e| Problem::Header(e.to_string()))?;
    let found = length.saturating_sub((schema.len() + json.len() + 2) as u64);
    let counts = header.tracks.iter().map(|t| t.events);
    let announced = counts.fold(0u64, |sum, n| sum.saturating_add(n)).saturating_mul(Record::SIZE as u64);
    if announced != found {
        return Err(Problem::Size { announced, found });
    }
    let tracks = header.tracks.into_iter().map(|t| track(&mut from, t)).collect::<Result<_, _>>()?;
    Timeline::new(header.meta, header.processes, header.names, tracks)
        .map_err(|e| Problem::Content(e.to_string()))
}

/// The next line without its end; `None` if it is longer than `most` bytes, has no end, or is not UTF-8.
fn line(from: &mut impl BufRead, most: u64) -> Result<Option<String>, Problem> {
    let mut bytes = Vec::new();
    from.by_ref().take(most).read_until(b'\n', &mut bytes)?;
    Ok(bytes.pop().filter(|&b| b == b'\n').and_then(|_| String::from_utf8(bytes).ok()))
}

/// Reads the events of a track, of which there are as many as its header says.
fn track(from: &mut impl Read, t: TrackHeader) -> Result<Track, Problem> {
    let far = |ns: i64| !(-FAR_NS..=FAR_NS).contains(&ns);
    let times = [t.begin_ns, t.kept_from_ns, t.end_ns];
    if !times.is_sorted() || times.into_iter().any(far) {
        let pe = t.pe;
        return Err(Problem::Content(format!(
            "the track of PE {pe} runs backwards, or beyond 73 years from 1970"
        )));
    }
    let mut records = vec![Record::BLANK; t.events as usize];
    from.read_exact(records.as_mut_bytes())?;
    let mut last = i64::MIN;
    for (record, number) in records.iter().zip(1..) {
        let wrong = |reason| Err(Problem::Event { pe: t.pe, number, reason });
        let begin_ns = record.begin() as i64;
        let pe = |pe: u32| pe < MAX_PES || pe == ALL_PES;
        match record.event() {
            None => return wrong("its kind is unknown"),
            _ if far(begin_ns) => return wrong("it begins more than 73 years from 1970"),
            _ if begin_ns < last => return wrong("it begins before the one ahead of it"),
            Some(Event::Sent { to, .. }) if !pe(to) => return wrong("there cannot be such a PE"),
            Some(Event::MigratedIn(m) | Event::MigratedOut(m)) if !pe(m.peer) => {
                return wrong("there cannot be such a PE");
            }
            Some(_) => last = begin_ns,
        }
    }
    let TrackHeader { pe, process, begin_ns, kept_from_ns, end_ns, dropped, .. } = t;
    Ok(Track { pe, process, begin_ns, kept_from_ns, end_ns, dropped, records })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{any_timeline, small};
    use proptest::prelude::*;

    fn bytes(t: &Timeline) -> Vec<u8> {
        let mut out = Vec::new();
        t.write_to(&mut out).expect("memory");
        out
    }

    #[test]
    fn a_file_is_written_and_read_and_begins_with_text() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.timeline");
        let t = small();
        t.write(&path).expect("written");
        assert_eq!(Timeline::read(&path).expect("read"), t);
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1, "no temporary file stays");
        let raw = bytes(&t);
        let head = raw.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(1).expect("two lines").0 + 1;
        assert_eq!(head % 32, 0);
        let json: serde_json::Value = serde_json::from_slice(&raw[SCHEMA.len()..head]).expect("JSON");
        assert_eq!(json["program"], "small");
        let events: u64 =
            json["tracks"].as_array().expect("a list").iter().filter_map(|t| t["events"].as_u64()).sum();
        assert_eq!(raw.len() as u64, head as u64 + 32 * events);
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        let good = bytes(&small());
        let text = |t: &str| t.as_bytes().to_vec();
        let head = good.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(1).expect("two lines").0 + 1;
        let edited = |at: usize, value: u8| {
            let mut b = good.clone();
            b[head + at] = value;
            b
        };
        let track = r#"{"pe":0,"process":0,"begin_ns":0,"kept_from_ns":0,"end_ns":1,"dropped":0,"events":E}"#;
        let header = |tracks: &str| {
            let names = r#"{"classes":[],"entries":[]}"#;
            text(&format!(
                "{SCHEMA}\n{{\"program\":\"p\",\"build\":\"b\",\"processes\":[{{\"rank\":0,\"host\":\"h\",\"pid\":1}}],\
                 \"names\":{names},\"tracks\":[{tracks}]}}\n"
            ))
        };
        for (content, says) in [
            (vec![], "no time line"),
            (text("PAR1"), "no time line"),
            (text("colony.timeline/9\n"), "`colony.timeline/9` and this version knows `colony.timeline/1`"),
            (text("colony.timeline/1\n"), "no end"),
            (text("colony.timeline/1\n{}\n"), "missing field"),
            (good[..good.len() - 1].to_vec(), "cut off"),
            ([&good[..], b"x"].concat(), "bytes of events"),
            (edited(30, 77), "event 1 of PE 0 is impossible: its kind is unknown"),
            (edited(7, 0x7f), "73 years"),
            (header(&track.replace('E', "18446744073709551615")), "bytes of events"),
            (header(&track.replace('E', "576460752303423488")), "bytes of events"),
            (header(&[track, track].join(",").replace('E', "0")), "PE 0 has two tracks"),
            (header(&track.replace('E', "0").replace("\"process\":0", "\"process\":3")), "process 3"),
            (header(&track.replace('E', "0").replace("\"end_ns\":1", "\"end_ns\":-1")), "backwards"),
        ] {
            let error = Timeline::parse(&content).expect_err(says).to_string();
            assert!(error.contains(says), "{error}, not {says}");
        }
        let missing = Timeline::read("/nowhere/x".as_ref()).expect_err("not there").to_string();
        assert!(missing.starts_with("reading /nowhere/x: No such file"), "{missing}");
        let folder = Timeline::read("/".as_ref()).expect_err("a folder").to_string();
        assert!(folder.contains("no regular file"), "{folder}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_timeline_survives_its_file(t in any_timeline()) {
            prop_assert_eq!(Timeline::parse(&bytes(&t)).expect("own file"), t);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn a_damaged_file_never_panics(
            t in any_timeline(),
            cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut file = bytes(&t);
            for (at, value) in flips {
                let at = at.index(file.len());
                file[at] = value;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            let _ = Timeline::parse(&file);
        }
    }
}
