// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other end of [`crate::serve`]: what a control system calls.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::serve::Ask;
use colony_node::rights;

/// A connection to a daemon.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects to the socket of `ciod serve`.
    ///
    /// # Errors
    /// If nobody listens, or the caller may not.
    pub fn connect(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(BufReader::new).map(Self)
    }

    /// Asks, with these descriptors (the streams of a job, or none), and waits for the answer.
    ///
    /// # Errors
    /// If the daemon is gone, or refuses: then with its words.
    pub fn ask(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> io::Result<Value> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        let stream = self.0.get_mut();
        let sent = if fds.is_empty() { 0 } else { rights::send(stream, &line, fds)? };
        stream.write_all(&line[sent..])?;
        let mut answer = String::new();
        if self.0.read_line(&mut answer)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the daemon has ended"));
        }
        let answer: Value = serde_json::from_str(&answer)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(io::Error::other(error.to_owned())),
            None => Ok(answer),
        }
    }
}
