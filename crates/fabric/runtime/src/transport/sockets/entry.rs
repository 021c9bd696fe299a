// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rank's entry into its job: it greets the launcher, gets the roster, and connects to every other rank.
//!
//! If the launcher replaces ranks that die, a rank enters the job once in every *generation*: when a rank has died, the
//! launcher closes its connections to all ranks, and each survivor and each replacement greets it anew.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::admission::Admission;
use super::handshake::{Connecting, HANDSHAKE};
use super::listener::Listener;
use super::mesh::Mesh;
use super::peer::Peer;
use super::secret::Secret;
use super::stream::{Stream, explain, is_unreachable, read_value};
use crate::place::Place;
use crate::report::report_line;
use crate::transport::TransportError;

/// The variable with the launcher's address.
pub(crate) const LAUNCHER: &str = "COLONY_JOB";
/// The variable with the job's secret.
pub(crate) const SECRET: &str = "COLONY_JOB_SECRET";
/// The variables with this rank, and with the number of ranks.
pub(crate) const RANK: &str = "COLONY_JOB_RANK";
pub(crate) const SIZE: &str = "COLONY_JOB_SIZE";
/// The variable with the name under which other hosts reach this one.
pub(crate) const HOST: &str = "COLONY_JOB_HOST";
/// The variable that is set if the launcher replaces ranks that die.
pub(crate) const RESTARTS: &str = "COLONY_JOB_RESTARTS";

/// The variable with how often this rank had been started before. One that has been replaced cannot come back.
pub(crate) const START: &str = "COLONY_JOB_START";

/// The variable that is set for a rank whose frames go over MPI until a rank dies.
pub(crate) const OVER_MPI: &str = "COLONY_JOB_OVER_MPI";
/// The variable with the launcher's process id, if that is not the rank's parent.
pub(crate) const LAUNCHER_PROCESS: &str = "COLONY_JOB_LAUNCHER";

/// The longest wait for the launcher and for other ranks while a job begins.
const BEGIN: Duration = HANDSHAKE;
/// The longest wait for ranks that run a long entry method while another is replaced.
const REJOIN: Duration = Duration::from_secs(600);
/// A byte to the launcher: the rank lives.
const ALIVE: u8 = 1;
/// A byte to the launcher: the rank and all others have ended the program, so the job is not begun again, and the rank's exit
/// code is the program's.
pub(crate) const DONE: u8 = 2;
/// A byte to the launcher: the rank fails, and has printed the reason.
pub(crate) const TOLD: u8 = 4;
/// A byte from the launcher: the job goes on with another number of ranks, from the next checkpoint on disk.
pub(crate) const LEAVE: u8 = 3;
/// The time from one heartbeat to the next.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(50);
/// The name of the thread that sends them.
pub(crate) const HEARTBEAT_THREAD: &str = "heartbeat";

const JOINING: &str = "joining the job at its launcher";

/// A rank's first message to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) start: u32,
    pub(crate) address: String,
    pub(crate) build: String,
    pub(crate) place: Place,
}

/// The job's ranks in one generation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(crate) generation: u32,
    /// By rank.
    pub(crate) addresses: Vec<String>,
    pub(crate) places: Vec<Place>,
}

/// The launcher's answer to every rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Roster(Roster),
    /// The reason why there is no job.
    Refused(String),
    /// Other ranks have left the job successfully, so it is not continued.
    Over(String),
}

/// Parameters by which a rank enters its job.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) rank: u32,
    start: u32,
    pub(crate) size: u32,
    launcher: String,
    secret: Secret,
    host: String,
    /// The launcher replaces ranks that die.
    pub(crate) restarts: bool,
}

/// The connections of a rank that has entered its job.
pub(crate) struct Joined {
    pub(crate) roster: Roster,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) launcher: Stream,
}

pub(crate) fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> TransportError {
    let doing = doing.into();
    move |e| TransportError::Failed { doing, reason: e.to_string() }
}

fn variable(name: &'static str) -> Result<String, TransportError> {
    std::env::var(name).map_err(|_| {
        TransportError::Environment(format!("{name} is not set; start the program with colony launch"))
    })
}

fn number(name: &'static str) -> Result<u32, TransportError> {
    let text = variable(name)?;
    text.parse().map_err(|_| TransportError::Environment(format!("{name} is `{text:.40}`, not a number")))
}

impl Entry {
    /// Reads the job that the environment describes.
    pub(crate) fn from_environment() -> Result<Self, TransportError> {
        let (rank, size) = (number(RANK)?, number(SIZE)?);
        if rank >= size {
            return Err(TransportError::Environment(format!(
                "{RANK} is {rank}, and the job has {size} ranks"
            )));
        }
        let launcher = variable(LAUNCHER)?;
        let secret = Secret::from_hex(&variable(SECRET)?)
            .ok_or_else(|| TransportError::Environment(format!("{SECRET} is not 64 hexadecimal digits")))?;
        let host = std::env::var(HOST).unwrap_or_else(|_| "127.0.0.1".to_owned());
        let restarts = std::env::var_os(RESTARTS).is_some();
        let start = if std::env::var_os(START).is_some() { number(START)? } else { 0 };
        Ok(Self { rank, start, size, launcher, secret, host, restarts })
    }

    /// Enters the job. If ranks are replaced, tries again when another rank dies meanwhile, and for a minute while the network
    /// to the launcher is cut.
    ///
    /// `by_sockets`: connects to all other ranks. Without, there is no other try.
    ///
    /// # Errors
    /// [`TransportError::Environment`] if this host does not reach the launcher's, with the address and what to check.
    pub(crate) fn join(&self, by_sockets: bool) -> Result<Joined, TransportError> {
        let (began, mut unreached, mut has_warned) = (Instant::now(), None::<Instant>, false);
        loop {
            let launcher = match Connecting::begin(&self.launcher, &self.secret) {
                Ok(launcher) => launcher,
                Err(error) if is_unreachable(&error) => {
                    let text = explain("the launcher", &self.launcher, &error);
                    let since = unreached.get_or_insert_with(Instant::now);
                    if !self.restarts || since.elapsed() >= BEGIN {
                        return Err(TransportError::Environment(format!("{JOINING}: {text}")));
                    }
                    self.warn_once(&mut has_warned, &text);
                    std::thread::sleep(HEARTBEAT);
                    continue;
                }
                Err(error) => return Err(failed(JOINING)(error)),
            };
            unreached = None;
            match self.attempt(launcher, by_sockets, &mut has_warned) {
                Err(TransportError::Died(_)) if by_sockets && began.elapsed() < REJOIN => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                ended => return ended,
            }
        }
    }

    /// Prints that this rank does not reach another process and tries again, the first time.
    fn warn_once(&self, has_warned: &mut bool, text: &str) {
        if !std::mem::replace(has_warned, true) {
            report_line!("warning: rank {} does not reach {text}; it tries again", self.rank);
        }
    }

    /// An error of a connection to another rank or, after the hello, to the launcher.
    fn died_or_failed(&self, doing: &str, error: io::Error) -> TransportError {
        if self.restarts { TransportError::Died(format!("{doing}: {error}")) } else { failed(doing)(error) }
    }

    /// An error of a connection to another rank. On one host, a rank that cannot be reached has ended, which the launcher
    /// reports.
    fn lost_or_failed(&self, error: io::Error) -> TransportError {
        use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
        let has_ended =
            matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof);
        if has_ended && !self.restarts && self.launcher.starts_with("unix:") {
            return TransportError::Lost("another rank has ended".to_owned());
        }
        self.died_or_failed("connecting to the other ranks", error)
    }

    fn attempt(
        &self,
        launcher: Connecting,
        by_sockets: bool,
        has_warned: &mut bool,
    ) -> Result<Joined, TransportError> {
        let listening = "listening for other ranks";
        let listener = self.listen(launcher.stream()).map_err(failed(listening))?;
        let mut admission = Admission::new(listener, self.secret.clone()).map_err(failed(listening))?;
        let hello = Hello {
            rank: self.rank,
            start: self.start,
            address: admission.address(),
            build: crate::build::id(),
            place: Place::here(),
        };
        let mut launcher = launcher
            .finish(&self.secret, &hello, BEGIN)
            .map_err(|error| self.died_or_failed(JOINING, error))?;
        let entered = self.enter(by_sockets.then_some(&mut admission), &mut launcher, has_warned);
        if entered.is_err() {
            // the heartbeats have a handle of their own
            launcher.shutdown();
        }
        entered.map(|(roster, peers)| Joined { roster, peers, launcher })
    }

    /// Listens for the ranks above this one.
    fn listen(&self, launcher: &Stream) -> io::Result<Listener> {
        match launcher {
            Stream::Unix(_) => Listener::unix(),
            Stream::Tcp(_) => Listener::tcp(&self.host, launcher.local_address()),
        }
    }

    /// Gets the launcher's answer, and connects to all other ranks if there is a listener.
    fn enter(
        &self,
        admission: Option<&mut Admission>,
        launcher: &mut Stream,
        has_warned: &mut bool,
    ) -> Result<(Roster, Vec<Option<Peer>>), TransportError> {
        let answer = self.wait_for_answer(launcher).map_err(|e| self.died_or_failed(JOINING, e))?;
        let roster = match answer {
            Answer::Roster(roster) => roster,
            Answer::Refused(why) => return Err(TransportError::Environment(why)),
            Answer::Over(why) => return Err(TransportError::Lost(why)),
        };
        if roster.addresses.len() != self.size as usize {
            let found = roster.addresses.len();
            return Err(TransportError::Environment(format!("{found} addresses of {} ranks", self.size)));
        }
        let Some(admission) = admission else { return Ok((roster, Vec::new())) };
        let launcher = self.restarts.then_some(&*launcher);
        let mesh = Mesh::new(self.rank, &roster.addresses, &self.secret).inspect_err(|error| {
            if self.restarts && error.kind() == ErrorKind::HostUnreachable {
                self.warn_once(has_warned, &error.to_string());
            }
        });
        let peers = mesh
            .and_then(|mesh| mesh.complete(admission, launcher, BEGIN))
            .map_err(|e| self.lost_or_failed(e))?;
        Ok((roster, peers))
    }

    /// Waits for the launcher's answer to the hello, which comes when all ranks have joined.
    fn wait_for_answer(&self, launcher: &mut Stream) -> io::Result<Answer> {
        launcher.set_timeout(Some(BEGIN))?;
        if self.restarts {
            launcher.set_timeout(Some(REJOIN))?;
            beat(launcher.try_clone()?)?;
        }
        read_value(launcher)
    }
}

/// Sends heartbeats to the launcher, from a thread of its own, until the connection ends: entry methods may be long.
fn beat(mut launcher: Stream) -> io::Result<()> {
    let beats = move || {
        loop {
            match launcher.write(&[ALIVE]) {
                Ok(_) => {}
                // the launcher does not read: it is stopped, or busy
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return,
            }
            std::thread::sleep(HEARTBEAT);
        }
    };
    std::thread::Builder::new().name(HEARTBEAT_THREAD.to_owned()).spawn(beats).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_whose_address_is_refused_is_named_with_the_address() {
        let launcher = "tcp:[fe80::1]:9".to_owned();
        let secret = Secret::new().expect("random");
        let host = "127.0.0.1".to_owned();
        let entry = Entry { rank: 1, start: 0, size: 2, launcher, secret, host, restarts: false };
        // a link-local address without an interface: the kernel answers EINVAL, or has no IPv6
        match entry.join(true) {
            Err(TransportError::Environment(text)) => {
                let begin = "joining the job at its launcher: the launcher at tcp:[fe80::1]:9: ";
                assert!(text.starts_with(begin) && text.contains("; check the routes"), "{text}");
            }
            Err(TransportError::Failed { reason, .. }) => {
                let message = "a host without IPv6 has another error";
                assert!(!reason.contains("os error 22"), "{message}: {reason}");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it joins"),
        }
    }
}
