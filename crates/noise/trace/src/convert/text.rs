// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that the text formats share: bounded lines, exact decimals, metadata in comments.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use crate::trace::{Problem, Stated, TraceMeta, classes, parquet::META_KEY};
use crate::{Class, Source};

/// Bytes at the head of a file that determine its format.
pub(super) const HEAD: usize = 1 << 20;

/// The longest line a text format may have.
pub(super) const MAX_LINE: usize = 1 << 20;

/// Lines of a text, numbered, none longer than [`MAX_LINE`].
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// Number of the line read last, from 1.
    pub(super) number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), number: 0 }
    }

    /// The next line without its end; bytes that are no UTF-8 are replaced.
    pub(super) fn next(&mut self) -> Result<Option<String>, Problem> {
        self.buffer.clear();
        self.number += 1;
        let read = (&mut self.input).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.buffer)?;
        if read > MAX_LINE {
            return Err(
                self.wrong(format!("it is longer than {MAX_LINE} bytes: this is no text of this kind"))
            );
        }
        Ok((read > 0)
            .then(|| String::from_utf8_lossy(&self.buffer).trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// The lines at the top that begin with `#` or are empty, read up to the first other one. A byte order mark is left out.
    pub(super) fn comments(&mut self, header: &mut Header) -> Result<(), Problem> {
        if self.input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
            self.input.consume(3);
        }
        while matches!(self.input.fill_buf()?.first(), Some(b'#' | b'\r' | b'\n')) {
            match self.next()? {
                Some(line) if line.starts_with('#') => header.comment(&line)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// True if the next line begins with `text`, which is far shorter than the input's buffer.
    pub(super) fn begins_with(&mut self, text: &[u8]) -> Result<bool, Problem> {
        Ok(self.input.fill_buf()?.starts_with(text))
    }

    /// The input after the lines that were read.
    pub(super) fn into_rest(self) -> R {
        self.input
    }

    pub(super) fn wrong(&self, reason: impl Into<String>) -> Problem {
        Problem::Line { line: self.number, reason: reason.into() }
    }
}

/// Length of a `# classes: …` line at which the next one begins; far below [`MAX_LINE`].
const CLASSES_LINE: usize = 64 * 1024;

/// Writes the metadata as the line `# colony.meta: …`, and the classes in `# classes: …` lines below it: those of
/// many sources would not fit one line.
pub(super) fn write_meta(meta: &TraceMeta, out: &mut impl Write) -> Result<(), Problem> {
    let short = TraceMeta { classes: BTreeMap::new(), ..meta.clone() };
    writeln!(out, "# {META_KEY}: {}", short.to_json()?)?;
    let json = |text: &str| serde_json::Value::from(text).to_string();
    let mut line = String::new();
    for (source, class) in &meta.classes {
        if line.len() > CLASSES_LINE {
            writeln!(out, "# {}: {{{line}}}", TraceMeta::CLASSES)?;
            line.clear();
        }
        let comma = if line.is_empty() { "" } else { "," };
        line.push_str(&format!("{comma}{}:{}", json(&source.to_string()), json(class.name())));
    }
    if !line.is_empty() {
        writeln!(out, "# {}: {{{line}}}", TraceMeta::CLASSES)?;
    }
    Ok(())
}

/// The metadata in the comments of a text file.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// All of it but the classes, where Colony wrote the file.
    meta: Option<TraceMeta>,
    /// Classes of sources, of all `# classes: …` lines.
    pub(super) classes: BTreeMap<Source, Class>,
    /// Pairs `# key: value`.
    pub(super) pairs: Vec<(String, String)>,
}

impl Header {
    /// Takes one comment line in; pairs beyond a hundred are left out.
    pub(super) fn comment(&mut self, line: &str) -> Result<(), Problem> {
        let Some((key, value)) = line.trim_start_matches('#').split_once(':') else { return Ok(()) };
        let (key, value) = (key.trim(), value.trim());
        if key == META_KEY {
            self.meta = Some(TraceMeta::from_json(value)?);
        } else if key == TraceMeta::CLASSES && value.starts_with('{') {
            self.classes.extend(classes(value)?);
        } else if self.pairs.len() < 100 {
            self.pairs.push((key.into(), value.into()));
        }
        Ok(())
    }

    /// The metadata of a file that Colony wrote, with the classes; `None` for files of other tools.
    pub(super) fn meta(&self) -> Option<TraceMeta> {
        let mut meta = self.meta.clone()?;
        meta.classes.extend(self.classes.clone());
        Some(meta)
    }

    /// True if Colony wrote the file.
    pub(super) fn is_own(&self) -> bool {
        self.meta.is_some()
    }

    /// What the pairs and the classes state about the observation.
    ///
    /// # Errors
    /// As [`Stated::of_pairs`].
    pub(super) fn stated(&self) -> Result<Stated, Problem> {
        let pairs = self.pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Ok(Stated { classes: self.classes.clone(), ..Stated::of_pairs(pairs)? })
    }
}

/// Fails where a line of the stream is longer than [`MAX_LINE`], so that a parser that looks for the end of
/// one cannot be made to fill the memory.
pub(super) struct LineLimit<R> {
    input: R,
    since_newline: usize,
}

impl<R: Read> LineLimit<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, since_newline: 0 }
    }
}

impl<R: Read> Read for LineLimit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.since_newline = match buffer[..n].iter().rposition(|&b| b == b'\n') {
            Some(last) => n - last - 1,
            None => self.since_newline + n,
        };
        if self.since_newline > MAX_LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a line is longer than {MAX_LINE} bytes: this is no text of this kind"),
            ));
        }
        Ok(n)
    }
}

/// Fails where a string or another word of JSON is longer than [`MAX_LINE`], which the parser would take into memory. Its input has no
/// lines to be bounded by.
pub(super) struct WordLimit<R> {
    input: R,
    length: usize,
    in_string: bool,
    is_escaped: bool,
}

impl<R: Read> WordLimit<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, length: 0, in_string: false, is_escaped: false }
    }
}

impl<R: Read> Read for WordLimit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        for byte in &buffer[..n] {
            let ends_word = match (self.in_string, byte) {
                (true, b'"') => !self.is_escaped,
                (true, _) => false,
                (false, byte) => b"\"{}[]:, \t\r\n".contains(byte),
            };
            self.in_string ^= ends_word && *byte == b'"';
            self.is_escaped = self.in_string && *byte == b'\\' && !self.is_escaped;
            self.length = if ends_word { 0 } else { self.length + 1 };
            if self.length > MAX_LINE {
                let reason = format!("a word is longer than {MAX_LINE} bytes: this is no trace");
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        }
        Ok(n)
    }
}

/// `text` × 10^`places`, exact where that is whole, else rounded half away from zero: `decimal("1.5", 3)` is
/// 1500. `None` where the text is no decimal number or the result is beyond `i128`.
pub(super) fn decimal(text: &str, places: i32) -> Option<i128> {
    let text = text.trim();
    let (text, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let (mut value, mut shift) = (0i128, i64::from(exponent) + i64::from(places));
    for digit in whole.bytes() {
        value = value.checked_mul(10)?.checked_add((digit - b'0').into())?;
    }
    for digit in fraction.bytes() {
        // further digits are far below a nanosecond
        let Some(more) = value.checked_mul(10).and_then(|v| v.checked_add((digit - b'0').into())) else {
            break;
        };
        (value, shift) = (more, shift - 1);
    }
    let value = match shift {
        0.. if value == 0 => 0,
        0.. => value.checked_mul(10i128.checked_pow(shift.try_into().ok()?)?)?,
        -38..0 => {
            let unit = 10i128.pow(shift.unsigned_abs() as u32);
            value / unit + i128::from(value % unit >= unit - unit / 2)
        }
        _ => 0,
    };
    Some(if negative { -value } else { value })
}

/// Nanoseconds as decimal microseconds, exact.
pub(super) fn micros(ns: i128) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", ns.unsigned_abs() / 1000, ns.unsigned_abs() % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_exact() {
        for (text, places, value) in [
            ("5789.857529929", 9, 5_789_857_529_929),
            ("1.5", 3, 1500),
            ("-0.0005", 3, -1),
            ("0.4", 0, 0),
            ("0.5", 0, 1),
            ("1e3", 0, 1000),
            ("2.5E-1", 3, 250),
            (".5", 1, 5),
            ("7.", 0, 7),
            ("1700000037123456.789", 3, 1_700_000_037_123_456_789),
            ("0e999999999", 9, 0),
            ("1e-999999999", 9, 0),
        ] {
            assert_eq!(decimal(text, places), Some(value), "{text}");
        }
        for text in ["", ".", "-", "1.2.3", "0x10", "1e", "e5", "nan", "1e99", "1 2", "９"] {
            assert_eq!(decimal(text, 0), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_microseconds_read_back(ns: i64) {
            prop_assert_eq!(decimal(&micros(ns.into()), 3), Some(ns.into()));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eE]{0,60}|.{0,30}", places in 0i32..10) {
            let _ = decimal(&text, places);
        }
    }

    #[test]
    fn an_endless_word_of_json_is_refused_and_others_pass() {
        let read = |text: &[u8]| WordLimit::new(text).read_to_end(&mut Vec::new());
        let long = "x".repeat(MAX_LINE + 10);
        for text in [format!("{{\"{long}"), format!("[{long}"), format!("[\"a\\\"{long}\"]")] {
            assert!(read(text.as_bytes()).is_err());
        }
        let short = format!("[\"{}\", \"\\\\\"]", "x".repeat(1000)).repeat(3000);
        assert_eq!(read(short.as_bytes()).expect("short words"), short.len());
    }

    #[test]
    fn an_endless_line_is_refused() {
        let endless = || io::BufReader::new(io::repeat(b'7'));
        assert!(Lines::new(endless()).next().is_err());
        let mut sink = Vec::new();
        assert!(LineLimit::new(io::repeat(b'7')).read_to_end(&mut sink).is_err());
        assert!(sink.len() < 4 * MAX_LINE);
    }
}
