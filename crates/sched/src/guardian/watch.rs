//! The guardian's own side.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use colony_node::class::{self, Class};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::signal::SigSet;

use super::{Message, READY};
use crate::job::Job;

/// Watches over the agent at the other end of standard input; the exit code.
pub(super) fn watch(priority: u8, silence: Duration) -> i32 {
    // it ends when the agent does, not by a signal meant for the agent
    let _ = SigSet::all().thread_block();
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(c"colony-guardian");
    let Ok(link) = std::io::stdin().as_fd().try_clone_to_owned() else { return 1 };
    let link = UnixStream::from(link);
    // without the privilege it works all the same, if later on a busy node
    let _ = class::set_not_inherited(0, Class::Fifo(priority));
    let _ = mlockall(MlockAllFlags::MCL_CURRENT);
    if link.set_read_timeout(Some(silence)).is_err() || (&link).write_all(&[READY]).is_err() {
        return 1;
    }
    let job = Job::new();
    let mut lines = BufReader::new(link);
    let mut line = Vec::new();
    loop {
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) if line.ends_with(b"\n") => {
                if obey(&job, &line) {
                    return 0;
                }
                line.clear();
            }
            // the agent died within a message
            Ok(_) => break,
            // The agent is stopped or held up, its tasks perhaps favored for ever: put them back now. If it
            // goes on, its next edge switches them again.
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => job.restore(),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    job.restore();
    0
}

/// Does what one message says; whether it was the last.
fn obey(job: &Job, line: &[u8]) -> bool {
    match serde_json::from_slice(line) {
        Ok(Message::Joined(task)) => job.know(task),
        Ok(Message::Left(tid)) => job.forget(tid),
        Ok(Message::Done) => return true,
        Ok(Message::Beat) | Err(_) => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_message_panics(line in prop::collection::vec(any::<u8>(), 0..200)) {
            obey(&Job::new(), &line);
        }
    }
}
