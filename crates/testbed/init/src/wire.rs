// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames from the guest to its host: one byte of kind, four of length (little endian), the payload.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The largest payload either side accepts, bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Bytes before a payload.
const HEAD: usize = 5;

/// A message of the guest to its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The program is about to start.
    Started(Started),
    /// The program's standard output.
    Stdout(Vec<u8>),
    /// The program's standard error.
    Stderr(Vec<u8>),
    /// A collected file begins; its bytes follow.
    File(PathBuf),
    /// Bytes of the file that began last.
    FileData(Vec<u8>),
    /// A file that was asked for and cannot be had.
    NoFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The program has ended and everything it wrote has been sent.
    Finished(Finished),
    /// The guest could not do as it was asked.
    Trouble(String),
}

/// The guest as its program starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Time since the kernel began, ns of the guest.
    pub uptime_ns: u64,
    /// The kernel's release.
    pub kernel: String,
}

/// The end of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Its exit.
    pub exit: Exit,
    /// Time since the kernel began, ns of the guest.
    pub uptime_ns: u64,
    /// Processor time of the program and all it waited for, in user mode, ns of the guest.
    pub user_ns: u64,
    /// The same in the kernel.
    pub system_ns: u64,
    /// Largest resident memory of one process, bytes.
    pub max_resident_bytes: u64,
}

/// The end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl Exit {
    /// Returns `true` if the program exited with 0.
    #[must_use]
    pub const fn success(self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// The code a shell would report: the exit code, or 128 and the signal.
    #[must_use]
    pub const fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// Bytes that are no frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the guest sent what is no frame: {0}")]
pub struct NoFrame(String);

impl Frame {
    /// Writes the frame; a payload above [`MAX_PAYLOAD`] goes as several where its kind allows.
    ///
    /// # Errors
    /// Whatever `out` says, or a payload that is too large and cannot be divided.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
            serde_json::to_vec(value).map_err(io::Error::other)
        }
        match self {
            Self::Started(s) => one(out, 1, &json(s)?),
            Self::Stdout(bytes) => many(out, 2, bytes),
            Self::Stderr(bytes) => many(out, 3, bytes),
            Self::File(path) => one(out, 4, &json(path)?),
            Self::FileData(bytes) => many(out, 5, bytes),
            Self::NoFile { path, reason } => one(out, 6, &json(&(path, reason))?),
            Self::Finished(f) => one(out, 7, &json(f)?),
            Self::Trouble(text) => one(out, 8, text.as_bytes()),
        }
    }

    fn read(kind: u8, payload: &[u8]) -> Result<Self, NoFrame> {
        fn json<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, NoFrame> {
            serde_json::from_slice(payload).map_err(|e| NoFrame(e.to_string()))
        }
        Ok(match kind {
            1 => Self::Started(json(payload)?),
            2 => Self::Stdout(payload.into()),
            3 => Self::Stderr(payload.into()),
            4 => Self::File(json(payload)?),
            5 => Self::FileData(payload.into()),
            6 => {
                let (path, reason) = json(payload)?;
                Self::NoFile { path, reason }
            }
            7 => Self::Finished(json(payload)?),
            8 => Self::Trouble(String::from_utf8_lossy(payload).into_owned()),
            other => return Err(NoFrame(format!("kind {other}"))),
        })
    }
}

fn one(out: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_PAYLOAD);
    let length = length.ok_or_else(|| io::Error::other("a frame above its largest size"))?;
    // in one piece: a port would make a transfer of every write
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.push(kind);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    out.write_all(&frame)
}

fn many(out: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    bytes.chunks(MAX_PAYLOAD).try_for_each(|part| one(out, kind, part))
}

/// Makes frames of bytes that come in any pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
}

impl Decoder {
    /// Takes what came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next whole frame, if one is there.
    ///
    /// # Errors
    /// Bytes that are no frame; nothing after them can be understood.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, NoFrame> {
        let Some((head, rest)) = self.held.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [kind, length @ ..] = *head;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD {
            return Err(NoFrame(format!("a payload of {length} bytes")));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::read(kind, payload)?;
        self.held.drain(..HEAD + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 1..300);
        let path = || "/[a-z]{0,9}".prop_map(PathBuf::from);
        let exit = prop_oneof![any::<i32>().prop_map(Exit::Code), (1..65).prop_map(Exit::Signal)];
        let finished = (exit, any::<[u64; 4]>()).prop_map(|(exit, [uptime_ns, user_ns, system_ns, max])| {
            Frame::Finished(Finished { exit, uptime_ns, user_ns, system_ns, max_resident_bytes: max })
        });
        prop_oneof![
            (any::<u64>(), ".*")
                .prop_map(|(uptime_ns, kernel)| Frame::Started(Started { uptime_ns, kernel })),
            bytes().prop_map(Frame::Stdout),
            bytes().prop_map(Frame::Stderr),
            path().prop_map(Frame::File),
            bytes().prop_map(Frame::FileData),
            (path(), ".*").prop_map(|(path, reason)| Frame::NoFile { path, reason }),
            finished,
            ".*".prop_map(Frame::Trouble),
        ]
    }

    proptest! {
        #[test]
        fn frames_are_read_however_they_are_cut(
            sent in proptest::collection::vec(frames(), 0..8),
            cut in 1_usize..64,
        ) {
            let mut bytes = Vec::new();
            for frame in &sent {
                frame.write(&mut bytes).expect("memory");
            }
            let (mut decoder, mut got) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().expect("frames") {
                    got.push(frame);
                }
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn a_large_output_goes_as_several_frames() {
        let mut bytes = Vec::new();
        Frame::Stdout(vec![7; MAX_PAYLOAD + 1]).write(&mut bytes).expect("memory");
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Stdout(vec![7; MAX_PAYLOAD]))));
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Stdout(vec![7]))));
        assert!(Frame::Trouble("x".repeat(MAX_PAYLOAD + 1)).write(&mut bytes).is_err());
    }
}
