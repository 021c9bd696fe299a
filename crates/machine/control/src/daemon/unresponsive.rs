// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of partitions that are stopped or hang, and sockets with timeouts to ask them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use colony_node::task::{self, TaskId};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt::SendTimeout,
};
use nix::sys::time::TimeVal;

/// Timeout for the status of a partition. Its process answers within milliseconds as a rule.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
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
    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Unresponsive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why this process is not asked again yet, if it has not answered a moment ago.
    pub(super) fn recent_reason(&self, name: &str, owner: TaskId) -> Option<String> {
        let entries = self.entries();
        let entry = entries.get(name).filter(|entry| entry.owner == owner)?;
        (entry.asked.elapsed() < RETRY_INTERVAL).then(|| entry.reason())
    }

    /// Records that a process has not answered, and returns the reason in words.
    pub(super) fn add(&self, name: &str, owner: TaskId) -> String {
        let (mut entries, now) = (self.entries(), Instant::now());
        let before = entries.get(name).filter(|entry| entry.owner == owner);
        let entry = Unresponsive { owner, since: before.map_or(now, |entry| entry.since), asked: now };
        entries.insert(name.to_owned(), entry);
        entry.reason()
    }

    /// Records that the process of a partition has answered.
    pub(super) fn remove(&self, name: &str) {
        self.entries().remove(name);
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
