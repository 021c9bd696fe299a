// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the processes of partitions answer. One that is stopped or hangs does not. Requests about the machine say so, and do not wait
//! for it.

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

/// Timeout for the answer of a partition about its state. It takes milliseconds as a rule.
const STATUS: Duration = Duration::from_secs(2);
/// Time until a partition that has not answered is asked again.
const AGAIN: Duration = Duration::from_secs(5);

/// A process that has not answered.
#[derive(Clone, Copy, Debug)]
struct Silence {
    owner: TaskId,
    since: Instant,
    asked: Instant,
}

/// The partitions that have not answered, by name.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<BTreeMap<String, Silence>>);

/// The answer of a partition about its state.
pub(super) enum Heard {
    /// Its nodes are switched off.
    Off,
    /// It does not answer, for this reason.
    Silent(String),
    Status(Status),
}

impl Heard {
    /// The states of the nodes of a partition that has so many.
    pub(super) fn nodes(self, nodes: u32) -> Vec<NodeState> {
        match self {
            Self::Status(status) => status.nodes,
            Self::Off => vec![NodeState::Off; nodes as usize],
            Self::Silent(_) => vec![NodeState::Lost; nodes as usize],
        }
    }
}

/// Connects to a socket. If so many connections wait there that no other fits, this takes `limit`.
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

/// The reason why a stopped process does not answer; `None` if it is not stopped, or has ended.
pub(super) fn why_stopped(owner: TaskId) -> Option<String> {
    let stat = task::stat(owner.tid).ok()?;
    (stat.start_ticks == owner.start_ticks && stat.is_stopped()).then(|| {
        format!("the process that owns its nodes is stopped; `kill -CONT {}` lets it go on", owner.tid)
    })
}

impl Silent {
    /// The process of this partition, if it has not answered.
    fn find(&self, name: &str, owner: TaskId) -> Option<Silence> {
        lock(&self.0).get(name).copied().filter(|silence| silence.owner == owner)
    }

    fn note(&self, name: &str, owner: TaskId) -> Silence {
        let now = Instant::now();
        let since = self.find(name, owner).map_or(now, |before| before.since);
        let silence = Silence { owner, since, asked: now };
        lock(&self.0).insert(name.to_owned(), silence);
        silence
    }

    fn forget(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

impl Silence {
    fn why(&self) -> String {
        format!(
            "the process that owns its nodes (pid {}) has not answered for {} s; `colony partition free` ends it",
            self.owner.tid,
            self.since.elapsed().as_secs() + STATUS.as_secs(),
        )
    }
}

impl Control {
    /// Asks the process of a partition for its state.
    pub(super) fn hear(&self, row: &Row) -> Heard {
        let Some(owner) = row.owner.filter(|owner| owner.lives()) else { return Heard::Off };
        if let Some(why) = self.why_silent(row) {
            return Heard::Silent(why);
        }
        let asked = connect_within(&self.socket(&row.name), STATUS)
            .and_then(|stream| ask(&mut Lines::new(stream), &Ask::Status));
        match asked {
            Ok(Answer::Status(status)) => {
                self.silent.forget(&row.name);
                Heard::Status(status)
            }
            Err(e) if is_timeout(&e) => Heard::Silent(self.silent.note(&row.name, owner).why()),
            // it is about to begin, or has just ended
            _ => Heard::Off,
        }
    }

    /// The reason why the process of a partition would not answer now, as far as it is known without asking.
    pub(super) fn why_silent(&self, row: &Row) -> Option<String> {
        let owner = row.owner?;
        why_stopped(owner).or_else(|| {
            let silence = self.silent.find(&row.name, owner)?;
            (silence.asked.elapsed() < AGAIN).then(|| silence.why())
        })
    }

    /// Refuses a request that the process of a partition would have to carry out if it does not answer.
    pub(super) fn check_answers(&self, name: &str) -> Result<(), ControlError> {
        match self.why_silent(&self.row(name)?) {
            Some(why) => Err(ControlError::Service { name: name.to_owned(), source: io::Error::other(why) }),
            None => Ok(()),
        }
    }
}
