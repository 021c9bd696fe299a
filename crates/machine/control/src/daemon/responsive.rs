// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions whose process is stopped or hangs. Requests about the machine report such a partition and do not wait for its process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use colony_node::task::{self, TaskId};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt::SendTimeout,
};
use nix::sys::time::TimeVal;

use super::control::{Control, lock};
use crate::ControlError;
use crate::api::NodeState;
use crate::service::protocol::{Answer, Ask, Lines, Status, ask};
use crate::store::Row;

/// Timeout for the status of a partition. Its process answers within milliseconds as a rule.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// A process that has not answered is asked again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The process of a partition that has not answered, when that was first noticed, and when it was last asked.
#[derive(Clone, Copy, Debug)]
struct Unresponsive {
    owner: TaskId,
    since: Instant,
    asked: Instant,
}

/// The partitions whose processes have not answered, by name.
#[derive(Debug, Default)]
pub(super) struct UnresponsivePartitions(Mutex<BTreeMap<String, Unresponsive>>);

/// The answer of a partition about its state.
pub(super) enum StatusAnswer {
    /// Its nodes are switched off.
    Off,
    /// Its process does not answer; the text says why.
    Unresponsive(String),
    Status(Status),
}

impl StatusAnswer {
    /// The states of the nodes of a partition that has so many.
    pub(super) fn nodes(self, nodes: u32) -> Vec<NodeState> {
        match self {
            Self::Status(status) => status.nodes,
            Self::Off => vec![NodeState::Off; nodes as usize],
            Self::Unresponsive(_) => vec![NodeState::Lost; nodes as usize],
        }
    }
}

/// Connects to a socket; `limit` is the timeout of this connect, of each read and of each write. Without it, `connect` waits as long as the
/// queue of the socket is full.
pub(super) fn connect_within(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    setsockopt(&fd, SendTimeout, &TimeVal::new(seconds, i64::from(limit.subsec_micros())))?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(fd);
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

/// Returns `true` if the other end has not answered in time.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns why a process does not answer if it is stopped (`SIGSTOP`), and `None` if it runs or has ended.
pub(super) fn stopped_reason(owner: TaskId) -> Option<String> {
    let stat = task::stat(owner.tid).ok()?;
    (stat.start_ticks == owner.start_ticks && stat.is_stopped()).then(|| {
        format!("the process that owns its nodes is stopped; `kill -CONT {}` lets it go on", owner.tid)
    })
}

impl UnresponsivePartitions {
    /// Returns the entry of a partition if it is about this process.
    fn find(&self, name: &str, owner: TaskId) -> Option<Unresponsive> {
        lock(&self.0).get(name).copied().filter(|unresponsive| unresponsive.owner == owner)
    }

    fn add(&self, name: &str, owner: TaskId) -> Unresponsive {
        let now = Instant::now();
        let since = self.find(name, owner).map_or(now, |before| before.since);
        let unresponsive = Unresponsive { owner, since, asked: now };
        lock(&self.0).insert(name.to_owned(), unresponsive);
        unresponsive
    }

    fn remove(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

impl Unresponsive {
    fn reason(&self) -> String {
        format!(
            "the process that owns its nodes (pid {}) has not answered for {} s; `colony partition free` ends it",
            self.owner.tid,
            self.since.elapsed().as_secs() + STATUS_TIMEOUT.as_secs(),
        )
    }
}

impl Control {
    /// Asks the process of a partition for its status, unless it is known not to answer.
    pub(super) fn query_status(&self, row: &Row) -> StatusAnswer {
        let Some(owner) = row.owner.filter(|owner| owner.lives()) else { return StatusAnswer::Off };
        if let Some(why) = self.unresponsive_reason(row) {
            return StatusAnswer::Unresponsive(why);
        }
        let asked = connect_within(&self.socket(&row.name), STATUS_TIMEOUT)
            .and_then(|stream| ask(&mut Lines::new(stream), &Ask::Status));
        match asked {
            Ok(Answer::Status(status)) => {
                self.unresponsive.remove(&row.name);
                StatusAnswer::Status(status)
            }
            Err(e) if is_timeout(&e) => {
                StatusAnswer::Unresponsive(self.unresponsive.add(&row.name, owner).reason())
            }
            // it is about to begin, or has just ended
            _ => StatusAnswer::Off,
        }
    }

    /// Returns why the process of a partition would not answer now, as far as this is known without asking it.
    pub(super) fn unresponsive_reason(&self, row: &Row) -> Option<String> {
        let owner = row.owner?;
        stopped_reason(owner).or_else(|| {
            let unresponsive = self.unresponsive.find(&row.name, owner)?;
            (unresponsive.asked.elapsed() < RETRY_INTERVAL).then(|| unresponsive.reason())
        })
    }

    /// Refuses a request that the process of a partition has to carry out if that process does not answer.
    pub(super) fn check_responsive(&self, name: &str) -> Result<(), ControlError> {
        match self.unresponsive_reason(&self.row(name)?) {
            Some(why) => Err(ControlError::Service { name: name.to_owned(), source: io::Error::other(why) }),
            None => Ok(()),
        }
    }
}
