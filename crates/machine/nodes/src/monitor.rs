// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monitor of an emulator (QMP): it tells the state of the virtual processors. To ask does not stop them, and nothing here
//! waits.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde::Deserialize;
use serde_json::{Value, json};

/// Bytes of unread answers at most; those about four processors have some 10 KB.
const MOST: usize = 256 << 10;

/// Our end of the connection with a monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: UnixStream,
    unread: Vec<u8>,
    /// Number of the last command.
    last: u64,
    /// Answers still to come.
    awaited: usize,
    answers: Vec<String>,
}

/// A line from the emulator. Those without a number are its greeting, and events.
#[derive(Deserialize)]
struct Line {
    id: Option<u64>,
    #[serde(rename = "return")]
    value: Option<Value>,
}

impl Monitor {
    /// Our end, and that of an emulator that is about to start.
    ///
    /// # Errors
    /// If the system refuses sockets.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let monitor = Self { socket: ours, unread: Vec::new(), last: 0, awaited: 0, answers: Vec::new() };
        Ok((monitor, theirs.into()))
    }

    /// Returns `true` if answers are still to come.
    pub(crate) fn is_asked(&self) -> bool {
        self.awaited > 0
    }

    /// Asks by commands of the human monitor.
    ///
    /// # Errors
    /// If the emulator has ended, or does not read what it is asked.
    pub(crate) fn ask(&mut self, commands: &[String]) -> io::Result<()> {
        let mut text = String::new();
        if self.last == 0 {
            text += "{\"execute\":\"qmp_capabilities\"}\n";
        }
        for command in commands {
            self.last += 1;
            let arguments = json!({ "command-line": command });
            let ask = json!({ "execute": "human-monitor-command", "arguments": arguments, "id": self.last });
            text += &format!("{ask}\n");
        }
        (self.awaited, self.answers) = (commands.len(), Vec::new());
        // a socket takes far more than that, unless nobody reads
        self.socket.write_all(text.as_bytes())
    }

    /// The answers to the last question, in its order, once all are there.
    ///
    /// # Errors
    /// If the emulator has ended, or says what is not in the protocol.
    pub(crate) fn answers(&mut self) -> io::Result<Option<Vec<String>>> {
        self.read()?;
        while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let line: Line = serde_json::from_slice(&line)?;
            if line.id.is_some() {
                self.awaited = self.awaited.saturating_sub(1);
                let Some(Value::String(answer)) = line.value else {
                    return Err(io::ErrorKind::Unsupported.into());
                };
                self.answers.push(answer);
            }
        }
        let all = self.awaited == 0 && !self.answers.is_empty();
        Ok(all.then(|| std::mem::take(&mut self.answers)))
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 8192];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
            if self.unread.len() > MOST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> (Monitor, UnixStream) {
        let (mut monitor, theirs) = Monitor::pair().expect("sockets");
        monitor.ask(&["info cpus".into(), "info registers".into()]).expect("room");
        (monitor, theirs.into())
    }

    #[test]
    fn answers_come_in_any_parts_between_events() {
        let text = "{\"QMP\": {}}\r\n{\"return\": {}}\r\n{\"return\": \"a\", \"id\": 1}\r\n\
                    {\"event\": \"RESUME\"}\r\n{\"return\": \"b\\r\\n\", \"id\": 2}\r\n";
        for part in [1, 7, 1000] {
            let (mut monitor, mut theirs) = asked();
            let mut found = None;
            for bytes in text.as_bytes().chunks(part) {
                assert!(monitor.is_asked() && found.is_none());
                theirs.write_all(bytes).expect("room");
                found = monitor.answers().expect("well-formed");
            }
            assert_eq!(found, Some(vec!["a".to_owned(), "b\r\n".to_owned()]), "{part}");
            assert!(!monitor.is_asked());
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error_and_never_a_wait() {
        let (mut monitor, mut theirs) = asked();
        assert!(monitor.answers().expect("nothing yet").is_none());
        theirs.write_all(b"{\"error\": {\"class\": \"GenericError\"}, \"id\": 1}\n").expect("room");
        assert_eq!(monitor.answers().expect_err("refused").kind(), io::ErrorKind::Unsupported);
        for wrong in ["no JSON\n", "[]\n", "{\"return\": 7, \"id\": 1}\n", "\u{fffd}\n"] {
            let (mut monitor, mut theirs) = asked();
            theirs.write_all(wrong.as_bytes()).expect("room");
            assert!(monitor.answers().is_err(), "{wrong}");
        }
        let (mut monitor, mut theirs) = asked();
        theirs.set_nonblocking(true).expect("a socket");
        let endless = loop {
            let _ = theirs.write(&[b'x'; 8192]);
            if let Err(e) = monitor.answers() {
                break e;
            }
        };
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
        let (mut monitor, theirs) = asked();
        drop(theirs);
        assert!(monitor.answers().is_err());
    }
}
