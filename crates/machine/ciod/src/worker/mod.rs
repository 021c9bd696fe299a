// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker of a job: one process for each pset, which is the user, and does what the pset's nodes ask for.

pub(crate) mod calls;
mod charge;
pub(crate) mod files;
pub(crate) mod filter;
pub(crate) mod host;
pub(crate) mod identity;
mod image;
mod node;
pub(crate) mod output;
pub(crate) mod process;
mod run;
pub(crate) mod start;
pub(crate) mod waits;
pub(crate) mod window;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use crate::control::{self, Order, Report, Setup};
use crate::{JobError, helper};
use node::Node;
use output::{Output, Own};
use process::{Description, Descriptor, Kind};
use window::Window;

/// The program of a job's worker: whatever [`crate::Config::worker`] names calls this first thing in its `main`,
/// with the supervisor's socket as its standard input.
pub fn worker_main() -> ExitCode {
    let Ok(control) = helper::socket() else { return ExitCode::FAILURE };
    let error = match prepare(&control) {
        Ok(Some(job)) => return run::run(control, job),
        // the supervisor is gone, or this is not a worker at all
        Ok(None) => return ExitCode::FAILURE,
        Err(error) => error,
    };
    match control::send(&control, &Report::Done(Some(error))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A job before its start.
struct Prepared {
    setup: Setup,
    nodes: Vec<Node>,
    stdin: Descriptor,
    outputs: [Output; 2],
    /// This process's own descriptors by name, where the job cannot see them.
    own: OwnedFd,
}

/// Hears what the job is, becomes the user, and only then maps the windows of the nodes.
fn prepare(control: &UnixStream) -> Result<Option<Prepared>, JobError> {
    let system = |e: io::Error| JobError::System(format!("the job's worker: {e}"));
    identity::limits();
    // what a terminal sends, and what a write that fails does beside failing
    helper::ignore(&[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTTOU, libc::SIGTTIN]);
    helper::ignore(&[libc::SIGPIPE, libc::SIGXFSZ]);
    let setup = match control::receive::<Order>(control).map_err(system)? {
        Some(Order::Setup(setup)) => *setup,
        _ => return Ok(None),
    };
    let [stdin, stdout, stderr] = control::receive_fds(control).map_err(system)?;
    let turns = if setup.shares_output {
        control::receive_fds(control).map_err(system)?.map(|fd| Some(File::from(fd)))
    } else {
        [None, None]
    };
    let fds = setup.nodes.iter().map(|_| {
        let [memory, bell] = control::receive_fds(control)?;
        Ok((memory, bell, control::receive_fds(control)?))
    });
    let fds: Vec<_> = fds.collect::<io::Result<_>>().map_err(system)?;
    // while the daemon may still open them
    let own = identity::descriptors(&setup.identity, &setup.spec.files)?;
    let stdin = input(stdin);
    let [first, second] = turns;
    let outputs = [Output::new(stdout, first), Output::new(stderr, second)];
    identity::take(&setup.identity, &setup.spec.files)?;
    filter::enter().map_err(|e| JobError::Identity(format!("the filter of system calls: {e}")))?;
    let mut nodes = Vec::new();
    for (n, (memory, bell, bells)) in setup.nodes.iter().zip(fds) {
        let window = Window::map(&memory, n.window).map_err(system)?.with_memory(n.memory);
        nodes.push(Node::new(n.number, window, bell, bells));
    }
    Ok(Some(Prepared { setup, nodes, stdin, outputs, own }))
}

/// Standard input of the job.
pub(crate) fn input(fd: OwnedFd) -> Descriptor {
    let (fd, kind, shared) = match output::own(&fd, false) {
        Some(Own::File) => (fd, Kind::File, false),
        Some(Own::Anew(anew)) => (anew, Kind::Stream, false),
        Some(Own::Socket) => (fd, Kind::Socket, true),
        None => (fd, Kind::Stream, true),
    };
    let about = Description::new(kind, false, shared);
    Descriptor { fd, about: about.into(), close_on_exec: false }
}
