// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbered lines of a text file, plain or packed with gzip, and the fields of a line.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::str::{FromStr, SplitAsciiWhitespace};

use flate2::bufread::MultiGzDecoder;

use crate::error::Problem;

/// A multicast to 500,000 PEs fits.
const MAX_LINE: usize = 4 << 20;

/// The text of a file, unpacked if it begins like a gzip file.
pub(super) fn unpacked<'a>(file: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    if file.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))));
    }
    Ok(Box::new(file))
}

/// Lines of a text, numbered from 1.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    number: u64,
}

/// A line without its end (`\n` or `\r\n`).
pub(super) struct Line<'a> {
    pub(super) number: u64,
    pub(super) text: Cow<'a, str>,
    /// False for a last line that no `\n` ends.
    pub(super) has_end: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), number: 0 }
    }

    /// Reads the next line; `None` at the end of the text.
    pub(super) fn next_line(&mut self) -> Result<Option<Line<'_>>, Problem> {
        self.buffer.clear();
        self.number += 1;
        let number = self.number;
        let wrong = |reason: String| Problem::Line { number, reason };
        (&mut self.input).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.buffer).map_err(|e| {
            wrong(format!("its bytes cannot be read ({e}); if the file is packed, copy it again"))
        })?;
        if self.buffer.len() > MAX_LINE {
            return Err(wrong(format!("it is longer than {MAX_LINE} bytes: this is no text of Projections")));
        }
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let has_end = self.buffer.ends_with(b"\n");
        let text = self.buffer.trim_ascii_end();
        Ok(Some(Line { number, text: String::from_utf8_lossy(text), has_end }))
    }
}

/// The fields of a line, one after the other.
pub(super) struct Fields<'a> {
    words: SplitAsciiWhitespace<'a>,
    line: u64,
}

impl<'a> Fields<'a> {
    pub(super) fn of(line: &'a Line<'_>) -> Self {
        Self { words: line.text.split_ascii_whitespace(), line: line.number }
    }

    /// An error at this line.
    pub(super) fn wrong(&self, reason: impl Into<String>) -> Problem {
        Problem::Line { number: self.line, reason: reason.into() }
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str, Problem> {
        self.words.next().ok_or_else(|| {
            self.wrong(format!("it ends before {what}; the file may be cut off: copy it again"))
        })
    }

    /// The next field as a whole number.
    pub(super) fn number<T: FromStr>(&mut self, what: &str) -> Result<T, Problem> {
        let word = self.word(what)?;
        word.parse().map_err(|_| {
            let shown: String = word.chars().take(40).collect();
            self.wrong(format!("{what} is `{shown}`, which is no number that Projections writes there"))
        })
    }
}
