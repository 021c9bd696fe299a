// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guardian's own side.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use colony_node::class::{self, Class};
use colony_node::parent;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;

use super::message::{Message, READY};
use crate::job::Job;
use crate::relief::{Relief, relieved};

/// Time for which the agent's link may stay open after the thread that started the guardian has ended.
const DYING: Duration = Duration::from_secs(2);

/// Watches over the agent at the other end of standard input; the exit code.
pub(super) fn watch(priority: u8, silence: Duration, undo: Option<&Path>) -> i32 {
    // it ends when the agent does, not by a signal meant for the agent
    let _ = SigSet::all().thread_block();
    let _ = nix::unistd::setsid();
    let _ = prctl::set_name(super::NAME);
    // without the privileges it works all the same, if later on a busy node
    let _ = class::set(0, Class::Fifo(priority));
    let relief = Relief::of_this_thread(priority).ok();
    let _ = class::set_not_inherited(0, Class::Fifo(priority));
    let _ = mlockall(MlockAllFlags::MCL_CURRENT);
    let Some((link, death)) = listen() else { return 1 };
    let mut watch = Watch { job: Job::new(), link, unread: Vec::new(), relief };
    let end = watch.wait_for_end(&death, silence);
    watch.relieved(|watch| watch.undo(&end, undo));
    0
}

/// Opens both ways by which the agent's end is heard of, and says that the guardian is ready.
fn listen() -> Option<(UnixStream, SignalFd)> {
    // The agent's files are closed when the last of its threads has run to its end, which a job that spins
    // keeps an ordinary thread from. The thread that starts guardians is above the job, and tells at once.
    let signal = Signal::SIGUSR1;
    let death = SignalFd::with_flags(&SigSet::from(signal), SfdFlags::SFD_NONBLOCK).ok()?;
    let mut link = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?);
    link.set_nonblocking(true).ok()?;
    // both ends of the link were made by the agent
    let agent = Pid::from_raw(getsockopt(&link, PeerCredentials).ok()?.pid());
    if parent::follow(agent, signal).is_err() {
        // the agent has ended before: its signal, which this process blocks, is sent here
        raise(signal).ok()?;
    }
    // an agent that has ended has its undo file read all the same
    let _ = link.write_all(&[READY]);
    Some((link, death))
}

/// The way in which the agent ended.
enum End {
    /// It said that nothing is left to do.
    Done,
    /// Its link is closed.
    Closed,
    /// The first of its threads has ended.
    Dying,
}

struct Watch {
    job: Job,
    link: UnixStream,
    /// The beginning of a message.
    unread: Vec<u8>,
    /// `None` without a real-time class.
    relief: Option<Relief>,
}

impl Watch {
    fn wait_for_end(&mut self, death: &SignalFd, silence: Duration) -> End {
        let timeout = PollTimeout::try_from(silence).unwrap_or(PollTimeout::MAX);
        loop {
            let mut sources = [
                PollFd::new(self.link.as_fd(), PollFlags::POLLIN),
                PollFd::new(death.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut sources, timeout) {
                // The agent is stopped or held up, its tasks perhaps favored for ever: put them back now. If
                // it goes on, its next edge switches them again.
                Ok(0) => self.relieved(|watch| watch.job.restore()),
                Ok(_) => {
                    if let Some(end) = self.relieved(Self::read) {
                        return end;
                    }
                    if matches!(death.read_signal(), Ok(Some(_))) {
                        return End::Dying;
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return End::Closed,
            }
        }
    }

    /// Does something that looks at tasks.
    fn relieved<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let relief = self.relief.take();
        let done = relieved(relief.as_ref(), || work(self));
        self.relief = relief;
        done
    }

    /// Undoes the agent's changes after it has ended. `undo`: the undo file.
    fn undo(&mut self, end: &End, undo: Option<&Path>) {
        match end {
            End::Done => return,
            End::Closed => self.job.restore(),
            End::Dying => self.outlast(),
        }
        if let Some(undo) = undo {
            crate::undo::finish(undo);
        }
    }

    /// Puts the tasks back now, and once more when the last of the agent's threads has ended: one of them may
    /// have been switching meanwhile.
    fn outlast(&mut self) {
        self.job.restore();
        let since = Instant::now();
        while since.elapsed() < DYING && self.read().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.job.restore();
    }

    /// Reads what has arrived and does it; the end, if that is among it.
    fn read(&mut self) -> Option<End> {
        let mut chunk = [0; 4096];
        loop {
            match self.link.read(&mut chunk) {
                // what is left unread was cut off by the agent's death
                Ok(0) => return Some(End::Closed),
                Ok(n) => {
                    self.unread.extend_from_slice(&chunk[..n]);
                    if obey(&self.job, &mut self.unread) {
                        return Some(End::Done);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Some(End::Closed),
            }
        }
    }
}

/// Does what the whole messages in `unread` say and keeps the rest; whether one was the last.
fn obey(job: &Job, unread: &mut Vec<u8>) -> bool {
    while let Some(end) = unread.iter().position(|&b| b == b'\n') {
        let line: Vec<u8> = unread.drain(..=end).collect();
        match serde_json::from_slice(&line) {
            Ok(Message::Joined(task)) => job.know(task),
            Ok(Message::Left(task)) => job.forget(task),
            Ok(Message::Done) => return true,
            Ok(Message::Beat) | Err(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_cut_anywhere_are_understood() {
        let job = Job::new();
        let task = crate::job::JobTask {
            tid: i32::MAX,
            pid: i32::MAX,
            start_ticks: 1,
            cpu: 0,
            own: Class::Other(3),
            own_reset: false,
            runnable: false,
        };
        let mut text = serde_json::to_vec(&Message::Joined(task)).expect("plain data");
        text.extend_from_slice(b"\n\"Beat\"\n\"Done\"\n");
        let mut unread = Vec::new();
        for (i, &byte) in text.iter().enumerate() {
            unread.push(byte);
            assert_eq!(obey(&job, &mut unread), i + 1 == text.len());
        }
        assert_eq!(job.tasks(), [task]);
    }

    proptest! {
        #[test]
        fn no_message_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            obey(&Job::new(), &mut bytes);
        }
    }
}
