// SPDX-License-Identifier: MIT OR Apache-2.0
//! The formats of trace files, and their detection by content and by name.

use std::{fmt, path::Path, str::FromStr};

use super::quanta::{self, Benchmark};
use super::{csv, histogram, hwlat, netgauge, osnoise, other, sched, wakeups};
use crate::trace::OtherFile;
use crate::trace::parquet::META_KEY;

/// A format a trace can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Colony's own: Parquet, one row a detour.
    Parquet,
    /// Comma-separated values with a header line; metadata in leading `#` lines.
    Csv,
    /// Netgauge's and LogGOPSim's noise trace: `offset<TAB>duration` in nanoseconds, `#` comments.
    Netgauge,
    /// Text of the kernel's osnoise tracepoints, as `trace`, `trace-cmd report`, `perf script` and rtla print it.
    Osnoise,
    /// Text of the kernel's scheduler and interrupt tracepoints. It can only be read.
    Sched,
    /// Text of the kernel's hwlat tracer. It can only be read.
    Hwlat,
    /// A histogram of `rtla osnoise hist` or of oslat. It can only be read.
    Histogram,
    /// Counts of work in fixed quanta of time, by FTQ. It can only be read.
    Ftq,
    /// Times of fixed quanta of work, by FWQ. It can only be read.
    Fwq,
    /// Chrome trace JSON, which Perfetto shows.
    Chrome,
    /// An HdrHistogram interval log: a histogram a second and CPU. It can only be written.
    Hdr,
}

/// A name that is no format's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no trace format is called `{name}`; there are: {}", Format::names())]
pub struct UnknownName {
    name: String,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 11] = [
        Self::Parquet,
        Self::Csv,
        Self::Netgauge,
        Self::Osnoise,
        Self::Sched,
        Self::Hwlat,
        Self::Histogram,
        Self::Ftq,
        Self::Fwq,
        Self::Chrome,
        Self::Hdr,
    ];

    /// True if a trace can be written in this format.
    #[must_use]
    pub const fn is_written(self) -> bool {
        !matches!(self, Self::Sched | Self::Hwlat | Self::Histogram | Self::Ftq | Self::Fwq)
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Netgauge => "netgauge",
            Self::Osnoise => "osnoise",
            Self::Sched => "sched",
            Self::Hwlat => "hwlat",
            Self::Histogram => "histogram",
            Self::Ftq => "ftq",
            Self::Fwq => "fwq",
            Self::Chrome => "chrome",
            Self::Hdr => "hdr",
        }
    }

    /// All names, for a message.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Names of the formats that are written, for a message.
    #[must_use]
    pub fn written() -> String {
        Self::ALL.into_iter().filter(|f| f.is_written()).map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// The format a file of this name is usually in.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "parquet" | "pq" => Self::Parquet,
            "csv" => Self::Csv,
            "txt" | "dat" | "netgauge" => Self::Netgauge,
            "osnoise" | "trace" => Self::Osnoise,
            "json" => Self::Chrome,
            "hlog" | "hdr" | "hgrm" => Self::Hdr,
            _ => return None,
        })
    }

    /// The format of a file that begins with `head`, if its content shows it without doubt or is at least possible.
    #[must_use]
    pub fn of_content(head: &[u8]) -> Option<Self> {
        match Content::of(head) {
            Content::Trace(format) | Content::Guess(format) => Some(format),
            Content::Other(_) | Content::Unknown => None,
        }
    }
}

/// The kind of a file by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A header or the structure names the format.
    Trace(Format),
    /// Nothing names the format, and the content is possible in it.
    Guess(Format),
    /// A file of another kind.
    Other(OtherFile),
    /// Nothing that this version knows.
    Unknown,
}

impl Content {
    pub(super) fn of(head: &[u8]) -> Self {
        if head.starts_with(b"PAR1") {
            return Self::Trace(Format::Parquet);
        }
        let text = String::from_utf8_lossy(head);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let is_above_header = |line: &str| line.starts_with('#') || line.starts_with(csv::DELIMITER_LINE);
        let first = lines.clone().find(|line| !is_above_header(line)).unwrap_or_default();
        // a header counts more than what comments and rows may hold
        if first.contains("start_ns") && first.contains("duration_ns") {
            return Self::Trace(Format::Csv);
        }
        if text.starts_with(netgauge::HEADER) || text.contains("# Benchmark Method: selfish") {
            return Self::Trace(Format::Netgauge);
        }
        if lines.any(|line| line.starts_with('#') && line.contains("[Histogram log format version")) {
            return Self::Trace(Format::Hdr);
        }
        if text.starts_with('{') && wakeups::is_in(text) {
            return other::of_content(head, text).map_or(Self::Unknown, Self::Other);
        }
        let json = text.strip_prefix(['[', '{']).map(str::trim_start);
        if json.is_some_and(|inside| inside.is_empty() || inside.starts_with(['{', '}', ']', '"'])) {
            return Self::Trace(Format::Chrome);
        }
        let is_own_osnoise =
            text.starts_with("# tracer: osnoise") && text.contains(&format!("# {META_KEY}: "));
        type Reader = (Format, fn(&str) -> bool);
        let readers: [Reader; 4] = [
            (Format::Osnoise, osnoise::is_in),
            (Format::Hwlat, hwlat::is_in),
            (Format::Histogram, histogram::is_in),
            (Format::Sched, sched::is_in),
        ];
        if let Some((format, _)) = readers.into_iter().find(|(_, is_in)| is_in(text)) {
            return Self::Trace(format);
        }
        match quanta::of_content(text) {
            Some(Benchmark::Ftq) => return Self::Trace(Format::Ftq),
            Some(Benchmark::Fwq) => return Self::Trace(Format::Fwq),
            None => {}
        }
        if is_own_osnoise {
            return Self::Trace(Format::Osnoise);
        }
        if let Some(other) = osnoise::summaries(text).or_else(|| other::of_content(head, text)) {
            return Self::Other(other);
        }
        match netgauge::plausible(text) {
            Some(Ok(())) => Self::Guess(Format::Netgauge),
            Some(Err(reason)) => Self::Other(OtherFile::new(
                format!(
                    "a table of two numbers a line, which are no starts and lengths of detours: {reason}"
                ),
                "if they are, read it with `colony noise convert FILE OUT.parquet --from netgauge`; if it is of FTQ, add the line `# Frequency \
                 1000` (quanta a second) to its top",
            )),
            None => quanta::without_header(text).map_or(Self::Unknown, Self::Other),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text.to_ascii_lowercase().as_str() {
            "rtla" => Ok(Self::Osnoise),
            "ftrace" => Ok(Self::Sched),
            "perfetto" => Ok(Self::Chrome),
            "hdrhistogram" => Ok(Self::Hdr),
            name => Self::ALL
                .into_iter()
                .find(|f| f.name() == name)
                .ok_or_else(|| UnknownName { name: text.chars().take(40).collect() }),
        }
    }
}
