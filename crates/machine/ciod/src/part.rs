// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a job on one I/O node: the compute nodes of a pset, and the worker that serves them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::config::{Config, Streams};
use crate::control::{self, Order, Setup};
use crate::merge::Share;
use crate::node::NodeLink;
use crate::{IoLink, Place, helper};

/// Timeout for a worker to complete a report that it has begun, and to end after its last one.
const SENTENCE: Duration = Duration::from_secs(10);

/// Timeout for the end of a killed worker. One that takes longer waits in the kernel, maybe for ever: for a file
/// server that does not answer, for example.
pub(crate) const REAP: Duration = Duration::from_secs(5);

/// Between two looks at a worker that was killed: at first, and at most.
const REAP_LOOK: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(5)];

/// A node of a part.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Its place among those of the job.
    pub(crate) at: usize,
    /// The ranks that run on it.
    pub(crate) ranks: Range<u32>,
}

/// Divides a job among the I/O nodes that it needs: the seats of each pset that has a rank. A node holds `held` of the
/// `size` ranks.
pub(crate) fn seats(places: &[Place], held: u32, size: u32) -> BTreeMap<u32, Vec<Seat>> {
    let mut psets = BTreeMap::<u32, Vec<Seat>>::new();
    for (at, place) in places.iter().enumerate() {
        let first = u32::try_from(at).unwrap_or(u32::MAX).saturating_mul(held).min(size);
        let seat = Seat { at, ranks: first..first.saturating_add(held).min(size) };
        psets.entry(place.io_node).or_default().push(seat);
    }
    psets.retain(|_, seats| seats.iter().any(|seat| !seat.ranks.is_empty()));
    psets
}

/// Files whose locks order the output of several workers, one for standard output and one for standard error.
pub(crate) struct Turns([File; 2]);

impl Turns {
    pub(crate) fn new() -> io::Result<Self> {
        let make = || memfd_create("colony-turn", MFdFlags::MFD_CLOEXEC).map(File::from);
        Ok(Self([make()?, make()?]))
    }

    /// The same files, opened for one more worker: a lock belongs to an opened file.
    fn open(&self) -> io::Result<[File; 2]> {
        use std::os::fd::AsRawFd as _;
        let open = |file: &File| {
            File::options().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        };
        Ok([open(&self.0[0])?, open(&self.0[1])?])
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) pset: u32,
    /// Process id of its worker.
    pub(crate) pid: u32,
    pub(crate) control: UnixStream,
    pub(crate) nodes: Vec<NodeLink>,
    pub(crate) share: Share,
    /// This process's end of the way between a relay and its Linux I/O node.
    line: Option<UnixStream>,
}

impl Part {
    /// Starts a worker, or a relay that stands for the one in a Linux I/O node, and tells it its part of the job.
    pub(crate) fn start(
        config: &Config,
        (pset, nodes): (u32, Vec<NodeLink>),
        setup: Setup,
        streams: &Streams,
        turns: Option<&Turns>,
        io_node: Option<&IoLink>,
    ) -> io::Result<(Self, Child)> {
        let share = setup.nodes.iter().map(|n| (n.number, n.ranks.clone())).collect();
        let has_input = setup.nodes.iter().any(|n| n.ranks.contains(&0));
        let arguments = if io_node.is_some() { &config.relay_args } else { &config.worker_args };
        let (control, mut child) = helper::start(&config.worker, arguments)?;
        let mut part = Self { pset, pid: child.id(), control, nodes, share, line: None };
        let told = part.tell(setup, streams, has_input, turns);
        if let Err(e) = told.and_then(|()| io_node.map_or(Ok(()), |link| part.connect(link))) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
        Ok((part, child))
    }

    fn tell(
        &self,
        setup: Setup,
        streams: &Streams,
        has_input: bool,
        turns: Option<&Turns>,
    ) -> io::Result<()> {
        self.control.set_read_timeout(Some(SENTENCE))?;
        control::send(&self.control, &Order::Setup(Box::new(setup)))?;
        // input is read by rank 0 only
        let none: OwnedFd;
        let stdin = if has_input {
            streams.stdin.as_fd()
        } else {
            none = File::open("/dev/null")?.into();
            none.as_fd()
        };
        control::send_fds(&self.control, &[stdin, streams.stdout.as_fd(), streams.stderr.as_fd()])?;
        if let Some(turns) = turns {
            let [stdout, stderr] = turns.open()?;
            control::send_fds(&self.control, &[stdout.as_fd(), stderr.as_fd()])?;
        }
        for node in &self.nodes {
            control::send_fds(&self.control, &[node.memory(), node.bell_to_daemon()])?;
            control::send_fds(&self.control, &node.bells_to_node())?;
        }
        Ok(())
    }

    /// Gives a relay its way to the I/O node.
    fn connect(&mut self, link: &IoLink) -> io::Result<()> {
        let (theirs, ours) = link.open()?;
        self.line = Some(ours);
        control::send_fds(&self.control, &[theirs.as_fd()])
    }

    /// Ends the worker in a Linux I/O node after its relay: a relay that waits in the kernel keeps its descriptors.
    pub(crate) fn hang_up(&self) {
        let _ = self.line.as_ref().map(|line| line.shutdown(Shutdown::Both));
    }

    /// Returns `true` if one of these ranks is its own; all are if none are named.
    pub(crate) fn has_any(&self, ranks: Option<&[u32]>) -> bool {
        let own = |rank: &u32| self.share.iter().any(|(_, ranks)| ranks.contains(rank));
        ranks.is_none_or(|all| all.iter().any(own))
    }

    /// Waits until the worker has closed its end, but not for ever.
    pub(crate) fn gone(&self) {
        let at = Instant::now() + SENTENCE;
        let mut fds = [PollFd::new(self.control.as_fd(), PollFlags::empty())];
        while poll(&mut fds, timeout(Some(at))).is_err() && !passed(at) {}
    }
}

pub(crate) fn passed(at: Instant) -> bool {
    at <= Instant::now()
}

/// Until that time, rounded up: an early look would find nothing.
pub(crate) fn timeout(at: Option<Instant>) -> PollTimeout {
    let Some(at) = at else { return PollTimeout::NONE };
    match at.saturating_duration_since(Instant::now()) {
        Duration::ZERO => PollTimeout::ZERO,
        left => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
    }
}

/// The end of a worker.
pub(crate) enum Ended {
    Status(ExitStatus),
    /// It was killed, and is still there.
    Stuck,
    /// The system does not say.
    Unknown(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::Stuck => write!(
                f,
                "killed, and still there after {} s: it waits in the kernel, for a file server that does not answer \
                 for example",
                REAP.as_secs()
            ),
            Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// Kills a worker and waits for its end; one that does not end in time is waited for in the background.
pub(crate) fn end(mut child: Child) -> Ended {
    let _ = child.kill();
    let at = Instant::now() + REAP;
    let [mut pause, longest] = REAP_LOOK;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ended::Status(status),
            Ok(None) if passed(at) => break,
            Ok(None) => std::thread::sleep(pause),
            Err(e) => return Ended::Unknown(e.to_string()),
        }
        pause = longest.min(pause * 2);
    }
    // without a thread, it stays a zombie until this process ends
    let _ = std::thread::Builder::new().name("reaper".into()).spawn(move || child.wait());
    Ended::Stuck
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobSpec;

    #[test]
    fn a_job_is_divided_by_pset_and_needs_only_those_with_ranks() {
        let spec = JobSpec { pset: Some(2), ..JobSpec::new("/bin/a") };
        let mut places = Place::row(&spec, &[10, 11, 12, 13, 14]);
        // psets need not be consecutive nodes
        places[1].io_node = 1;
        places[2].io_node = 0;
        let ranks = |held, size| {
            let all = seats(&places, held, size).into_iter();
            let ranks = |seats: Vec<Seat>| seats.into_iter().map(|s| (s.at, s.ranks)).collect::<Vec<_>>();
            all.map(|(pset, seats)| (pset, ranks(seats))).collect::<Vec<_>>()
        };
        assert_eq!(ranks(1, 3), [(0, vec![(0, 0..1), (2, 2..3)]), (1, vec![(1, 1..2), (3, 3..3)])]);
        let all = [(0, vec![(0, 0..2), (2, 4..6)]), (1, vec![(1, 2..4), (3, 6..8)]), (2, vec![(4, 8..9)])];
        assert_eq!(ranks(2, 9), all);
    }
}
