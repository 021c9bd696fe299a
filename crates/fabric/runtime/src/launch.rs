// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting the ranks of a job on sockets, and watching them.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use colony_node::parent::end_with_parent;
use nix::sys::signal::Signal;

use crate::checkpoint::disk::Folder;
use crate::checkpoint::options::CheckpointOptions;
use crate::job::connections::Connections;
use crate::job::error::system;
use crate::job::hosts::Hosts;
use crate::job::process::Process;
use crate::job::requests::{REQUESTS, Requests};
use crate::job::session::Session;
use crate::job::watch::{End, Job, MOST_RANKS, Rules};
use crate::report::report_line;
use crate::transport::sockets::Secret;
use crate::transport::sockets::admission::Admission;
use crate::transport::sockets::entry::SECRET;
#[cfg(not(feature = "mpi"))]
use crate::transport::sockets::entry::{OVER_MPI, RANK};
use crate::transport::sockets::listener::Listener;
use crate::transport::{Single, Transport, TransportError};

pub use crate::job::error::LaunchError;
pub use crate::job::ranks::{AGAIN, LOST, RESIZED};

/// A job to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Processes.
    pub ranks: u32,
    /// Hosts, which take turns; this one if there are none. Reached by `ssh`, without a password.
    pub hosts: Vec<String>,
    /// Hosts for the ranks of those that are lost. If there are no more, the ranks go to the hosts that are left.
    pub spares: Vec<String>,
    /// The name under which those hosts reach this one, or those of Slurm.
    pub this_host: Option<String>,
    /// Slurm starts the ranks, as the tasks of one `srun`, on the hosts of the allocation that this process is in.
    pub slurm: bool,
    /// `mpirun` starts the ranks. If ranks are replaced, it starts this process's command once for each rank instead: in those
    /// processes, [`run`](Self::run) is an agent that starts the rank, and its replacements.
    pub mpi: bool,
    /// How often ranks that are killed, or that stop responding, are replaced. With 0, the job ends with the first.
    pub restarts: u32,
    /// The silence after which a rank counts as dead, if ranks are replaced. By default 0.5 to 2 s, by the intervals between its
    /// heartbeats, and 5 s for a rank that is stopped. A rank on this host that runs or waits for a CPU is not dead.
    pub timeout: Option<Duration>,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Launch {
    /// A job on this host whose ranks are not replaced.
    #[must_use]
    pub fn new(ranks: u32, program: impl Into<OsString>, arguments: Vec<OsString>) -> Self {
        Self {
            ranks,
            hosts: Vec::new(),
            spares: Vec::new(),
            this_host: None,
            slurm: false,
            mpi: false,
            restarts: 0,
            timeout: None,
            program: program.into(),
            arguments,
        }
    }

    /// The ranks are processes of this one.
    pub(crate) fn is_local(&self) -> bool {
        self.hosts.is_empty() && !self.slurm
    }

    /// Listens for ranks, or for their agents.
    pub(crate) fn listen(&self, is_local: bool, secret: &Secret) -> Result<Admission, LaunchError> {
        let listener = if is_local { Listener::unix() } else { Listener::tcp(&self.reached_as(), None) };
        let admission = listener.and_then(|listener| Admission::new(listener, secret.clone()));
        admission.map_err(system("listening for the job's ranks"))
    }

    /// Starts one rank, which has been started so often before, or all of them by Slurm.
    fn start(
        &self,
        (rank, start, host): (u32, u32, Option<&str>),
        session: &Session,
        secret: &Secret,
    ) -> Result<Child, LaunchError> {
        let mut command = self.command((rank, start), host, session)?;
        // a process of this host by which its user finds the launcher
        command.env(REQUESTS, &session.requests).env(SECRET, secret.to_hex());
        if self.is_local() && rank > 0 {
            command.stdin(Stdio::null());
        }
        end_with_parent(&mut command, Signal::SIGKILL);
        let started = command.get_program().display().to_string();
        let mut child = command.spawn().map_err(system(format!("starting rank {rank}, {started}")))?;
        if let Some(mut input) = child.stdin.take() {
            use std::io::Write;
            // a rank that has ended by now is found by its exit code
            let _ = writeln!(input, "{}", secret.to_hex());
        }
        Ok(child)
    }

    fn check(&self) -> Result<(), LaunchError> {
        let wrong = if self.mpi && (self.slurm || !self.hosts.is_empty()) {
            "mpirun chooses hosts: give no hosts and no Slurm".to_owned()
        } else if self.slurm && !self.hosts.is_empty() {
            "Slurm knows the job's hosts: give none".to_owned()
        } else if self.slurm && self.restarts > 0 {
            "a step of Slurm cannot replace a rank: use no restarts, or start the ranks on hosts by ssh"
                .to_owned()
        } else if !self.spares.is_empty() && (self.hosts.is_empty() || self.restarts == 0) {
            "spare hosts are for ranks on hosts that are replaced: give hosts and restarts, too".to_owned()
        } else if self.ranks == 0 || self.ranks > MOST_RANKS {
            format!("{} ranks are asked for; 1 to {MOST_RANKS} are possible", self.ranks)
        } else {
            return Ok(());
        };
        Err(LaunchError::Wrong(wrong))
    }

    /// Starts the job and waits for its end. Returns the exit code of the first rank that failed, 0 if none did.
    ///
    /// # Errors
    /// [`LaunchError`]. No rank is left then.
    pub fn run(&self) -> Result<u8, LaunchError> {
        self.check()?;
        if let Some(code) = self.be_agent() {
            return code;
        }
        if self.mpi && self.restarts == 0 {
            return self.run_mpirun();
        }
        let disk = CheckpointOptions::with_environment(None).ok().flatten().and_then(|options| options.disk);
        let (mut launch, mut restart, mut restarted) = (self.clone(), None, 0);
        loop {
            let options = (restart.as_deref(), disk.is_some());
            let end = if self.mpi {
                launch.run_agents(options, restarted)?
            } else {
                launch.run_once(options, restarted)?
            };
            match end {
                End::Code(code) => return Ok(code),
                End::Resized(ranks) => {
                    report_line!("the job goes on with {ranks} ranks instead of {}", launch.ranks);
                    launch.ranks = ranks;
                }
                End::Again(used) | End::Lost { restarted: used, .. } => restarted = used,
            }
            restart = disk.clone();
        }
    }

    /// Runs the job with one number of ranks; from a checkpoint in the folder `restart`, if that is given. So many ranks have been
    /// replaced before.
    fn run_once(
        &self,
        (restart, can_resize): (Option<&Path>, bool),
        restarted: u32,
    ) -> Result<End, LaunchError> {
        let secret = Secret::new().map_err(system("making the job's secret"))?;
        let admission = self.listen(self.is_local(), &secret)?;
        let connections = Connections::new(self.ranks, self.timeout);
        let requests = Requests::listen(secret.clone()).map_err(system("listening for requests"))?;
        let hosts = RefCell::new(Hosts::new(&self.hosts, &self.spares, self.ranks));
        let session = Session {
            launcher: admission.address(),
            requests: requests.address.clone(),
            restart: restart.map(Path::to_owned),
        };
        let start = |rank, start| {
            self.start((rank, start, hosts.borrow().of(rank)), &session, &secret).map(Process::Child)
        };
        let parts = (admission, connections, requests);
        let rules = Rules { restarted, has_checkpoint: has_checkpoint(restart), ..self.rules(can_resize) };
        Job::start((&start, &hosts, &|| false), parts, (self.commands(), self.ranks), rules)?.run()
    }

    /// The rules of the job.
    pub(crate) fn rules(&self, can_resize: bool) -> Rules {
        let is_fixed = (!can_resize).then(|| {
            "a job that is resized goes on from a checkpoint on disk: start it with COLONY_CHECKPOINT=memory:disk=FOLDER"
                .to_owned()
        });
        let is_remote = !self.hosts.is_empty();
        Rules {
            restarts: self.restarts,
            restarted: 0,
            is_remote,
            is_mpi: self.mpi,
            has_checkpoint: false,
            is_fixed,
        }
    }
}

/// Returns `true` if the folder from which a job goes on has a complete checkpoint.
pub(crate) fn has_checkpoint(restart: Option<&Path>) -> bool {
    let newest = restart.map(|folder| Folder(folder.to_owned()).newest());
    newest.is_some_and(|newest| match newest {
        Ok(newest) => newest.is_some(),
        // the ranks find the same, and cannot begin from it
        Err(error) => {
            report_line!("warning: no checkpoint on disk can be used: {error}");
            false
        }
    })
}

/// The transport of this process: sockets if a [launcher](Launch) has started it, MPI or the torus if their launcher
/// has, and otherwise none.
///
/// # Errors
/// [`TransportError`].
pub fn transport_from_environment() -> Result<Box<dyn Transport>, TransportError> {
    #[cfg(feature = "mpi")]
    if crate::transport::mixed::Mixed::is_launched() {
        return Ok(Box::new(crate::transport::mixed::Mixed::join()?));
    }
    #[cfg(not(feature = "mpi"))]
    if std::env::var_os(OVER_MPI).is_some() && std::env::var(RANK).is_ok_and(|rank| rank == "0") {
        report_line!("warning: the program is built without MPI: its ranks communicate over sockets");
    }
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
