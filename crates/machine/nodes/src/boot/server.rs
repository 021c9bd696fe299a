// SPDX-License-Identifier: MIT OR Apache-2.0
//! In the boot process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ExitCode, ExitStatus};

use colony_node::confinement::{Capability, confine};
use colony_node::descriptor;
use colony_node::pidfd::Pidfd;
use colony_vm::{VmError, qemu};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::protocol::{Refusal, Report, Request, VERSION, receive, send};

/// The capabilities of `colony-boot`, if root runs it: emulators become other users, and are ended.
const CAPABILITIES: [Capability; 3] = [Capability::CAP_KILL, Capability::CAP_SETGID, Capability::CAP_SETUID];

/// The `main` of the program `colony-boot`: serves the partition whose socket is the standard input.
#[must_use]
pub fn boot_main() -> ExitCode {
    for warning in confine(&CAPABILITIES) {
        eprintln!("colony-boot: the process that boots the nodes is not confined: {warning}");
    }
    let socket = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    match socket.and_then(|socket| serve(&socket)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("colony-boot: {e}; it is started by Colony, with a socket as its standard input");
            ExitCode::FAILURE
        }
    }
}

/// Starts, watches and kills emulators until the socket is closed; then none of them is left.
///
/// The emulators die with the thread that calls this.
pub(super) fn serve(socket: &UnixStream) -> io::Result<()> {
    descriptor::raise_limit();
    send(socket, &Report::Ready { version: VERSION.into() }, &[])?;
    let mut emulators = Emulators::default();
    loop {
        let (asked, ended) = emulators.wait(socket)?;
        for number in ended {
            if let Some(how) = emulators.reap(number) {
                send(socket, &Report::Ended { number, how }, &[])?;
            }
        }
        if !asked {
            continue;
        }
        match receive::<Request>(socket)? {
            None => return Ok(()),
            Some((Request::Kill(number), _)) => emulators.kill(number),
            Some((Request::Boot(arguments), fds)) => {
                let report = match start(arguments, fds).and_then(|child| emulators.add(child)) {
                    Ok((number, pid)) => Report::Booted { number, pid },
                    Err(e) => Report::Refused(refusal(e)),
                };
                send(socket, &report, &[])?;
            }
        }
    }
}

fn refusal(error: VmError) -> Refusal {
    match error {
        VmError::Tool { reason, .. } => Refusal::Missing(reason),
        VmError::Wrong(text) => Refusal::Wrong(text),
        other => Refusal::System(other.to_string()),
    }
}

/// Starts an emulator, with its console as the first descriptor.
fn start(arguments: Vec<String>, fds: Vec<OwnedFd>) -> Result<Child, VmError> {
    let mut fds = fds.into_iter();
    let io = |source| VmError::Io { what: "the emulator's console".into(), source };
    let console = fds.next().ok_or_else(|| io(io::ErrorKind::InvalidData.into()))?;
    let mut command = qemu::command(arguments, fds)?;
    command.stdout(console.try_clone().map_err(io)?).stderr(console);
    // a signal from the terminal is for the job, not for its nodes
    command.process_group(0);
    // SAFETY: between fork and exec only one system call is made, and nothing is allocated.
    unsafe { command.pre_exec(without_huge_pages) };
    qemu::spawn(command)
}

/// Turns transparent huge pages off for the program that this process becomes. The emulator asks for them
/// and uses some kilobytes of each: 4 MiB a node, and the time to clear them.
fn without_huge_pages() -> io::Result<()> {
    // SAFETY: the call concerns how the kernel backs memory, not what is in it.
    let done = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    // a kernel without such pages has none to take away
    if done == 0 || Errno::last() == Errno::EINVAL { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The emulators that run, by number, with a pidfd of each.
#[derive(Debug, Default)]
struct Emulators {
    running: BTreeMap<u64, (Child, Pidfd)>,
    /// Number of emulators started so far.
    started: u64,
}

impl Emulators {
    fn add(&mut self, mut child: Child) -> Result<(u64, u32), VmError> {
        let pid = child.id();
        let pidfd = match Pidfd::open(pid) {
            Ok(pidfd) => pidfd,
            Err(source) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(VmError::Io { what: "opening a pidfd (Linux 5.3 or newer)".into(), source });
            }
        };
        self.started += 1;
        self.running.insert(self.started, (child, pidfd));
        Ok((self.started, pid))
    }

    /// Waits until something happens: whether there is a request, and which emulators have ended.
    fn wait(&self, socket: &UnixStream) -> io::Result<(bool, Vec<u64>)> {
        let watched = std::iter::once(socket.as_fd()).chain(self.running.values().map(|(_, fd)| fd.as_fd()));
        let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        let ended = self.running.keys().zip(&fds[1..]).filter(|(_, fd)| ready(fd)).map(|(&number, _)| number);
        Ok((ready(&fds[0]), ended.collect()))
    }

    /// Forgets an emulator that has ended: in which way.
    fn reap(&mut self, number: u64) -> Option<String> {
        let (child, _) = self.running.get_mut(&number)?;
        let how = match child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => description(status),
            Err(e) => e.to_string(),
        };
        self.running.remove(&number);
        Some(how)
    }

    fn kill(&self, number: u64) {
        if let Some((_, pidfd)) = self.running.get(&number) {
            pidfd.kill();
        }
    }
}

impl Drop for Emulators {
    fn drop(&mut self) {
        self.running.values().for_each(|(_, pidfd)| pidfd.kill());
        for (child, _) in self.running.values_mut() {
            let _ = child.wait();
        }
    }
}

/// A description of a process's end.
fn description(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(Ok(signal))) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}
