// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that the daemon starts of itself: workers and proxies. They speak over their standard input.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use colony_node::{descriptor, task};

/// Starts one, without environment, and with no other descriptors than its standard streams; the daemon's end of its
/// socket.
pub(crate) fn start(program: &Path, arguments: &[OsString]) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/").stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    // SAFETY: system calls only
    unsafe { command.pre_exec(|| descriptor::close_on_exec_from(3)) };
    let child = command.spawn()?;
    task::kill_earlier(child.id());
    Ok((ours, child))
}

/// In the process itself: its end of the socket.
pub(crate) fn socket() -> io::Result<UnixStream> {
    io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from)
}

/// In the process itself: these signals are not for it.
pub(crate) fn ignore(signals: &[i32]) {
    for &signal in signals {
        // SAFETY: no handler is installed
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
