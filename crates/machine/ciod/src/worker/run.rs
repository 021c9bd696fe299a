// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker's loop: takes requests, makes calls, answers.
//!
//! A channel is *hot* while it is looked at in every round, and *cold* when it has announced sleep and is rung for.
//! A round gives each hot channel a few requests, so that none waits for another's flood.

mod ends;
mod events;
mod requests;

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use colony_fship::layout::CHANNELS;
use colony_fship::ring::SLOTS;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::Prepared;
use super::calls::World;
use super::files;
use super::host::Host;
use super::node::{Node, Stage};
use super::output::Output;
use super::process::{Descriptor, Process};
use super::start;
use super::waits::Queue;
use crate::JobError;
use crate::control::{self, Report, Setup};

/// Requests that a channel has done in one round.
const BURST: usize = 4;
/// Period at which a busy worker looks for bells and descriptors.
const LOOK: Duration = Duration::from_micros(20);
/// Period at which a node is looked at whose bell was never heard.
const UNHEARD: Duration = Duration::from_millis(5);

/// Data of an event of `epoll`: kind in the upper half, number in the lower.
mod token {
    pub(super) const CONTROL: u64 = 0;
    pub(super) const NODE: u64 = 1 << 60;
    pub(super) const OUTPUT: u64 = 2 << 60;
    pub(super) const WAITING: u64 = 3 << 60;
    pub(super) const KIND: u64 = 15 << 60;
}

/// A process of the job, and where it runs.
struct Placed {
    process: Process,
    node: usize,
    channel: usize,
    /// It was told to end: the node has until then.
    deadline: Option<Instant>,
}

struct Worker {
    control: UnixStream,
    setup: Setup,
    epoll: Epoll,
    nodes: Vec<Node>,
    processes: Vec<Option<Placed>>,
    /// Processes whose programs are loaded and wait for those of the job's other workers.
    loaded: Option<Vec<Placed>>,
    world: World,
    stdin: Descriptor,
    queue: Queue,
    job: start::Job,
    /// Outputs that `epoll` listens to.
    listened: [bool; 2],
    spin: Option<Duration>,
    grace: Duration,
    /// Deadline for nodes to be ready; later, for the job to end.
    deadline: Option<Instant>,
    started: bool,
    /// Signals, with their ranks, that came before the start: a node that is given its program would lose them.
    early: Vec<(u32, Option<Vec<u32>>)>,
    error: Option<JobError>,
    now: Instant,
}

/// Runs the job to its end.
pub(super) fn run(control: UnixStream, prepared: Prepared) -> ExitCode {
    let result = match Worker::new(control.try_clone(), prepared) {
        Ok(mut worker) => worker.run(),
        Err(error) => Ok(Some(error)),
    };
    // without a supervisor there is nobody to tell, and nothing to do
    match result.and_then(|error| control::send(&control, &Report::Done(error))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Worker {
    fn new(control: io::Result<UnixStream>, prepared: Prepared) -> Result<Self, JobError> {
        let system = |e: io::Error| JobError::System(format!("the job's worker: {e}"));
        let Prepared { setup, nodes, stdin, outputs, own } = prepared;
        let control = control.map_err(system)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| system(e.into()))?;
        let listen = |fd: std::os::fd::BorrowedFd<'_>, token| {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token)).map_err(|e| system(e.into()))
        };
        listen(control.as_fd(), token::CONTROL)?;
        for (n, node) in nodes.iter().enumerate() {
            listen(node.bell.as_fd(), token::NODE | n as u64)?;
        }
        let smallest = setup.nodes.iter().map(|n| n.memory).min().unwrap_or(0);
        let job = start::job(&setup, smallest / u64::from(setup.spec.mode.processes()))?;
        // in the folder of the job, with its rights
        let outputs = files::outputs(&setup.spec, outputs)?;
        let has_input = setup.nodes.iter().any(|node| node.ranks.contains(&0));
        let file = if has_input { files::input(&setup.spec)? } else { None };
        let stdin = file.unwrap_or(stdin);
        let now = Instant::now();
        Ok(Self {
            control,
            epoll,
            nodes,
            processes: Vec::new(),
            loaded: None,
            world: World::new(
                Host::Real,
                outputs,
                Some(own),
                setup.spec.labels,
                (setup.identity.uid, setup.identity.gid),
                setup.nodes.iter().map(|n| n.memory).fold(0, u64::saturating_add),
            ),
            stdin,
            queue: Queue::default(),
            job,
            listened: [false; 2],
            spin: setup.spin_ns.map(Duration::from_nanos),
            grace: Duration::from_millis(setup.grace_ms),
            deadline: now.checked_add(Duration::from_millis(setup.ready_ms)),
            started: false,
            early: Vec::new(),
            error: None,
            now,
            setup,
        })
    }

    /// The job's end: an error of the job, or of the socket to the supervisor.
    fn run(&mut self) -> io::Result<Option<JobError>> {
        for n in 0..self.nodes.len() {
            for c in 0..CHANNELS {
                self.nodes[n].wake(c, self.now);
            }
        }
        let mut looked = self.now;
        loop {
            self.now = Instant::now();
            let busy = self.round()?;
            for id in self.queue.due(self.now) {
                self.again(id)?;
            }
            let hot = busy || self.cool();
            if hot && self.now.saturating_duration_since(looked) < LOOK {
                continue;
            }
            self.deadlines()?;
            if self.finished() {
                break;
            }
            self.poll_events(if hot { Some(self.now) } else { self.wake_at() })?;
            looked = self.now;
        }
        self.drain();
        let lost = self.world.lost_output.take().map(|(rank, why)| JobError::Output { rank, why });
        let unwritten = |output: &Output| {
            Some(JobError::OutputLost { why: output.describe_error(output.unreported_error()?) })
        };
        let lost = lost.or_else(|| self.world.outputs.iter().find_map(unwritten));
        Ok(self.error.take().or(lost))
    }

    /// All processes have ended, and their nodes are ready for the next job or lost.
    fn finished(&self) -> bool {
        let over = |n: &Node| matches!(n.stage, Stage::Idle | Stage::Lost);
        if self.error.is_some() && !self.started {
            return true;
        }
        self.nodes.iter().all(over)
    }

    /// A few requests of each hot channel; whether there were any.
    fn round(&mut self) -> io::Result<bool> {
        let mut any = false;
        for n in 0..self.nodes.len() {
            for c in 0..CHANNELS {
                if !self.nodes[n].channels[c].hot {
                    continue;
                }
                if c == 0 && self.nodes[n].stage == Stage::Booting && self.nodes[n].asks(0) {
                    self.asked(n)?;
                }
                match self.nodes[n].stage {
                    Stage::Running => any |= self.serve(n, c, BURST)?,
                    Stage::Ended => self.left_over(n, c)?,
                    Stage::Booting => {}
                    Stage::Ready | Stage::Idle | Stage::Lost => self.nodes[n].channels[c].hot = false,
                }
            }
        }
        Ok(any)
    }

    /// At most so many requests of a channel; whether there were any.
    fn serve(&mut self, n: usize, c: usize, most: usize) -> io::Result<bool> {
        let mut some = false;
        for _ in 0..most {
            // what is there now is what is taken below: the node may ask for more at any time
            if !self.nodes[n].asks(c) {
                break;
            }
            if c == 0 && self.nodes[n].wants_job() {
                // right only after the end of all processes, which the other channel may have told before
                for other in 1..CHANNELS {
                    self.serve(n, other, SLOTS)?;
                }
            }
            if self.nodes[n].stage != Stage::Running {
                break;
            }
            match self.nodes[n].take(c) {
                Ok(Some(request)) => {
                    if !some {
                        self.nodes[n].channels[c].found();
                        some = true;
                    }
                    self.request(n, c, request)?;
                }
                Ok(None) => break,
                Err(rule) => self.misbehaved(n, rule)?,
            }
        }
        if some {
            self.now = Instant::now();
            self.nodes[n].channels[c].active = self.now;
        }
        Ok(some)
    }

    /// Lets channels that ask for nothing go cold; whether any stays hot.
    fn cool(&mut self) -> bool {
        let mut hot = false;
        for node in &mut self.nodes {
            for c in 0..CHANNELS {
                let channel = &mut node.channels[c];
                if !channel.hot {
                    continue;
                }
                let spin = self.spin.map(|s| channel.spin_time(s));
                let tired =
                    spin.is_some_and(|spin| self.now.saturating_duration_since(channel.active) >= spin);
                hot |= !(tired && node.may_sleep(c));
            }
        }
        hot
    }
}
