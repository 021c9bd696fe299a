// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that undoes a reservation when the process that made it dies.
//!
//! It is this very program, started again, and waits for the end of a pipe. If both are killed at once, the kernel starts the
//! [release agent](crate::undo::arm).

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::SigSet;

use super::changes::undo_file;
use crate::SchedError;
use crate::relief::above_all_jobs;

/// The first argument of a guard.
const ARGUMENT: &str = "--colony-spare-guard";

/// Becomes the guard if this process was started as one, and then does not return.
pub(crate) fn main_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|a| a != ARGUMENT) {
        return;
    }
    let Some(path) = arguments.next() else { std::process::exit(2) };
    // it ends with the process it guards, not by a signal meant for that one
    let _ = SigSet::all().thread_block();
    let _ = nix::sys::prctl::set_name(c"colony-spare");
    let mut stdin = std::io::stdin();
    let mut rest = [0; 64];
    while stdin.read(&mut rest).is_ok_and(|n| n > 0) {}
    above_all_jobs(|| undo_file(Path::new(&path)));
    std::process::exit(0);
}

/// The guard of a reservation. When it is dropped, the guard looks at the undo file and ends.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    link: Option<ChildStdin>,
}

impl Guard {
    pub(super) fn start(undo: &Path) -> Result<Self, SchedError> {
        let failed = |e: std::io::Error| SchedError::Guardian(e.to_string());
        let mut child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .arg(undo)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // out of reach of the terminal's signals
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let link = child.stdin.take();
        Ok(Self { child, link })
    }
}

impl Guard {
    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.link.take());
        let _ = self.child.wait();
    }
}
