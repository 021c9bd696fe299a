// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard input of `colony job run`: passed on to rank 0, as far as the program reads it.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use colony_control_api::{Client, ClientError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::wrong;

/// Bytes of one part.
const PART: usize = 64 << 10;
/// Period of signs of life while there is nothing to pass on: the partition ends an input whose sender is not there.
const ALIVE_MS: u16 = 10_000;

/// The standard input of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Empty,
    /// A file that the I/O node opens.
    File(PathBuf),
    /// Passed on by this command.
    Own,
}

impl Input {
    /// By `--input`. Without it, `job run` without `--requeue` (`is_run`) passes its own on, unless that is a terminal or `/dev/null`.
    pub(super) fn new(asked: Option<&Path>, is_run: bool) -> anyhow::Result<Self> {
        match asked {
            Some(path) if path.as_os_str() != "-" => Ok(Self::File(path.to_owned())),
            Some(_) if !is_run => Err(wrong(
                "--input -: nobody passes it on after `job submit`, or with --requeue: name a file, or use `job run`",
            )),
            Some(_) => Ok(Self::Own),
            None if is_run && !io::stdin().is_terminal() && !is_nothing() => Ok(Self::Own),
            None => Ok(Self::Empty),
        }
    }

    pub(super) fn file(&self) -> Option<PathBuf> {
        if let Self::File(path) = self { Some(path.clone()) } else { None }
    }
}

/// Returns `true` if standard input is `/dev/null`.
fn is_nothing() -> bool {
    let own = nix::sys::stat::fstat(io::stdin());
    let null = nix::sys::stat::stat("/dev/null");
    own.is_ok_and(|own| null.is_ok_and(|null| (own.st_mode, own.st_rdev) == (null.st_mode, null.st_rdev)))
}

/// Passes standard input on to a job, until its end or that of the job.
pub(super) fn pass_on(client: &Client, job: u64) {
    if let Err(error) = pass(client, job) {
        note!("standard input of job {job}: {error}");
    }
}

fn pass(client: &Client, job: u64) -> Result<(), ClientError> {
    let mut part = vec![0; PART];
    let mut passed = 0;
    loop {
        let read = next(&mut part);
        // what cannot be read ends the input, too
        let (count, is_last) = match read {
            Ok(Some(count)) => (count, count == 0),
            Ok(None) => (0, false),
            Err(_) => (0, true),
        };
        let mut rest = part.get(..count).unwrap_or_default();
        loop {
            let taken = client.send_input(job, passed, rest, is_last)?;
            let more = usize::try_from(taken.bytes.saturating_sub(passed)).unwrap_or(usize::MAX);
            rest = rest.get(more..).unwrap_or_default();
            passed = passed.max(taken.bytes);
            if !taken.is_open {
                return read
                    .map(drop)
                    .map_err(|source| ClientError::Io { what: "reading".to_owned(), source });
            }
            if rest.is_empty() && !is_last {
                break;
            }
        }
    }
}

/// Reads a part of standard input: 0 bytes at its end, `None` if there is nothing for long.
fn next(part: &mut [u8]) -> io::Result<Option<usize>> {
    let stdin = io::stdin();
    let mut look = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let read = match poll(&mut look, PollTimeout::from(ALIVE_MS)) {
        Ok(0) => return Ok(None),
        // the system's call: nothing is read ahead
        Ok(_) => nix::unistd::read(&stdin, part),
        Err(error) => Err(error),
    };
    match read {
        Ok(count) => Ok(Some(count)),
        Err(nix::Error::EINTR | nix::Error::EAGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
