// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comma-separated values: a header line, one row a detour, the metadata in `#` lines above.

use std::io::{BufRead, Write};

use super::text::{Header, LineLimit, Lines, write_meta};
use crate::Source;
use crate::trace::{Detour, NO_CPU, Problem, Trace, TraceBuilder, TraceMeta};

const COLUMNS: [&str; 5] = ["node", "cpu", "start_ns", "duration_ns", "source"];

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), Problem> {
    write_meta(&trace.meta, out)?;
    for (key, value) in trace.meta.plain().into_iter().filter(|(key, _)| *key != TraceMeta::CLASSES) {
        writeln!(out, "# {key}: {}", value.replace(['\n', '\r'], " "))?;
    }
    // the library would hide the kind of the error, a broken pipe's for one
    let failed = |e: csv::Error| match e.into_kind() {
        csv::ErrorKind::Io(e) => Problem::Io(e),
        other => Problem::Io(std::io::Error::other(format!("{other:?}"))),
    };
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(COLUMNS).map_err(failed)?;
    let names: Vec<String> = trace.sources.iter().map(Source::to_string).collect();
    for d in &trace.detours {
        let name = names.get(usize::from(d.source)).map_or("unexplained", String::as_str);
        rows.serialize((d.node, d.cpu, d.start_ns, d.duration_ns, name)).map_err(failed)?;
    }
    rows.flush()?;
    Ok(())
}

/// The place of each column; `node`, `cpu` and `source` may be missing.
struct Layout([Option<usize>; 5]);

impl Layout {
    fn of(header: &csv::StringRecord) -> Result<Self, String> {
        for name in COLUMNS {
            let mut named = (1..).zip(header).filter(|(_, h)| h.trim() == name).map(|(number, _)| number);
            if let (Some(first), Some(second)) = (named.next(), named.next()) {
                return Err(format!(
                    "columns {first} and {second} are both named `{name}`; rename the one that does not hold {name} of the detours"
                ));
            }
        }
        let at = COLUMNS.map(|name| header.iter().position(|h| h.trim() == name));
        for required in ["start_ns", "duration_ns"] {
            if !header.iter().any(|h| h.trim() == required) {
                let found: String = header.iter().collect::<Vec<_>>().join(",").chars().take(120).collect();
                return Err(format!("the header must name {}; it is `{found}`", COLUMNS.join(",")));
            }
        }
        Ok(Self(at))
    }

    /// Field `column` of a row as a number; `missing` where there is no such column.
    fn number<T: std::str::FromStr>(
        &self,
        row: &csv::StringRecord,
        column: usize,
        missing: T,
    ) -> Result<T, String> {
        let Some(at) = self.0[column] else { return Ok(missing) };
        let text = row.get(at).unwrap_or_default().trim();
        text.parse().map_err(|_| {
            let shown: String = text.chars().take(40).collect();
            format!("`{shown}` is no {} (a whole number in its range)", COLUMNS[column])
        })
    }

    fn detour(&self, row: &csv::StringRecord) -> Result<(Detour, Source), String> {
        let detour = Detour {
            node: self.number(row, 0, 0)?,
            cpu: self.number(row, 1, 0)?,
            start_ns: self.number(row, 2, 0)?,
            duration_ns: self.number(row, 3, 0)?,
            source: 0,
        };
        let source = self.0[4].and_then(|at| row.get(at)).map_or(Source::Unexplained, Source::from);
        Ok((detour, source))
    }
}

/// Bytes between the columns: spreadsheets in many languages write a semicolon, other programs a tab.
const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// The delimiter of a header.
fn delimiter(text: &[u8]) -> u8 {
    let header = text.split(|&b| b == b'\n').next().unwrap_or_default();
    *DELIMITERS.iter().find(|byte| header.contains(byte)).unwrap_or(&b',')
}

/// The line above the header with which spreadsheets state the delimiter.
pub(super) const DELIMITER_LINE: &str = "sep=";

/// Reads the line `sep=;`, if it is the next one, with the comments below it. Returns the delimiter that the line states.
fn stated_delimiter(lines: &mut Lines<impl BufRead>, header: &mut Header) -> Result<Option<u8>, Problem> {
    if !lines.begins_with(DELIMITER_LINE.as_bytes())? {
        return Ok(None);
    }
    let line = lines.next()?.unwrap_or_default();
    let stated = line.strip_prefix(DELIMITER_LINE).unwrap_or_default();
    let stated = if stated == "\t" { stated } else { stated.trim() };
    match DELIMITERS.into_iter().find(|byte| stated.as_bytes() == [*byte]) {
        Some(byte) => {
            lines.comments(header)?;
            Ok(Some(byte))
        }
        None => Err(lines.wrong(format!(
            "the line `{}` states a delimiter that is not read; write the file with a comma, a semicolon or a tab",
            line.chars().take(40).collect::<String>()
        ))),
    }
}

pub(super) fn read(input: impl BufRead) -> Result<Trace, Problem> {
    let mut header = Header::default();
    let mut lines = Lines::new(input);
    lines.comments(&mut header)?;
    let stated = stated_delimiter(&mut lines, &mut header)?;
    let above = lines.number;
    let mut rest = lines.into_rest();
    let mut reader = csv::ReaderBuilder::new();
    reader.comment(Some(b'#')).delimiter(match stated {
        Some(byte) => byte,
        None => delimiter(rest.fill_buf()?),
    });
    let mut rows = reader.from_reader(LineLimit::new(rest));
    let wrong = |line: u64, reason: String| Problem::Line { line: above + line, reason };
    let failed = |e: csv::Error| {
        let line = e.position().map_or(0, csv::Position::line);
        match e.into_kind() {
            csv::ErrorKind::Io(e) => Problem::Io(e),
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                wrong(line, format!("{len} fields where the header has {expected_len}"))
            }
            csv::ErrorKind::Utf8 { err, .. } => wrong(line, format!("this is no UTF-8 text: {err}")),
            _ => wrong(line, "this is no CSV row".into()),
        }
    };
    let layout = Layout::of(rows.headers().map_err(failed)?).map_err(|reason| wrong(1, reason))?;
    let mut trace = TraceBuilder::new();
    let mut row = csv::StringRecord::new();
    while rows.read_record(&mut row).map_err(failed)? {
        let line = row.position().map_or(0, csv::Position::line);
        let (mut detour, source) = layout.detour(&row).map_err(|reason| wrong(line, reason))?;
        detour.source = trace.source(&source)?;
        trace.push(detour)?;
    }
    match header.meta() {
        Some(meta) => trace.build(meta),
        None => {
            let stated = header.stated()?;
            if trace.is_empty() && (stated.observed_s.is_none() || stated.cpus.is_none()) {
                return Err(Problem::Empty("a row for each detour below the header"));
            }
            if layout.0[1].is_none() {
                trace.note(NO_CPU);
            }
            trace.build_foreign(stated)
        }
    }
}
