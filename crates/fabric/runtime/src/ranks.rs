// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ranks of running jobs on this host, and requests to them by signals.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::job::requests::{self, REQUESTS, ToLauncher};
use crate::transport::sockets::Secret;
use crate::transport::sockets::entry::{LAUNCHER, LAUNCHER_PROCESS, RANK, SECRET};

/// A process that a launcher has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rank {
    /// The process id of the launcher, or of the process that started the rank for it.
    pub launcher: i32,
    /// The rank's number.
    pub rank: u32,
    /// The rank's process id.
    pub pid: i32,
    /// The file name of its program.
    pub program: String,
}

/// A request to the PEs of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// All objects migrate to other PEs, and none come.
    Evacuate,
    /// Objects may come again.
    Readmit,
}

/// A request that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No such rank runs on this host.
    #[error(
        "no rank {0} of a job of this user runs on this host; `colony runtime ranks` lists those that do"
    )]
    None(u32),
    /// Several jobs have such a rank.
    #[error(
        "several jobs have a rank {rank}; give one by --job, the process id of its launcher: {launchers}"
    )]
    Several {
        /// The rank.
        rank: u32,
        /// The process ids of the launchers.
        launchers: String,
    },
    /// The process does not handle the request.
    #[error(
        "rank {rank} (process {pid}) does not handle {signal}, which would kill it: it has not yet begun, or its program \
         does not call colony_runtime::main"
    )]
    NotHandled {
        /// The rank.
        rank: u32,
        /// Its process.
        pid: i32,
        /// The signal.
        signal: &'static str,
    },
    /// No job runs here, or none of that launcher.
    #[error("no job of this user has been started on this host{0}; `colony launch` starts jobs")]
    NoJob(String),
    /// Several jobs run here.
    #[error("several jobs run on this host; give one by --job, the process id of its launcher: {0}")]
    SeveralJobs(String),
    /// The launcher refuses the request.
    #[error("the job of launcher {launcher} is not resized: {why}")]
    Refused {
        /// The process id of the launcher.
        launcher: i32,
        /// Its reason.
        why: String,
    },
    /// The signal cannot be sent.
    #[error("rank {rank} (process {pid}): {reason}")]
    System {
        /// The rank.
        rank: u32,
        /// Its process.
        pid: i32,
        /// The system's answer.
        reason: String,
    },
}

impl Request {
    fn signal(self) -> Signal {
        match self {
            Self::Evacuate => Signal::SIGUSR1,
            Self::Readmit => Signal::SIGUSR2,
        }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of job {} (process {}, {})", self.rank, self.launcher, self.pid, self.program)
    }
}

/// The ranks of this user's jobs on this host, by launcher and rank. Root sees the ranks of all users.
#[must_use]
pub fn ranks() -> Vec<Rank> {
    let user = nix::unistd::geteuid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ranks: Vec<Rank> = processes.filter_map(|entry| rank_of(&entry.path(), user)).collect();
    ranks.sort_by_key(|rank| (rank.launcher, rank.rank));
    ranks
}

/// The environment of a process.
struct Environment(Vec<u8>);

impl Environment {
    /// Of a process of this user; of any, for root.
    fn read(folder: &Path, user: u32) -> Option<Self> {
        if user != 0 && std::fs::metadata(folder).ok()?.uid() != user {
            return None;
        }
        std::fs::read(folder.join("environ")).ok().map(Self)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let mut all = self.0.split(|byte| *byte == 0);
        let value = all.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()
    }

    /// The process id of the launcher: an agent may have started the rank for it.
    fn launcher(&self, parent: i32) -> i32 {
        self.variable(LAUNCHER_PROCESS).and_then(|pid| pid.parse().ok()).unwrap_or(parent)
    }

    /// Returns `true` if the process `parent` has the variable too: processes that a rank has started have its environment.
    fn is_inherited(&self, name: &str, parent: i32) -> bool {
        let parent = std::fs::read(format!("/proc/{parent}/environ")).map(Self);
        parent.is_ok_and(|parent| parent.variable(name) == self.variable(name))
    }
}

/// The rank that a process is, if it is one.
fn rank_of(folder: &Path, user: u32) -> Option<Rank> {
    let pid: i32 = folder.file_name()?.to_str()?.parse().ok()?;
    let environment = Environment::read(folder, user)?;
    environment.variable(LAUNCHER)?;
    let rank = environment.variable(RANK)?.parse().ok()?;
    let status = Status::read(folder)?;
    if environment.is_inherited(LAUNCHER, status.parent) {
        return None;
    }
    let program = std::fs::read_link(folder.join("exe")).ok()?;
    let program = program.file_name()?.to_string_lossy().into_owned();
    Some(Rank { launcher: environment.launcher(status.parent), rank, pid, program })
}

/// Some fields of a process's status.
struct Status {
    parent: i32,
    /// The signals that the process handles.
    handled: u64,
}

impl Status {
    fn read(folder: &Path) -> Option<Self> {
        // the name of a process may be any bytes
        let text = String::from_utf8_lossy(&std::fs::read(folder.join("status")).ok()?).into_owned();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let parent = field("PPid:")?.parse().ok()?;
        Some(Self { parent, handled: u64::from_str_radix(field("SigCgt:")?, 16).ok()? })
    }
}

/// Sends a request to one rank of the job that `launcher` has started; of the only job with such a rank, without.
///
/// # Errors
/// [`RequestError`].
pub fn request(request: Request, rank: u32, launcher: Option<i32>) -> Result<Rank, RequestError> {
    let mut found: Vec<Rank> = ranks()
        .into_iter()
        .filter(|one| one.rank == rank && launcher.is_none_or(|launcher| one.launcher == launcher))
        .collect();
    if found.len() > 1 {
        let launchers = found.iter().map(|one| one.launcher.to_string()).collect::<Vec<_>>().join(", ");
        return Err(RequestError::Several { rank, launchers });
    }
    let found = found.pop().ok_or(RequestError::None(rank))?;
    let (pid, signal) = (found.pid, request.signal());
    let status = Status::read(Path::new(&format!("/proc/{pid}")));
    if status.is_none_or(|status| status.handled >> (signal as i32 - 1) & 1 == 0) {
        return Err(RequestError::NotHandled { rank, pid, signal: signal.as_str() });
    }
    kill(Pid::from_raw(pid), signal).map_err(|error| RequestError::System {
        rank,
        pid,
        reason: error.desc().to_owned(),
    })?;
    Ok(found)
}

/// A job that is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resized {
    /// The process id of its launcher.
    pub launcher: i32,
    /// Its ranks.
    pub from: u32,
    /// Its ranks after its next checkpoint.
    pub to: u32,
}

/// A launcher on this host.
struct Launcher {
    pid: i32,
    address: String,
    secret: Secret,
}

/// The launcher that has started a process, if one has.
fn launcher_of(folder: &Path, user: u32) -> Option<Launcher> {
    let environment = Environment::read(folder, user)?;
    let address = environment.variable(REQUESTS)?.to_owned();
    let secret = Secret::from_hex(environment.variable(SECRET)?)?;
    let parent = Status::read(folder)?.parent;
    let pid = environment.launcher(parent);
    (!environment.is_inherited(REQUESTS, parent)).then_some(Launcher { pid, address, secret })
}

/// Asks the launcher of a job on this host to go on with so many ranks more, or fewer; the only launcher, without one.
///
/// # Errors
/// [`RequestError`].
pub fn resize(by: i64, launcher: Option<i32>) -> Result<Resized, RequestError> {
    let user = nix::unistd::geteuid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Launcher> = processes.filter_map(|entry| launcher_of(&entry.path(), user)).collect();
    found.retain(|one| launcher.is_none_or(|launcher| one.pid == launcher));
    found.sort_by_key(|one| one.pid);
    found.dedup_by_key(|one| one.pid);
    if found.len() > 1 {
        let all: Vec<String> = found.iter().map(|one| one.pid.to_string()).collect();
        return Err(RequestError::SeveralJobs(all.join(", ")));
    }
    let whose = || launcher.map(|pid| format!(" by process {pid}")).unwrap_or_default();
    let Launcher { pid, address, secret } = found.pop().ok_or_else(|| RequestError::NoJob(whose()))?;
    let refused = |why: String| RequestError::Refused { launcher: pid, why };
    let answer = requests::send(&address, &secret, ToLauncher::Resize(by));
    let (from, to) = answer.map_err(|error| refused(error.to_string()))?.map_err(refused)?;
    Ok(Resized { launcher: pid, from, to })
}
