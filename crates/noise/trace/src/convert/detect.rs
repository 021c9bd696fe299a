// SPDX-License-Identifier: MIT OR Apache-2.0
//! The formats of trace files, and their detection by content and by name.

use std::{fmt, path::Path, str::FromStr};

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
    pub const ALL: [Self; 6] =
        [Self::Parquet, Self::Csv, Self::Netgauge, Self::Osnoise, Self::Chrome, Self::Hdr];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Netgauge => "netgauge",
            Self::Osnoise => "osnoise",
            Self::Chrome => "chrome",
            Self::Hdr => "hdr",
        }
    }

    /// All names, for a message.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
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

    /// The format of a file that begins with `head`.
    #[must_use]
    pub fn of_content(head: &[u8]) -> Option<Self> {
        if head.starts_with(b"PAR1") {
            return Some(Self::Parquet);
        }
        let text = String::from_utf8_lossy(head);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        if text.contains("[Histogram log format version") {
            return Some(Self::Hdr);
        }
        if text.starts_with('{') || text.starts_with('[') {
            return Some(Self::Chrome);
        }
        if text.starts_with("# tracer: osnoise") || super::osnoise::EVENTS.iter().any(|e| text.contains(e)) {
            return Some(Self::Osnoise);
        }
        let first = text.lines().find(|l| !l.trim().is_empty() && !l.starts_with('#'))?;
        if first.contains("start_ns") && first.contains("duration_ns") {
            return Some(Self::Csv);
        }
        let mut numbers = first.split_whitespace().map(|f| super::text::decimal(f, 0));
        matches!((numbers.next(), numbers.next()), (Some(Some(_)), Some(Some(_)))).then_some(Self::Netgauge)
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
            "perfetto" => Ok(Self::Chrome),
            "hdrhistogram" => Ok(Self::Hdr),
            name => Self::ALL
                .into_iter()
                .find(|f| f.name() == name)
                .ok_or_else(|| UnknownName { name: text.chars().take(40).collect() }),
        }
    }
}
