// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output and standard error of the job, written by all its processes and read by somebody who may be slow.
//!
//! Output that the reader does not take at once waits here, up to a bound; a process that writes more waits itself, and
//! nobody else does.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;

use colony_fship::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use super::process::errno;

/// Bytes that wait for the reader at most, before processes do.
const QUEUE: usize = 1 << 20;
/// Bytes of a labeled line at most: a longer one is cut in two.
const LINE: usize = 64 << 10;

/// Bytes that stay free on the disk of a file with a limit: the control daemon stores its database on the same disk.
const KEPT_FREE: u64 = 4 << 20;

/// The error of a write beyond the limit of a file.
const EDQUOT: Errno = Errno(libc::EDQUOT as u16);

/// Returns `true` for errors by which no output is lost: the reader has closed its end (`EPIPE`), or the write is tried again (`EAGAIN`).
pub(crate) fn loses_nothing(error: Errno) -> bool {
    matches!(error, Errno::EPIPE | Errno::EAGAIN)
}

/// Ways to write without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// A regular file: what it does not take there is no room for.
    File,
    /// A description of our own that does not block.
    Write,
    /// A socket that others share.
    Send,
    /// Anything else: ask first, then write little.
    Ask,
}

/// One of the two.
#[derive(Debug)]
pub(crate) struct Output {
    fd: OwnedFd,
    manner: Manner,
    /// The file whose lock says which of several workers writes, if there are several.
    turn: Option<File>,
    /// Bytes of a regular file at most.
    limit: Option<u64>,
    /// It is this one's turn, in the middle of something.
    has_turn: bool,
    queue: VecDeque<u8>,
    /// The reader is gone, or the disk is full: told to whoever writes next.
    error: Option<Errno>,
}

impl Output {
    /// Of what the supervisor has handed over; called while it may still open it anew.
    pub(crate) fn new(fd: OwnedFd, turn: Option<File>) -> Self {
        let (fd, manner) = match own(&fd, true) {
            Some(Own::File) => (fd, Manner::File),
            Some(Own::Anew(anew)) => (anew, Manner::Write),
            Some(Own::Socket) => (fd, Manner::Send),
            None => (fd, Manner::Ask),
        };
        // a regular file takes each write as a whole
        let turn = turn.filter(|_| manner != Manner::File);
        Self { fd, manner, turn, limit: None, has_turn: false, queue: VecDeque::new(), error: None }
    }

    /// Refuses writes beyond this length of a regular file with `EDQUOT`. Several workers that write to one file at the same time may exceed
    /// the limit by one write each. Pipes, sockets and devices have no limit.
    pub(crate) fn with_limit(self, limit: Option<u64>) -> Self {
        Self { limit: limit.filter(|_| self.manner == Manner::File), ..self }
    }

    /// Describes an error of a write for the user: the limit and its remedy, or the system's text.
    pub(crate) fn describe_error(&self, error: Errno) -> String {
        match self.limit {
            Some(limit) if error == EDQUOT && self.length().is_ok_and(|length| length >= limit) => format!(
                "{} MiB of it are kept at most; `--output` and `--error` name files that hold more",
                limit >> 20
            ),
            _ => io::Error::from_raw_os_error(i32::from(error.0)).to_string(),
        }
    }

    /// The error of output that was accepted from a program and could not be written later.
    pub(crate) fn unreported_error(&self) -> Option<Errno> {
        self.error.filter(|error| !loses_nothing(*error))
    }

    /// The length of a regular file.
    fn length(&self) -> io::Result<u64> {
        Ok(u64::try_from(nix::sys::stat::fstat(&self.fd)?.st_size).unwrap_or(0))
    }

    /// Returns the part of `bytes` that fits below the limit of the file.
    fn within_limit<'a>(&self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let Some(limit) = self.limit.filter(|_| !bytes.is_empty()) else { return Ok(bytes) };
        let room = limit.saturating_sub(self.length()?);
        let disk = nix::sys::statvfs::fstatvfs(&self.fd)?;
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        match usize::try_from(room).unwrap_or(usize::MAX) {
            0 => Err(io::Error::from_raw_os_error(libc::EDQUOT)),
            _ if free < KEPT_FREE => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            room => Ok(&bytes[..bytes.len().min(room)]),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns `true` if output waits for the reader.
    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Bytes of output that wait for the reader.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that can be added.
    pub(crate) fn room(&self) -> usize {
        QUEUE.saturating_sub(self.queue.len())
    }

    /// Takes as much of `bytes` as there is room for; what the reader takes at once needs none.
    ///
    /// # Errors
    /// The error of the last write, once the reader has all output before it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut taken = 0;
        if self.queue.is_empty() {
            if let Some(error) = self.error {
                return Err(error);
            }
            match self.push(bytes) {
                Ok(n) => taken = n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(errno(&e)),
            }
            if self.manner == Manner::File {
                return Ok(taken);
            }
        }
        let more = (bytes.len() - taken).min(self.room());
        self.queue.extend(&bytes[taken..taken + more]);
        Ok(taken + more)
    }

    /// Takes all of `bytes`, whatever the room.
    ///
    /// # Errors
    /// As of [`Output::write`].
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let taken = self.write(bytes)?;
        self.queue.extend(&bytes[taken..]);
        Ok(())
    }

    /// Writes what waits, as far as the reader takes it.
    pub(crate) fn flush(&mut self) {
        while !self.queue.is_empty() {
            let front = self.queue.as_slices().0.to_vec();
            match self.push(&front) {
                Ok(n) => drop(self.queue.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    self.error = Some(errno(&e));
                    self.queue.clear();
                }
            }
        }
    }

    /// Writes what the reader takes at once. Until all is written, or up to the end of a line, no other worker writes.
    fn push(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let was_inside = self.has_turn;
        if !self.take_turn() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let pushed = self.push_now(bytes);
        let is_whole = match &pushed {
            Ok(n) => (*n == bytes.len() && self.queue.len() <= *n) || bytes[..*n].last() == Some(&b'\n'),
            Err(e) => !was_inside || e.kind() != io::ErrorKind::WouldBlock,
        };
        if is_whole {
            self.end_turn();
        }
        pushed
    }

    fn take_turn(&mut self) -> bool {
        self.has_turn = self.has_turn || self.turn.as_ref().is_none_or(|turn| turn.try_lock().is_ok());
        self.has_turn
    }

    fn end_turn(&mut self) {
        self.has_turn = false;
        if let Some(turn) = &self.turn {
            // it ends with this process in any case
            let _ = turn.unlock();
        }
    }

    fn push_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = self.within_limit(bytes)?;
        loop {
            let n = match self.manner {
                Manner::File | Manner::Write => nix::unistd::write(&self.fd, bytes),
                Manner::Send => {
                    send(self.fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
                }
                Manner::Ask => {
                    let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)];
                    if poll(&mut fds, PollTimeout::ZERO)? == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    // so many a pipe takes when it takes any
                    nix::unistd::write(&self.fd, &bytes[..bytes.len().min(libc::PIPE_BUF)])
                }
            };
            match n {
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
                Ok(n) => return Ok(n),
            }
        }
    }
}

/// Ways to use a stream of the job without changing it for others.
pub(crate) enum Own {
    /// It is a regular file or a directory, which never blocks.
    File,
    /// A new description of the same pipe, terminal or device, which does not block.
    Anew(OwnedFd),
    /// A socket, of which each call can say so.
    Socket,
}

/// Finds out; none if it cannot be opened anew.
pub(crate) fn own(fd: &OwnedFd, write: bool) -> Option<Own> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = File::from(fd.try_clone().ok()?);
    let kind = file.metadata().ok()?.file_type();
    if kind.is_file() || kind.is_dir() || kind.is_block_device() {
        return Some(Own::File);
    }
    if kind.is_socket() {
        return Some(Own::Socket);
    }
    let place = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let anew = File::options().read(!write).write(write).custom_flags(flags).open(place).ok()?;
    Some(Own::Anew(anew.into()))
}

/// Takes whole lines out of `unfinished` and `bytes`, each after the process's rank; what has no end stays in
/// `unfinished`, unless `all`.
pub(crate) fn label(rank: u32, unfinished: &mut Vec<u8>, bytes: &[u8], all: bool) -> Vec<u8> {
    unfinished.extend_from_slice(bytes);
    let mut lines = Vec::new();
    let mut rest = unfinished.as_slice();
    loop {
        let end = rest.iter().position(|&b| b == b'\n');
        let (line, after) = match end {
            Some(end) => rest.split_at(end + 1),
            None if rest.len() >= LINE || (all && !rest.is_empty()) => rest.split_at(rest.len().min(LINE)),
            None => break,
        };
        lines.extend_from_slice(format!("{rank}: ").as_bytes());
        lines.extend_from_slice(line);
        if end.is_none() {
            lines.push(b'\n');
        }
        rest = after;
    }
    *unfinished = rest.to_vec();
    lines
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_slow_reader_gets_all_of_it_in_order() {
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let mut output = Output::new(writer.into(), None);
        let all: Vec<u8> = (0..4_000_000u32).map(|n| n as u8).collect();
        let (mut at, mut got) = (0, Vec::new());
        while got.len() < all.len() {
            at += output.write(&all[at..]).expect("there is a reader");
            assert!(output.room() == 0 || at == all.len(), "it takes what it can");
            let mut some = vec![0; 50_000];
            let n = reader.read(&mut some).expect("read");
            got.extend_from_slice(&some[..n]);
            output.flush();
        }
        assert!(got == all && !output.waits());
        drop(reader);
        assert_eq!(output.write(b"more"), Err(Errno::EPIPE));
    }

    #[test]
    fn lines_of_several_workers_stay_whole_whatever_their_length() {
        let turn = tempfile::NamedTempFile::new().expect("a file");
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let mut outputs = [0, 1].map(|_| {
            let (fd, turn) = (writer.try_clone().expect("dup"), turn.reopen().expect("opened"));
            Output::new(fd.into(), Some(turn))
        });
        drop(writer);
        // longer than what a pipe takes at once, or holds
        let line = |n: usize, round: usize| {
            let length = [100_000, 10, 5000][(n + round) % 3];
            [vec![b'a' + n as u8; length], vec![b'\n']].concat()
        };
        let mut got = Vec::new();
        for round in 0..20 {
            for (n, output) in outputs.iter_mut().enumerate() {
                output.put(&line(n, round)).expect("there is a reader");
            }
        }
        while outputs.iter().any(Output::waits) {
            outputs.iter_mut().for_each(Output::flush);
            let mut some = vec![0; 3000];
            let n = reader.read(&mut some).expect("read");
            got.extend_from_slice(&some[..n]);
        }
        drop(outputs);
        reader.read_to_end(&mut got).expect("read");
        for n in 0..2 {
            let own = got.split_inclusive(|&b| b == b'\n').filter(|line| line[0] == b'a' + n as u8);
            let expected = (0..20).map(|round| line(n, round));
            assert!(own.map(<[u8]>::to_vec).eq(expected), "the lines of worker {n}, in its order");
        }
    }

    #[test]
    fn a_file_gets_no_longer_than_its_limit_and_the_writer_is_told_why() {
        let file = tempfile::tempfile().expect("a file");
        let mut outputs = [0, 1].map(|_| {
            let fd = file.try_clone().expect("dup").into();
            Output::new(fd, None).with_limit(Some(1 << 20))
        });
        let part = vec![b'x'; 700 << 10];
        let [first, second] = &mut outputs;
        assert_eq!(first.write(&part), Ok(part.len()));
        // whichever worker writes the rest
        assert_eq!(second.write(&part), Ok((1 << 20) - part.len()));
        assert_eq!((first.write(b"more"), second.write(b"more")), (Err(EDQUOT), Err(EDQUOT)));
        assert!(
            first.describe_error(EDQUOT).contains("1 MiB")
                && first.describe_error(EDQUOT).contains("--output")
        );
        assert!(first.describe_error(Errno::EIO).contains("Input/output error"));
        assert_eq!(file.metadata().expect("read").len(), 1 << 20);
        // labeled lines are taken as a whole: what is left of one is lost, and not forgotten
        file.set_len((1 << 20) - 3).expect("cut");
        assert_eq!((first.put(b"0: line\n"), first.unreported_error()), (Ok(()), None));
        first.flush();
        assert_eq!((first.unreported_error(), first.put(b"next")), (Some(EDQUOT), Err(EDQUOT)));
        // a reader that is not a file has no limit
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let mut output = Output::new(writer.into(), None).with_limit(Some(1));
        assert_eq!(output.write(b"words"), Ok(5));
        drop(output);
        assert_eq!(std::io::read_to_string(&mut reader).expect("read"), "words");
    }

    #[test]
    fn the_writer_s_own_descriptor_stays_as_it_was() {
        let (_reader, writer) = std::io::pipe().expect("pipe");
        let kept = writer.try_clone().expect("dup");
        let _output = Output::new(writer.into(), None);
        let flags = nix::fcntl::fcntl(&kept, nix::fcntl::FcntlArg::F_GETFL).expect("flags");
        assert_eq!(flags & libc::O_NONBLOCK, 0, "others would meet EAGAIN");
    }

    #[test]
    fn lines_are_labeled_whole() {
        let mut unfinished = Vec::new();
        assert_eq!(label(3, &mut unfinished, b"one\ntwo", false), b"3: one\n");
        assert_eq!(label(3, &mut unfinished, b"!\n\n", false), b"3: two!\n3: \n");
        assert_eq!(label(3, &mut unfinished, b"end", false), b"");
        assert_eq!(label(3, &mut unfinished, b"", true), b"3: end\n");
        assert!(unfinished.is_empty());
    }

    #[test]
    fn a_mebibyte_waits_for_a_reader_that_reads_nothing_and_no_more() {
        let (reader, writer) = std::io::pipe().expect("pipe");
        let pipe = nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_GETPIPE_SZ).expect("a pipe");
        let mut output = Output::new(writer.into(), None);
        let part = vec![b'x'; 4 << 20];
        assert_eq!(output.write(&part), Ok(usize::try_from(pipe).expect("a size") + QUEUE));
        assert_eq!((output.write(b"more"), output.room(), output.waiting()), (Ok(0), 0, 1 << 20));
        drop(reader);
    }
}
