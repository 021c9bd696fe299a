// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs whose output is kept.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use colony_ciod::JobOutcome;

use crate::{CnkError, Death, Running};

/// A job under way, whose output is kept.
#[derive(Debug)]
pub struct Capturing {
    /// The job.
    pub job: Running,
    pub(crate) stdout: File,
    pub(crate) stderr: File,
}

/// The output of a job, and its outcome.
#[derive(Clone, Debug)]
pub struct Captured {
    /// Standard output of all processes.
    pub stdout: String,
    /// Standard error of all processes.
    pub stderr: String,
    /// The outcome of the job.
    pub outcome: JobOutcome,
    /// The nodes that died meanwhile.
    pub deaths: Vec<Death>,
}

/// The same file for those who write to it: several at once, since each I/O node of a job has a process that does. A file in memory
/// has no lock of its position, so each of two writes at the same time could overwrite the other.
pub(crate) fn appending(file: &File) -> io::Result<OwnedFd> {
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(File::options().append(true).open(place)?.into())
}

impl Capturing {
    /// Waits for its end.
    ///
    /// # Errors
    /// If what it printed cannot be read.
    pub fn end(self) -> Result<Captured, CnkError> {
        let outcome = self.job.wait();
        let text = |mut file: File| {
            let mut bytes = Vec::new();
            let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
            read.map_err(CnkError::io("what a job has printed"))?;
            Ok::<_, CnkError>(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Captured {
            stdout: text(self.stdout)?,
            stderr: text(self.stderr)?,
            outcome,
            deaths: self.job.deaths(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    #[test]
    fn what_several_processes_write_is_appended() {
        let file = colony_vm::qemu::memory_file("captured").expect("a file");
        let writer = appending(&file).expect("opened");
        let flags = fcntl(&writer, FcntlArg::F_GETFL).expect("flags");
        assert!(OFlag::from_bits_truncate(flags).contains(OFlag::O_APPEND), "{flags:#x}");
        for text in [b"one\n", b"two\n"] {
            let other = appending(&file).expect("opened");
            assert_eq!(nix::unistd::write(&other, text), Ok(4));
        }
        assert_eq!(
            std::fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("read"),
            b"one\ntwo\n"
        );
    }
}
