// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting the ranks of a job on sockets, and watching them.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::transport::sockets::stream::{Listener, Stream, read_value, write_value};
use crate::transport::sockets::{Hello, SECRET, Secret, Table};
use crate::transport::{Single, Transport, TransportError};

/// The longest wait for all ranks to join.
const JOIN: Duration = Duration::from_secs(60);
/// The time that ranks have to end by themselves after another has failed.
const GRACE: Duration = Duration::from_secs(2);
/// The time that a failed rank has to end after another rank has lost it.
const FAILING: Duration = Duration::from_secs(10);
/// The most ranks of one job.
const MOST_RANKS: u32 = 4096;

/// A job to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Processes.
    pub ranks: u32,
    /// Hosts, which take turns; this one if there are none. Reached by `ssh`, without a password.
    pub hosts: Vec<String>,
    /// The name under which those hosts reach this one, or those of Slurm.
    pub this_host: Option<String>,
    /// Slurm starts the ranks, as the tasks of one `srun`, on the hosts of the allocation that this process is in.
    pub slurm: bool,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A job that did not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The job cannot be as it was asked for.
    #[error("{0}")]
    Wrong(String),
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// The operation.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
}

fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> LaunchError {
    let doing = doing.into();
    move |source| LaunchError::System { doing, source }
}

/// The ranks' processes. Those that still run when this is dropped are killed.
struct Ranks(Vec<Child>);

impl Ranks {
    /// Kills those that still run. As long as they run, the launcher keeps its connections to them: a rank that loses
    /// the launcher reports that as an error.
    fn kill(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Launch {
    /// The ranks are processes of this one.
    pub(crate) fn is_local(&self) -> bool {
        self.hosts.is_empty() && !self.slurm
    }

    fn listen(&self) -> Result<Listener, LaunchError> {
        let listener = if self.is_local() { Listener::unix() } else { Listener::tcp(&self.reached_as()) };
        listener.map_err(system("listening for the job's ranks"))
    }

    fn start(&self, launcher: &str, secret: &Secret) -> Result<Ranks, LaunchError> {
        let mut ranks = Ranks(Vec::new());
        let parent = nix::unistd::getpid();
        for (rank, mut command) in (0..).zip(self.commands(launcher)?) {
            if self.is_local() {
                command.env(SECRET, secret.to_hex());
                if rank > 0 {
                    command.stdin(Stdio::null());
                }
            }
            // SAFETY: between fork and exec only system calls are made: no memory is allocated, no lock is taken.
            unsafe {
                command.pre_exec(move || {
                    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
                    // the launcher may have ended before the line above
                    if nix::unistd::getppid() != parent {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    Ok(())
                });
            }
            let started = command.get_program().display().to_string();
            let mut child = command.spawn().map_err(system(format!("starting rank {rank}, {started}")))?;
            if let Some(mut input) = child.stdin.take() {
                use io::Write;
                let sent = writeln!(input, "{}", secret.to_hex());
                ranks.0.push(child);
                sent.map_err(system(format!("giving rank {rank} the job's secret")))?;
            } else {
                ranks.0.push(child);
            }
        }
        Ok(ranks)
    }

    /// Starts the job and waits for its end. Returns the exit code of the first rank that failed, 0 if none did.
    ///
    /// # Errors
    /// [`LaunchError`]. No rank is left then.
    pub fn run(&self) -> Result<u8, LaunchError> {
        if self.slurm && !self.hosts.is_empty() {
            return Err(LaunchError::Wrong("Slurm knows the job's hosts: give none".to_owned()));
        }
        if self.ranks == 0 || self.ranks > MOST_RANKS {
            return Err(LaunchError::Wrong(format!(
                "{} ranks are asked for; 1 to {MOST_RANKS} are possible",
                self.ranks
            )));
        }
        let listener = self.listen()?;
        let secret = Secret::new().map_err(system("making the job's secret"))?;
        let mut ranks = self.start(&listener.address(), &secret)?;
        let _controls = match self.gather(&listener, &secret, &mut ranks)? {
            Gathered::All(controls) => controls,
            // a program that uses no other rank may end before all have come
            Gathered::Ended(code) => return Ok(code),
        };
        self.watch(&mut ranks)
    }

    /// Waits until all ranks have said hello, and sends each the addresses of all.
    fn gather(
        &self,
        listener: &Listener,
        secret: &Secret,
        ranks: &mut Ranks,
    ) -> Result<Gathered, LaunchError> {
        let mut hellos: Vec<Option<(Hello, Stream)>> = (0..self.ranks).map(|_| None).collect();
        let began = Instant::now();
        listener.set_nonblocking(true).map_err(system("listening"))?;
        while hellos.iter().any(Option::is_none) {
            if let Some((rank, status)) = first_failure(ranks)? {
                return Ok(Gathered::Ended(self.end(ranks, rank, status)));
            }
            let ended = (0..)
                .zip(&mut ranks.0)
                .filter_map(|(r, c)| Some((r, c.try_wait().ok()??)))
                .collect::<Vec<_>>();
            if ended.len() == ranks.0.len() {
                return Ok(Gathered::Ended(0));
            }
            // none of them may join: then all of them end
            if let Some((rank, _)) = ended.first()
                && hellos.iter().any(Option::is_some)
            {
                ranks.kill();
                return Err(LaunchError::Wrong(format!(
                    "rank {rank} has ended without joining the job: is it a program of colony-runtime?"
                )));
            }
            if began.elapsed() > JOIN {
                ranks.kill();
                return Err(LaunchError::Wrong(
                    "not all ranks have joined the job within a minute".to_owned(),
                ));
            }
            match listener.accept() {
                Ok(stream) => {
                    if let Some((hello, stream)) = hear(stream, secret)
                        && let Some(place) = hellos.get_mut(hello.rank as usize)
                    {
                        *place = Some((hello, stream));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(e) => return Err(system("taking a rank's connection")(e)),
            }
        }
        let mut hellos: Vec<(Hello, Stream)> = hellos.into_iter().flatten().collect();
        let other = hellos.iter().find(|(h, _)| h.build != hellos[0].0.build);
        let table: Table = match other {
            Some((h, _)) => Err(format!("ranks 0 and {} run different builds of the program", h.rank)),
            None => Ok(hellos.iter().map(|(h, _)| h.address.clone()).collect()),
        };
        for (hello, stream) in &mut hellos {
            write_value(stream, &table)
                .map_err(system(format!("telling rank {} the others' addresses", hello.rank)))?;
        }
        if let Err(why) = table {
            return Err(LaunchError::Wrong(why));
        }
        Ok(Gathered::All(hellos.into_iter().map(|(_, stream)| stream).collect()))
    }

    /// Waits for the end of all ranks.
    fn watch(&self, ranks: &mut Ranks) -> Result<u8, LaunchError> {
        let mut lost_since = None;
        loop {
            let mut all = true;
            for child in &mut ranks.0 {
                all &= child.try_wait().map_err(system("waiting for a rank"))?.is_some();
            }
            match first_failure(ranks)? {
                // the rank that failed may still be ending: its code or signal is that of the job
                Some((rank, status)) if status.code() == Some(i32::from(LOST)) => {
                    let since: Instant = *lost_since.get_or_insert_with(Instant::now);
                    if all || since.elapsed() > FAILING {
                        return Ok(self.end(ranks, rank, status));
                    }
                }
                Some((rank, status)) => return Ok(self.end(ranks, rank, status)),
                None if all => return Ok(0),
                None => {}
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A rank has failed: the others get a moment to end by themselves.
    fn end(&self, ranks: &mut Ranks, rank: u32, status: ExitStatus) -> u8 {
        if let Some(signal) = status.signal() {
            eprintln!("error: rank {rank} was killed by signal {signal}; the job ends");
        }
        let began = Instant::now();
        while began.elapsed() < GRACE
            && ranks.0.iter_mut().any(|c| c.try_wait().is_ok_and(|status| status.is_none()))
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        // the code of a rank that failed by itself says more than that of one that lost it
        let mut codes = ranks.0.iter_mut().filter_map(|c| c.try_wait().ok()?).filter_map(|s| s.code());
        let own = codes.find(|&c| c != 0 && c != i32::from(LOST));
        let by_signal = status.signal().map(|s| 128 + s);
        ranks.kill();
        by_signal.or(own).or(status.code()).map_or(1, |code| code as u8)
    }
}

/// The outcome of waiting for all ranks to join.
enum Gathered {
    /// The connections of all.
    All(Vec<Stream>),
    /// The job has ended with this code before all had joined.
    Ended(u8),
}

/// The exit code of a rank that ends because another has failed and has said why.
pub const LOST: u8 = 141;

fn first_failure(ranks: &mut Ranks) -> Result<Option<(u32, ExitStatus)>, LaunchError> {
    let mut lost = None;
    for (rank, child) in (0..).zip(&mut ranks.0) {
        match child.try_wait().map_err(system("waiting for a rank"))? {
            Some(status) if status.code() == Some(i32::from(LOST)) => lost = Some((rank, status)),
            Some(status) if !status.success() => return Ok(Some((rank, status))),
            _ => {}
        }
    }
    Ok(lost)
}

/// Takes a rank's hello, if it knows the secret.
fn hear(mut stream: Stream, secret: &Secret) -> Option<(Hello, Stream)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_timeout(Some(Duration::from_secs(5))).ok()?;
    secret.prove(&mut stream, 1).ok()?;
    let hello = read_value(&mut stream).ok()?;
    Some((hello, stream))
}

/// The transport of this process: sockets if a [launcher](Launch) has started it, MPI or the torus if their launcher
/// has, and otherwise none.
///
/// # Errors
/// [`TransportError`].
pub fn transport_from_environment() -> Result<Box<dyn Transport>, TransportError> {
    if crate::transport::sockets::Sockets::is_launched() {
        return Ok(Box::new(crate::transport::sockets::Sockets::join()?));
    }
    if crate::transport::torus::TorusTransport::is_launched() {
        return Ok(Box::new(crate::transport::torus::TorusTransport::join()?));
    }
    #[cfg(feature = "mpi")]
    if crate::transport::mpi::MpiTransport::is_launched() {
        return Ok(Box::new(crate::transport::mpi::MpiTransport::initialize()?));
    }
    Ok(Box::new(Single))
}
