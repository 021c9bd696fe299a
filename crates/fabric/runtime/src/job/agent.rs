// SPDX-License-Identifier: MIT OR Apache-2.0
//! An agent: a process that `mpirun` starts for a rank. It starts the rank when the launcher tells it to, with the
//! environment that `mpirun` has given it, and tells the launcher what the rank prints and how it ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use colony_node::parent::end_with_parent;
use colony_node::pidfd::Pidfd;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::error::{LaunchError, system};
use super::orders::{AGENT, AgentHello, Event, Order, Output};
use crate::place::machine;
use crate::transport::sockets::Secret;
use crate::transport::sockets::entry::SECRET;
use crate::transport::sockets::handshake::{Connecting, HANDSHAKE};
use crate::transport::sockets::stream::{Stream, read_value};

/// Variables with the rank that launchers of MPI give.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];
/// Bytes of output in one message.
const PRINTED: usize = 16 << 10;
/// Messages of output between two looks at orders: more than a pipe holds.
const MESSAGES: u32 = 8;

/// The launcher's address for agents. It has the name of the launcher's host if the launcher listens on all addresses; a
/// process of its own machine needs no name.
fn address(text: &str, machine: &str) -> Option<String> {
    let (of_launcher, place) = text.split_once('/')?;
    let (_, port) = place.rsplit_once(':')?;
    let is_named = place.parse::<SocketAddr>().is_err();
    let is_near = is_named && of_launcher == machine;
    Some(if is_near { format!("tcp:127.0.0.1:{port}") } else { format!("tcp:{place}") })
}

/// The value of the variable [`AGENT`] for a launcher that listens at an address of `Listener::address`.
pub(crate) fn variable(address: &str) -> String {
    format!("{}/{}", machine(), address.trim_start_matches("tcp:"))
}

fn wrong(what: &str) -> LaunchError {
    LaunchError::Wrong(format!("{what}: agents are started by colony launch --mpi --restarts N"))
}

/// An output of a rank, or of what the rank has started.
struct Pipe {
    output: Output,
    /// Does not wait.
    file: File,
}

impl Pipe {
    fn new(output: Output, end: impl Into<OwnedFd>) -> io::Result<Self> {
        let end: OwnedFd = end.into();
        fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { output, file: File::from(end) })
    }

    /// Sends the launcher what was printed. Returns `false` at the end of the output.
    fn pass_on(&mut self, launcher: &mut Stream) -> io::Result<bool> {
        let mut bytes = [0; PRINTED];
        for _ in 0..MESSAGES {
            match self.file.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    say(launcher, Event::Printed(self.output, read as i32))?;
                    io::Write::write_all(launcher, &bytes[..read])?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// A rank's process, with a descriptor that is readable once it has ended.
struct Running {
    child: Child,
    pidfd: Pidfd,
}

impl Running {
    fn start(command: &mut Command, pipes: &mut Vec<Pipe>) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pidfd = Pidfd::open(child.id()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        if let (Some(out), Some(error)) = (child.stdout.take(), child.stderr.take()) {
            pipes.extend([Pipe::new(Output::Out, out)?, Pipe::new(Output::Error, error)?]);
        }
        Ok(Self { child, pidfd })
    }
}

/// Runs an agent until the launcher ends its connection.
pub(crate) fn run(place: &str, program: &OsStr, arguments: &[OsString]) -> Result<u8, LaunchError> {
    let machine = machine();
    let address = address(place, &machine).ok_or_else(|| wrong("COLONY_JOB_AGENT is no address"))?;
    let secret = std::env::var(SECRET).ok().and_then(|text| Secret::from_hex(&text));
    let secret = secret.ok_or_else(|| wrong("COLONY_JOB_SECRET is not set"))?;
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    let rank = rank.ok_or_else(|| wrong("mpirun has given this process no rank"))?;
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let hello = AgentHello { rank, machine, host: host.unwrap_or_else(|| "127.0.0.1".to_owned()) };
    let mut stream = greet(&address, &secret, &hello).map_err(system("greeting the launcher"))?;
    let command = |variables: Vec<(String, String)>| {
        let mut command = Command::new(program);
        command.args(arguments).env_remove(AGENT).envs(variables);
        end_with_parent(&mut command, Signal::SIGKILL);
        command
    };
    let (mut running, mut pipes) = (None, Vec::new());
    // the end of the connection is the end of the job, and of the launcher
    while serve(&mut stream, (&mut running, &mut pipes), &command).is_ok() {}
    if let Some(Running { mut child, .. }) = running {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(0)
}

fn greet(address: &str, secret: &Secret, hello: &AgentHello) -> io::Result<Stream> {
    // a launcher that is stopped later, or whose output is not read, has not ended
    let stream = Connecting::begin(address, secret)?.finish(secret, hello, HANDSHAKE)?;
    stream.detect_loss()?;
    Ok(stream)
}

/// Waits for an order, for output, or for the end of the rank, and does what follows.
fn serve(
    stream: &mut Stream,
    (running, pipes): (&mut Option<Running>, &mut Vec<Pipe>),
    command: &dyn Fn(Vec<(String, String)>) -> Command,
) -> io::Result<()> {
    let (has_order, has_ended) = {
        let of_pipes = pipes.iter().map(|pipe| pipe.file.as_fd());
        let pidfd = running.as_ref().map(|running| running.pidfd.as_fd());
        let fds = std::iter::once(stream.as_fd()).chain(of_pipes).chain(pidfd);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(nix::Error::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| fd.any() != Some(false));
        (is_ready(fds.first()), running.is_some() && is_ready(fds.last()))
    };
    // all that the rank has printed comes before its end
    let mut left = Vec::new();
    for mut pipe in pipes.drain(..) {
        if pipe.pass_on(stream)? {
            left.push(pipe);
        }
    }
    *pipes = left;
    if has_ended && let Some(Running { mut child, .. }) = running.take() {
        say(stream, Event::ended(child.wait()?))?;
    }
    if has_order {
        match read_value(stream)? {
            Order::Start(variables) => match Running::start(&mut command(variables), pipes) {
                Ok(started) => {
                    say(stream, Event::Started(started.child.id().cast_signed()))?;
                    *running = Some(started);
                }
                Err(error) => say(stream, Event::Refused(error.raw_os_error().unwrap_or(nix::libc::EIO)))?,
            },
            Order::Kill => {
                if let Some(Running { child, .. }) = running {
                    let _ = child.kill();
                }
            }
        }
    }
    Ok(())
}

fn say(stream: &mut Stream, event: Event) -> io::Result<()> {
    io::Write::write_all(stream, &event.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_on_the_launchers_machine_needs_no_name_of_it() {
        assert_eq!(address("m1/login:77", "m1").as_deref(), Some("tcp:127.0.0.1:77"));
        assert_eq!(address("m1/login:77", "m2").as_deref(), Some("tcp:login:77"));
        // a launcher that listens on one address
        assert_eq!(address("m1/10.0.0.7:77", "m1").as_deref(), Some("tcp:10.0.0.7:77"));
        assert_eq!(address("m1", "m2"), None);
        assert_eq!(address(&variable("tcp:login:77"), &machine()).as_deref(), Some("tcp:127.0.0.1:77"));
    }
}
