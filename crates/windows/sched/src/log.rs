// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard error that a long-lived process can lose: a full disk, a closed pipe or a reader that has stopped costs
//! lines, and neither ends the process nor holds it up.
//!
//! `eprintln!` panics when the write fails, and `tracing_subscriber` reports a failed write with `eprintln!`.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing_subscriber::EnvFilter;

/// The longest line. A pipe that has room for anything has room for this much, so a write does not block (pipe(7),
/// `PIPE_BUF`).
const LONGEST: usize = 4096;
/// Time for which a line waits for its reader, milliseconds. After a lost line the next one does not wait.
const WAIT_MS: u8 = 100;

/// Lines lost since the last one that was written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The variable that says what is logged, in `colony` and in `colonyd`: a level, or directives of `tracing_subscriber`.
pub const VARIABLE: &str = "COLONY_LOG";

/// Starts logging to standard error what [`VARIABLE`] says, by default `info` and worse: without time stamps where standard
/// error is the journal, which has its own.
pub fn start() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(|| LogLine);
    if is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref(), io::stderr().as_fd()) {
        log.without_time().init();
    } else {
        log.init();
    }
}

/// Writes `text` and a newline to standard error. A failure is ignored.
pub fn say(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Returns `true` if `fd` is the stream to the journal that systemd names in `JOURNAL_STREAM` (`DEVICE:INODE`, systemd.exec(5)).
fn is_journal(named: Option<&str>, fd: BorrowedFd<'_>) -> bool {
    let numbers = named.and_then(|n| n.split_once(':'));
    let named = numbers.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    nix::sys::stat::fstat(fd).is_ok_and(|s| named == Some((s.st_dev, s.st_ino)))
}

/// Takes one line of the log, whether it can be written or not.
#[derive(Debug)]
struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(io::stderr().as_fd(), line, &LOST);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `line`, and before it how many lines were lost; adds to `lost` if that is not possible.
fn write_line(fd: BorrowedFd<'_>, line: &[u8], lost: &AtomicU64) {
    let before = lost.load(Ordering::Relaxed);
    let wait = if before == 0 { PollTimeout::from(WAIT_MS) } else { PollTimeout::ZERO };
    let mut asked = [PollFd::new(fd, PollFlags::POLLOUT)];
    let ready = poll(&mut asked, wait).is_ok_and(|n| n > 0);
    let note =
        if before == 0 { String::new() } else { format!("{before} lines of this log were lost here\n") };
    let room = LONGEST - note.len().min(LONGEST);
    let cut = line.len() > room;
    let (kept, end): (_, &[u8]) = if cut { (&line[..room.saturating_sub(4)], b"...\n") } else { (line, b"") };
    let text = [note.as_bytes(), kept, end].concat();
    if ready && nix::unistd::write(fd, &text).is_ok_and(|n| n == text.len()) {
        lost.fetch_sub(before, Ordering::Relaxed);
    } else {
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Read;

    #[test]
    fn lines_into_a_full_device_or_a_closed_pipe_are_counted_as_lost() {
        let lost = AtomicU64::new(0);
        let full = OpenOptions::new().write(true).open("/dev/full").expect("linux");
        write_line(full.as_fd(), b"one\n", &lost);
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        write_line(writer.as_fd(), b"two\n", &lost);
        assert_eq!(lost.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_reader_that_stopped_does_not_hold_up_the_writer_and_learns_what_it_missed() {
        let lost = AtomicU64::new(0);
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        // a pipe holds 64 KiB: this would block for good
        for _ in 0..2_000 {
            write_line(writer.as_fd(), &line, &lost);
        }
        let missed = lost.load(Ordering::Relaxed);
        assert!((1..2_000).contains(&missed), "{missed}");
        let mut buffer = vec![0; 1 << 20];
        let read = reader.read(&mut buffer).expect("lines");
        assert_eq!(read as u64, (2_000 - missed) * 100, "whole lines only");
        write_line(writer.as_fd(), b"again\n", &lost);
        let read = reader.read(&mut buffer).expect("lines");
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        assert_eq!(text, format!("{missed} lines of this log were lost here\nagain\n"));
        assert_eq!(lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_long_line_is_cut() {
        let file = tempfile::tempfile().expect("temp file");
        write_line(file.as_fd(), &b"x".repeat(10_000), &AtomicU64::new(0));
        assert_eq!(file.metadata().expect("ours").len(), LONGEST as u64);
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let file = File::open("/").expect("linux");
        let stat = nix::sys::stat::fstat(&file).expect("ours");
        let named = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_journal(Some(&named), file.as_fd()));
        for other in [None, Some(""), Some("1"), Some("0:0"), Some("x:y"), Some(&named[1..])] {
            assert!(!is_journal(other, file.as_fd()), "{other:?}");
        }
    }
}
