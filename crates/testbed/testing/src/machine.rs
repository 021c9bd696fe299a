// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests share with other programs on this machine: locks of the machine, and the jobs of Colony that run on it.
//!
//! A lock is a socket with an abstract name (unix(7)), not a file. It is the same one for every user, every `TMPDIR` and every
//! root folder, and no user can own or remove it. The kernel frees it when its process ends.

use std::io::{self, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// The scheduling of this machine's own tasks. A driver of tests holds it while a test program runs that changes or measures it.
pub const SCHEDULING: &str = "scheduling";

/// The CPU of the tests' jobs, for one test at a time: two jobs that are favored at once hold each other up.
pub const JOB_CPU: &str = "job-cpu";

/// The longest wait. A process that holds a lock for longer is stuck, or holds it to block others.
const LONGEST: Duration = Duration::from_secs(3600);

/// The longest time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// The folder where programs of Colony that run as root note what they have changed, in files with names `PID.START.NUMBER.KIND`.
const CHANGES: &str = "/run/colony-undo";

/// Kinds of files about the scheduling of tasks: classes of a job, and spare cores. A daemon without a job has another kind.
const OF_SCHEDULING: [&str; 2] = ["tasks", "spare"];

/// A lock of this machine, until it is dropped.
#[derive(Debug)]
pub struct MachineLock(#[expect(dead_code, reason = "held, not used")] UnixListener);

impl MachineLock {
    /// Takes the lock `name` once it is free. `waiting` is told at the first failed attempt who holds the lock.
    ///
    /// # Errors
    /// The system's error, or [`io::ErrorKind::TimedOut`] if another process has held the lock for an hour.
    pub fn wait(name: &str, waiting: impl FnOnce(&str)) -> io::Result<Self> {
        Self::wait_for(name, LONGEST, waiting)
    }

    fn wait_for(name: &str, longest: Duration, waiting: impl FnOnce(&str)) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(format!("colony-test-lock/{name}"))?;
        let mut waiting = Some(waiting);
        let since = Instant::now();
        loop {
            match UnixListener::bind_addr(&address) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound.map(Self),
            }
            if let Some(waiting) = waiting.take() {
                waiting(&holder(&address));
            }
            if since.elapsed() > longest {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{} has held the lock {name} of this machine for {longest:?}", holder(&address)),
                ));
            }
            wait_for_end(&address);
        }
    }
}

/// Waits until the socket at the address is closed, for [`PAUSE`] at most. Its connections end with it, so a waiter is awake as
/// soon as the next test that wants the lock.
fn wait_for_end(address: &SocketAddr) {
    let waited = UnixStream::connect_addr(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(PAUSE))?;
        stream.read(&mut [0])
    });
    // closed in the meantime, or full of waiters
    if waited.is_err_and(|e| e.kind() != io::ErrorKind::WouldBlock) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The process that listens at the address, in words.
fn holder(address: &SocketAddr) -> String {
    let stream = UnixStream::connect_addr(address);
    match stream.map(|stream| getsockopt(&stream, PeerCredentials)) {
        Ok(Ok(peer)) => format!("process {} of user {}", peer.pid(), peer.uid()),
        _ => "a process that has just ended".to_owned(),
    }
}

/// Processes of Colony that have changed the scheduling of this machine and still run, in order of their numbers. Only root
/// sees them: the list is empty for other users.
#[must_use]
pub fn jobs() -> Vec<i32> {
    jobs_in(Path::new(CHANGES))
}

fn jobs_in(folder: &Path) -> Vec<i32> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let owner = |name: &str| {
        let mut fields = name.split('.');
        OF_SCHEDULING.contains(&name.rsplit('.').next()?).then_some(())?;
        let (pid, start) = (fields.next()?.parse::<i32>().ok()?, fields.next()?.parse::<u64>().ok()?);
        (start_ticks(pid)? == start).then_some(pid)
    };
    let mut jobs: Vec<i32> = names.filter_map(|entry| owner(entry.file_name().to_str()?)).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

/// The start of process `pid` in clock ticks since boot (proc(5), field 22 of `stat`); `None` if it has ended.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then_some(())?;
    fields.nth(18)?.parse().ok()
}

/// Returns `true` if programs of Colony that this user starts have a folder for what they change on the node: root has one, and
/// so has a user with `XDG_RUNTIME_DIR`. Otherwise records that the calling test is skipped.
#[track_caller]
pub fn has_undo_folder() -> bool {
    let has = nix::unistd::geteuid().is_root()
        || std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|d| !d.is_empty());
    if !has {
        crate::skip("XDG_RUNTIME_DIR is not set, and this user is not root");
    }
    has
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock that no other test has.
    fn name(test: &str) -> String {
        format!("{test} {}", std::process::id())
    }

    #[test]
    fn a_lock_is_held_by_one_and_whoever_waits_learns_by_whom() {
        let name = name("one");
        let held = MachineLock::wait(&name, |_| panic!("it is free")).expect("free");
        let mut told = String::new();
        let refused = MachineLock::wait_for(&name, Duration::ZERO, |who| told = who.to_owned());
        assert!(told.starts_with(&format!("process {} of user ", std::process::id())), "{told}");
        let error = refused.expect_err("it is held");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(&told), "{error}");
        drop(held);
        MachineLock::wait(&name, |_| panic!("it is free")).expect("free again");
    }

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_free() {
        let name = name("waiter");
        let held = MachineLock::wait(&name, |_| ()).expect("free");
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let other = scope.spawn(|| {
                MachineLock::wait(&name, move |_| {
                    let _ = sender.send(());
                })
                .is_ok()
            });
            receiver.recv().expect("it waits");
            drop(held);
            assert!(other.join().expect("no panic"));
        });
    }

    #[test]
    fn jobs_are_the_living_owners_of_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let me = i32::try_from(std::process::id()).expect("a process");
        let start = start_ticks(me).expect("it runs");
        for name in [
            format!("{me}.{start}.0.tasks"),
            format!("{me}.{start}.1.spare"),
            format!("{me}.{}.0.tasks", start + 1),
            format!("1.{}.0.daemon", start_ticks(1).expect("the first process")),
            "lock".to_owned(),
            "spare.lock".to_owned(),
        ] {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        assert_eq!(jobs_in(folder.path()), [me]);
        assert!(jobs_in(&folder.path().join("none")).is_empty());
    }
}
