// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard input that the user of a job sends: bytes with their place in the whole, so that each is taken once, whatever is
//! killed between the user and the partition.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::api::InputTaken;

/// Longest wait for room in the pipe to the program.
const ROOM_MS: u16 = 500;
/// The input ends if its user has said nothing for this long: the command that sends it has been killed.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct State {
    /// To the program; `None` after the end.
    pipe: Option<io::PipeWriter>,
    taken: u64,
    heard: Instant,
    is_abandoned: bool,
}

/// The standard input of a job.
#[derive(Debug)]
pub(crate) struct Input(Mutex<State>);

impl Input {
    /// An input, and what the program reads.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (read, pipe) = io::pipe()?;
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let (pipe, heard) = (Some(pipe), Instant::now());
        let state = State { pipe, taken: 0, heard, is_abandoned: false };
        Ok((Self(Mutex::new(state)), read.into()))
    }

    /// Takes bytes, of which the first has this place in the whole, as far as the program has room within a moment. After the
    /// last ones comes the end.
    ///
    /// # Errors
    /// There is a gap before the bytes, or the input has ended although its user has not.
    pub(crate) fn take(&self, from: u64, bytes: &[u8], is_last: bool) -> Result<InputTaken, String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.heard = Instant::now();
        if state.is_abandoned {
            let seconds = SILENCE.as_secs();
            return Err(format!(
                "the input has ended, since nothing was heard of its sender for {seconds} s"
            ));
        }
        // what comes again has been taken before
        let known = state.taken.checked_sub(from).ok_or("bytes of the input are missing")?;
        let new = bytes.get(usize::try_from(known).unwrap_or(usize::MAX)..).unwrap_or_default();
        let written = state.write(new);
        if is_last && written == new.len() {
            state.pipe = None;
        }
        Ok(InputTaken { bytes: state.taken, is_open: state.pipe.is_some() })
    }

    /// Ends the input if its sender is not there any more.
    pub(crate) fn check(&self) {
        // one that is being written has a sender
        if let Ok(mut state) = self.0.try_lock()
            && state.pipe.is_some()
            && state.heard.elapsed() > SILENCE
        {
            (state.pipe, state.is_abandoned) = (None, true);
        }
    }
}

impl State {
    /// Writes what there is room for within a moment. Returns the number of bytes.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        let mut has_waited = false;
        while let (Some(rest @ [_, ..]), Some(pipe)) = (bytes.get(written..), &mut self.pipe) {
            match pipe.write(rest) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !has_waited => {
                    has_waited = true;
                    let _ = poll(
                        &mut [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)],
                        PollTimeout::from(ROOM_MS),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // nobody reads any more
                Err(_) => self.pipe = None,
            }
        }
        self.taken += written as u64;
        written
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn bytes_that_come_again_are_taken_once_and_the_end_comes_after_the_last() {
        let (input, read) = Input::new().expect("a pipe");
        let taken = |bytes, is_open| Ok(InputTaken { bytes, is_open });
        assert_eq!(input.take(0, b"one ", false), taken(4, true));
        assert_eq!(input.take(0, b"one two ", false), taken(8, true), "a sender that was not answered");
        assert_eq!(input.take(8, b"", false), taken(8, true), "a sign of life");
        assert!(input.take(9, b"x", false).is_err(), "a gap");
        assert_eq!(input.take(4, b"two three", true), taken(13, false));
        assert_eq!(input.take(4, b"two three", true), taken(13, false), "the end may come again");
        let mut all = String::new();
        File::from(read).read_to_string(&mut all).expect("read");
        assert_eq!(all, "one two three");
    }

    #[test]
    fn a_program_that_does_not_read_bounds_what_is_taken() {
        let (input, read) = Input::new().expect("a pipe");
        let bytes = vec![7; 1 << 20];
        let first = input.take(0, &bytes, true).expect("taken");
        assert!(first.is_open && first.bytes < bytes.len() as u64, "{first:?}");
        // a program that ends, or closes its standard input
        drop(read);
        let last = input.take(first.bytes, &bytes[first.bytes as usize..], true).expect("told");
        assert_eq!(last, InputTaken { bytes: first.bytes, is_open: false });
    }

    #[test]
    fn an_input_whose_sender_has_gone_ends_and_says_so() {
        let (input, read) = Input::new().expect("a pipe");
        input.take(0, b"some", false).expect("taken");
        input.check();
        assert!(input.take(4, b"", false).is_ok_and(|taken| taken.is_open), "it has just been heard");
        input.0.lock().expect("ours").heard = Instant::now() - SILENCE - Duration::from_secs(1);
        input.check();
        let mut all = String::new();
        File::from(read).read_to_string(&mut all).expect("the end comes");
        assert_eq!(all, "some");
        assert!(input.take(4, b"more", false).is_err_and(|why| why.contains("60 s")));
    }
}
