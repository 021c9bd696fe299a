//! Processes that the daemon starts of itself: workers and proxies. They speak over their standard input.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::worker::identity::DESCRIPTORS;

/// Starts one, without environment; the daemon's end of its socket.
pub(crate) fn start(program: &Path, arguments: &[OsString]) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    Ok((ours, child))
}

/// In the process itself: its end of the socket.
pub(crate) fn socket() -> io::Result<UnixStream> {
    io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from)
}

/// Lets this process have as many descriptors as it may: a node takes seven, and the usual limit is for programs that
/// wait by `select`.
pub fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // what cannot be had is told when it is missed
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(DESCRIPTORS)), hard);
    }
}

/// In the process itself: these signals are not for it.
pub(crate) fn ignore(signals: &[i32]) {
    for &signal in signals {
        // SAFETY: no handler is installed
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
