//! The guard of the mount: a process of its own that takes the tree away when the daemon ends, however it
//! ends.
//!
//! A FUSE mount whose daemon is gone stays where it was, and everybody who looks at it gets `Transport
//! endpoint is not connected`. The guard waits on a socket whose other end only the daemon has: `kill -9`
//! closes it too. It keeps the privilege to unmount, so that the daemon can give that up.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use caps::Capability;

use super::mount::{self, Place};

/// First argument of a process that is a guard.
const GUARD_ARGUMENT: &str = "--guard-of-mount";

/// What the daemon says for an orderly end.
const UNMOUNT: u8 = b'u';
/// What the guard says once it watches.
const READY: u8 = b'r';

/// The daemon's end.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    line: UnixStream,
}

impl Guard {
    /// Starts the guard of `place` from this very program, and waits until it watches.
    pub(crate) fn start(place: &Place) -> io::Result<Self> {
        let (mut line, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0("colonyd-guard")
            .arg(GUARD_ARGUMENT)
            .arg(place.path())
            .arg(if place.created() { "remove" } else { "keep" })
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()?;
        line.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut said = [0];
        line.read_exact(&mut said)?;
        line.set_read_timeout(None)?;
        Ok(Self { child, line })
    }

    /// Something that blocks until the guard has gone.
    pub(crate) fn watch(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let mut line = self.line.try_clone()?;
        Ok(move || {
            let _ = line.read(&mut [0]);
        })
    }

    /// Has the tree taken away, and returns when that is done.
    pub(crate) fn unmount(mut self) -> io::Result<()> {
        self.line.write_all(&[UNMOUNT])?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("the guard could not unmount")) }
    }
}

/// The guard's whole life, where this process was started as one: its exit code.
pub fn guard_main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != GUARD_ARGUMENT {
        return None;
    }
    let (Some(path), Some(then)) = (arguments.next(), arguments.next()) else {
        eprintln!("colonyd: {GUARD_ARGUMENT} is for colonyd's own use");
        return Some(ExitCode::from(2));
    };
    Some(guard(&PathBuf::from(path), then == "remove"))
}

fn guard(path: &Path, remove: bool) -> ExitCode {
    outlive_the_daemon();
    let Ok(mut line) = nix::unistd::dup(io::stdin()).map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    if line.write_all(&[READY]).is_err() {
        return ExitCode::FAILURE;
    }
    let mut said = [0];
    let gone = match line.read(&mut said) {
        Ok(1) if said == [UNMOUNT] => mount::detach_path(path).is_ok(),
        _ => wait_for_death(path),
    };
    if remove {
        mount::remove_directory(path);
    }
    if !gone {
        eprintln!("colonyd-guard: cannot unmount {}; try: umount -l {0}", path.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A dying process closes its descriptors one by one: the socket may go before the mount's does.
fn wait_for_death(path: &Path) -> bool {
    for wait_ms in [0, 1, 2, 5, 10, 20, 50, 100, 200, 400, 800] {
        std::thread::sleep(Duration::from_millis(wait_ms));
        if mount::detach_dead(path) {
            return true;
        }
    }
    false
}

/// Ends only by what the daemon says or does, with no privilege but the one to unmount.
fn outlive_the_daemon() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    let _ = nix::unistd::setsid();
    for s in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGPIPE] {
        // SAFETY: ignoring a signal installs no handler.
        let _ = unsafe { signal(s, SigHandler::SigIgn) };
    }
    super::privileges::keep_only(&[Capability::CAP_SYS_ADMIN]).unwrap_or_else(|e| {
        eprintln!("colonyd-guard: keeps more privileges than it needs: {e}");
    });
}
