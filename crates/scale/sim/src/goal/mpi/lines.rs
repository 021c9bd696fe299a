// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of a trace, numbered, none longer than a limit.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use super::MpiError;

/// The longest line of a trace: the counts of a collective of a million ranks.
const MAX_LINE: usize = 16 << 20;

/// The lines of a file.
pub(super) struct Lines<'a> {
    name: &'a str,
    input: BufReader<File>,
    buffer: Vec<u8>,
    /// Number of the last line.
    number: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn open(name: &'a str) -> Result<Self, MpiError> {
        let file = File::open(name).map_err(|error| MpiError::Io { file: name.into(), error })?;
        Ok(Self { name, input: BufReader::new(file), buffer: Vec::new(), number: 0 })
    }

    /// The next line, without blanks around it, and its number.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &str)>, MpiError> {
        self.buffer.clear();
        let mut line = (&mut self.input).take(MAX_LINE as u64 + 1);
        let read = line.read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|error| MpiError::Io { file: self.name.into(), error })?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read > MAX_LINE {
            return Err(
                self.wrong(format!("it is longer than {MAX_LINE} bytes: this is no trace of liballprof"))
            );
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some((self.number, text.trim()))),
            Err(_) => Err(self.wrong("it is no text: this is no trace of liballprof".into())),
        }
    }

    /// What is wrong in the last line.
    pub(super) fn wrong(&self, fault: String) -> MpiError {
        MpiError::Line { file: self.name.into(), line: self.number, fault }
    }
}
