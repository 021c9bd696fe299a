// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames between the owner of a partition and a Linux I/O node, on a stream: job, kind and length, then the payload.
//!
//! The other side of a frame is another machine: lengths are bounded, kinds are known, and what comes in each direction is
//! checked by the side that takes it.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Version of the frames and of what they carry: that of the package, since the image is made of the same package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Bytes of a payload at most.
pub(crate) const MOST: usize = 1 << 20;

/// Bytes of output, or of input, that are under way at most: of each stream of each job.
pub(crate) const WINDOW: usize = 256 << 10;

/// Bytes of output that one frame carries at most.
pub(crate) const PIECE: usize = 64 << 10;

/// Bytes before a payload.
const HEAD: usize = 9;

macro_rules! kinds {
    ($($(#[$about:meta])* $name:ident = $number:literal,)*) => {
        /// What a frame carries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($(#[$about])* $name = $number,)*
        }

        impl Kind {
            fn of(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// More of the file or the task that began last.
    Data = 1,
    /// A file of the job begins: a [`FileHead`].
    File = 2,
    /// The description of the job begins.
    Task = 3,
    /// The description is whole: start the worker.
    Launch = 4,
    /// An order to the worker.
    Order = 5,
    /// Standard input; nothing: its end.
    Input = 6,
    /// So many bytes of standard output (the first number) and standard error were taken.
    Taken = 7,
    /// Nobody waits for the job any more: end it.
    End = 8,
    /// A node is started anew: make a new link for it. Its number.
    Renew = 9,
    /// Nobody reads standard output (0) or standard error (1) any more.
    Closed = 10,
    /// The answer to a [`Kind::FileCall`]: the number of the place, then the reply in the kernel's protocol.
    FileReply = 11,
    /// The I/O node is ready: a [`Hello`]. Its first frame.
    Hello = 32,
    /// A report of the worker.
    Report = 33,
    /// Standard output.
    Stdout = 34,
    /// Standard error.
    Stderr = 35,
    /// So many bytes of standard input were taken.
    InputTaken = 36,
    /// The job has ended, and its nodes can be used.
    Over = 37,
    /// A node has asked for work. Its number.
    Asked = 38,
    /// A node cannot be served any more: a [`Failed`].
    Failed = 39,
    /// There is a new link. The node's number.
    Renewed = 40,
    /// The kernel of the I/O node asks for something about files of the host: the number of the place where they are seen, then
    /// the request in the kernel's protocol.
    FileCall = 41,
}

/// A message. Those that are about no job have job 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) job: u32,
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// The first words of an I/O node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: String,
    /// Release of its kernel.
    pub(crate) kernel: String,
}

/// A file for a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FileHead {
    pub(crate) path: std::path::PathBuf,
    /// Permissions; none for a folder.
    pub(crate) mode: Option<u32>,
}

/// A place in the I/O node where files of the host are seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) path: std::path::PathBuf,
    pub(crate) read_only: bool,
}

/// A node that cannot be served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) node: u32,
    pub(crate) why: String,
}

impl Frame {
    pub(crate) fn new(job: u32, kind: Kind, bytes: impl Into<Vec<u8>>) -> Self {
        Self { job, kind, bytes: bytes.into() }
    }

    /// A frame that carries a value in JSON.
    pub(crate) fn json(job: u32, kind: Kind, value: &impl Serialize) -> io::Result<Self> {
        Ok(Self { job, kind, bytes: serde_json::to_vec(value)? })
    }

    /// A frame that carries numbers.
    pub(crate) fn numbers(job: u32, kind: Kind, numbers: &[u32]) -> Self {
        Self { job, kind, bytes: numbers.iter().flat_map(|n| n.to_le_bytes()).collect() }
    }

    /// The value in JSON that it carries.
    pub(crate) fn value<'a, T: Deserialize<'a>>(&'a self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.bytes)?)
    }

    /// The `N` numbers that it carries.
    pub(crate) fn get<const N: usize>(&self) -> io::Result<[u32; N]> {
        let (words, rest) = self.bytes.as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let words = words.try_into().ok().filter(|_| rest.is_empty());
        words.ok_or_else(|| wrong(format!("{:?} of {} bytes", self.kind, self.bytes.len())))
    }

    /// Writes it in one piece: a port makes a transfer of every write.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.bytes.len()).ok().filter(|_| self.bytes.len() <= MOST);
        let length = length.ok_or_else(|| wrong(format!("{} bytes are too many", self.bytes.len())))?;
        let mut all = Vec::with_capacity(HEAD + self.bytes.len());
        all.extend_from_slice(&self.job.to_le_bytes());
        all.push(self.kind as u8);
        all.extend_from_slice(&length.to_le_bytes());
        all.extend_from_slice(&self.bytes);
        to.write_all(&all)
    }

    /// The next frame; `None` at the end of the stream.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD];
        match from.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => from.read_exact(&mut head[1..])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Self::read(from),
            // whoever was at the other end has left words unread
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(e) => return Err(e),
        }
        let [j0, j1, j2, j3, kind, l0, l1, l2, l3] = head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let Some(kind) = Kind::of(kind).filter(|_| length <= MOST) else {
            return Err(wrong(format!("kind {kind} with {length} bytes")));
        };
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        Ok(Some(Self { job: u32::from_le_bytes([j0, j1, j2, j3]), kind, bytes }))
    }
}

/// What came is no frame, or none that may come.
pub(crate) fn wrong(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no frame of an I/O node: {what}"))
}

/// Sends bytes of any number as the frames that follow a beginning.
pub(crate) fn data(job: u32, bytes: &[u8], mut send: impl FnMut(Frame) -> io::Result<()>) -> io::Result<()> {
    bytes.chunks(MOST).try_for_each(|part| send(Frame::new(job, Kind::Data, part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let kind = (1..=41_u8).prop_filter_map("a kind", Kind::of);
        let bytes = proptest::collection::vec(any::<u8>(), 0..300);
        (any::<u32>(), kind, bytes).prop_map(|(job, kind, bytes)| Frame { job, kind, bytes })
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(sent in proptest::collection::vec(frames(), 0..8)) {
            let mut bytes = Vec::new();
            for frame in &sent {
                frame.write(&mut bytes).expect("memory");
            }
            let (mut from, mut got) = (bytes.as_slice(), Vec::new());
            while let Some(frame) = Frame::read(&mut from).expect("frames") {
                got.push(frame);
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn no_bytes_make_it_panic_or_allocate_more_than_a_frame(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut from = bytes.as_slice();
            while let Ok(Some(frame)) = Frame::read(&mut from) {
                prop_assert!(frame.bytes.len() <= bytes.len());
                let _ = (frame.get::<2>(), frame.value::<FileHead>().is_ok());
            }
        }
    }

    #[test]
    fn frames_that_are_too_long_are_refused_on_both_sides() {
        assert!(Frame::new(1, Kind::Data, vec![0; MOST + 1]).write(&mut Vec::new()).is_err());
        let mut bytes = Vec::new();
        Frame::new(1, Kind::Data, vec![7; 4]).write(&mut bytes).expect("memory");
        bytes[5..9].copy_from_slice(&(MOST as u32 + 1).to_le_bytes());
        let error = Frame::read(&mut bytes.as_slice()).expect_err("too long").to_string();
        assert!(error.contains("1048577 bytes"), "{error}");
        assert!(Frame::read(&mut [1, 0, 0, 0, 1, 9].as_slice()).is_err(), "cut off");
        assert!(matches!(Frame::read(&mut [].as_slice()), Ok(None)));
    }

    #[test]
    fn numbers_and_long_data_arrive_whole() {
        let frame = Frame::numbers(2, Kind::Taken, &[5, 1 << 20]);
        assert_eq!(frame.get().expect("two"), [5, 1 << 20]);
        assert!(frame.get::<1>().is_err() && Frame::new(2, Kind::Renew, [1, 2, 3]).get::<1>().is_err());
        let mut lengths = Vec::new();
        let send = |frame: Frame| {
            lengths.push(frame.bytes.len());
            Ok(())
        };
        data(1, &vec![0; MOST + 5], send).expect("sent");
        assert_eq!(lengths, [MOST, 5]);
    }
}
