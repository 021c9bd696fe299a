// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces in the formats of other tools.
//!
//! | format | read | written | what is lost when written |
//! |---|---|---|---|
//! | [Parquet](Format::Parquet) | yes | yes | nothing |
//! | [CSV](Format::Csv) | yes | yes | nothing |
//! | [Netgauge](Format::Netgauge) | yes | yes | sources with their classes, nodes, CPUs, most metadata |
//! | [osnoise](Format::Osnoise) | yes | yes | sources other than irq, softirq, thread, nmi |
//! | [Chrome trace](Format::Chrome) | yes | yes | nothing |
//! | [HdrHistogram log](Format::Hdr) | no | yes | instants, sources |
//! | [scheduler and interrupt tracepoints](Format::Sched) | yes | no | |
//! | [hwlat tracer](Format::Hwlat) | yes | no | |
//! | [histogram](Format::Histogram) of rtla osnoise and oslat | yes | no | |
//! | [FTQ](Format::Ftq), [FWQ](Format::Fwq) | yes | no | |
//!
//! Files compressed with gzip or zstd are unpacked while they are read. The content of a file determines its format; its name is used
//! only where a damaged file needs an error in the right terms. Files of other tools that hold no detours are named in the error.
//!
//! Every parser takes any bytes: it ends with a trace or a [`Problem`], within bounds of memory set by the
//! length of the input.

mod chrome;
mod csv;
mod detect;
mod ftrace;
mod hdr;
mod histogram;
mod hwlat;
pub mod netgauge;
mod osnoise;
mod other;
mod quanta;
mod sched;
mod text;
mod traced;
mod unpack;
pub mod wakeups;

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::path::Path;

use detect::Content;
pub use detect::{Format, UnknownName};
use text::HEAD;
pub use unpack::unpacked;

use crate::trace::{Problem, Trace, TraceError, parquet};

/// Reads a trace in any format; with `None` the content determines the format.
///
/// # Errors
/// [`TraceError`]: the file is not there, is of no known format, or is damaged (where, and what was found).
pub fn read(path: &Path, format: Option<Format>) -> Result<Trace, TraceError> {
    open(path, format).map_err(TraceError::reading(path))
}

fn open(path: &Path, format: Option<Format>) -> Result<Trace, Problem> {
    let file = File::open(path)?;
    let is_file = file.metadata()?.is_file();
    let (mut input, is_packed) = unpack::unpacked(&file)?;
    let mut head = Vec::new();
    input.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    let (format, is_guess) = match format {
        Some(format) => (format, false),
        None => format_of(&head, path)?,
    };
    let mut trace = match format {
        Format::Parquet if is_packed => return Err(Problem::PackedParquet),
        Format::Parquet if is_file => {
            drop(input);
            let mut file = file;
            file.rewind()?;
            parquet::read(file)?
        }
        _ => parse_stream(Cursor::new(&head).chain(input), format)?,
    };
    if is_guess {
        trace.meta.notes.push(GUESS.into());
    }
    Ok(trace)
}

/// Note on a file whose format was guessed.
const GUESS: &str = "no header says what the file's two columns are: they are read as start and length of detours in nanoseconds";

/// The format of a file, and whether it is a guess.
fn format_of(head: &[u8], path: &Path) -> Result<(Format, bool), Problem> {
    if head.is_empty() {
        return Err(Problem::EmptyFile);
    }
    match Content::of(head) {
        Content::Trace(format) => Ok((format, false)),
        Content::Guess(format) => Ok((format, true)),
        Content::Other(file) => Err(Problem::OtherFile(file)),
        // a damaged file of these: its reader says where
        Content::Unknown => match Format::of_name(path) {
            Some(format @ (Format::Parquet | Format::Csv | Format::Chrome)) => Ok((format, false)),
            _ => Err(Problem::UnknownContent { first_line: first_line(head), formats: Format::names() }),
        },
    }
}

/// The first line that is not empty, shortened.
fn first_line(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// Reads a trace from bytes in memory.
///
/// # Errors
/// [`Problem`] says what is wrong, with the line where there is one.
pub fn parse(bytes: &[u8], format: Format) -> Result<Trace, Problem> {
    parse_stream(bytes, format)
}

fn parse_stream(mut input: impl Read, format: Format) -> Result<Trace, Problem> {
    match format {
        Format::Parquet => {
            let mut bytes = Vec::new();
            input.read_to_end(&mut bytes)?;
            parquet::read(bytes::Bytes::from(bytes))
        }
        Format::Csv => csv::read(BufReader::new(input)),
        Format::Netgauge => netgauge::read(BufReader::new(input)),
        Format::Osnoise => osnoise::read(BufReader::new(input)),
        Format::Sched => sched::read(BufReader::new(input)),
        Format::Hwlat => hwlat::read(BufReader::new(input)),
        Format::Histogram => histogram::read(BufReader::new(input)),
        Format::Chrome => chrome::read(BufReader::new(input)),
        Format::Ftq => quanta::read_ftq(BufReader::new(input)),
        Format::Fwq => quanta::read_fwq(BufReader::new(input)),
        Format::Hdr => Err(Problem::WriteOnly),
    }
}

/// Writes a trace in `format`; with `None` the name determines the format. The whole file appears, or none.
/// Netgauge text gets all CPUs merged; [`netgauge::write`] takes one.
///
/// # Errors
/// [`TraceError`]: no format is known by that name, the format cannot hold this trace, or the file system's
/// reason.
pub fn write(trace: &Trace, path: &Path, format: Option<Format>) -> Result<(), TraceError> {
    let Some(format) = format.or_else(|| Format::of_name(path)) else {
        return Err(TraceError::writing(path)(Problem::UnknownFormat(Format::written())));
    };
    colony_node::file::write_atomically(path, |out| match format {
        Format::Parquet => parquet::write(trace, out),
        Format::Csv => csv::write(trace, out),
        Format::Netgauge => netgauge::write(trace, None, out),
        Format::Osnoise => osnoise::write(trace, out),
        Format::Chrome => chrome::write(trace, out),
        Format::Hdr => hdr::write(trace, out),
        Format::Sched | Format::Hwlat | Format::Histogram | Format::Ftq | Format::Fwq => {
            Err(Problem::ReadOnly(format.name()))
        }
    })
    .map_err(TraceError::writing(path))
}

/// Checks that [`write()`] would know the format of `path` and could make the file. Call it before the work that makes
/// the trace.
///
/// # Errors
/// As [`write()`].
pub fn check_writable(path: &Path, format: Option<Format>) -> Result<(), TraceError> {
    match format.or_else(|| Format::of_name(path)) {
        None => Err(Problem::UnknownFormat(Format::written())),
        Some(format) if !format.is_written() => Err(Problem::ReadOnly(format.name())),
        Some(_) => colony_node::file::check_writable(path).map_err(Problem::Io),
    }
    .map_err(TraceError::writing(path))
}

/// The entry of the fuzzers: parses `bytes` as `format` and checks the properties that readers of a trace rely on.
///
/// # Panics
/// If a parser accepts a trace without these properties.
#[doc(hidden)]
pub fn fuzz_parse(bytes: &[u8], format: Format) {
    let _ = Format::of_content(bytes);
    if let Ok(trace) = parse(bytes, format) {
        assert!(trace.detours.is_sorted_by_key(|d| d.start_ns), "detours are in order");
        assert!(
            trace.detours.iter().all(|d| usize::from(d.source) < trace.sources.len()),
            "sources are there"
        );
        assert!(
            trace.meta.cpus.to_string().parse::<colony_node::cpu::CpuSet>().is_ok(),
            "CPUs can be read back"
        );
    }
}

#[cfg(test)]
mod chrome_tests;
#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod observation_tests;
#[cfg(test)]
mod quanta_tests;
#[cfg(test)]
mod tests;
