// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that `mpirun` starts. If ranks are replaced, it starts an agent for each rank: it ends a job of which a process dies,
//! and the agents do not die with their ranks.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::rc::Rc;
use std::time::{Duration, Instant};

use colony_node::parent::end_with_parent;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::checkpoint::options::RESTART;
use crate::job::agent::{self, variable};
use crate::job::agents::{Agent, gather};
use crate::job::connections::Connections;
use crate::job::error::system;
use crate::job::hosts::Hosts;
use crate::job::orders::AGENT;
use crate::job::process::Process;
use crate::job::requests::{REQUESTS, Requests};
use crate::job::session::Session;
use crate::job::watch::{End, Job, Rules};
use crate::launch::{Launch, LaunchError, has_checkpoint};
use crate::place::machine;
use crate::report::report_line;
use crate::starter::{options, utf8};
use crate::transport::sockets::Secret;
use crate::transport::sockets::entry::{
    HOST, LAUNCHER, LAUNCHER_PROCESS, OVER_MPI, RANK, RESTARTS, SECRET, SIZE, START,
};

/// The exit codes with which a shell, and `mpirun`, say that a signal has killed a program.
const KILLED: std::ops::RangeInclusive<i32> = 129..=159;
/// The time that `mpirun` has to end after its processes.
const END: Duration = Duration::from_secs(10);
/// The variable by which Open MPI passes variables to other hosts.
const PASSED: &str = "OMPI_MCA_mca_base_env_list";
/// Settings of Open MPI: a rank that has been replaced does not finalize MPI, which is no failure; and the store of PMIx that
/// stands the death of a process.
const SETTINGS: [(&str, &str); 2] =
    [("OMPI_MCA_orte_allowed_exit_without_sync", "1"), ("PMIX_MCA_gds", "hash")];

/// The signal that has killed a rank, or `mpirun` itself.
fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal().or_else(|| status.code().filter(|code| KILLED.contains(code)).map(|code| code - 128))
}

fn code_of(status: ExitStatus) -> u8 {
    status.signal().map(|signal| 128 + signal).or(status.code()).map_or(1, |code| code as u8)
}

/// `mpirun`, which is killed when this is dropped.
struct Mpirun(Child);

impl Mpirun {
    fn start(command: &mut Command) -> Result<Self, LaunchError> {
        // so that it removes its files, it is not killed
        end_with_parent(command, Signal::SIGTERM);
        let name = command.get_program().display().to_string();
        command.spawn().map(Self).map_err(system(format!("starting {name}")))
    }

    /// Waits for its end: it writes what ranks have printed.
    fn finish(&mut self) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < END {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for Mpirun {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
            if self.finish().is_none() {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
        }
    }
}

impl Launch {
    /// Is an agent, if `mpirun` has started this process as one.
    pub(crate) fn be_agent(&self) -> Option<Result<u8, LaunchError>> {
        let place = std::env::var(AGENT).ok()?;
        Some(agent::run(&place, &self.program, &self.arguments))
    }

    /// The command that starts a program for each rank.
    fn mpirun(&self, program: &OsString, arguments: &[OsString]) -> Command {
        let mut command = Command::new("mpirun");
        command.args(["-n", &self.ranks.to_string()]).arg(program).args(arguments);
        // a rank of another job may have started this launcher
        for name in [LAUNCHER, RANK, SIZE, START, RESTARTS, OVER_MPI, LAUNCHER_PROCESS, REQUESTS, HOST] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a job of which no rank is replaced.
    pub(crate) fn run_mpirun(&self) -> Result<u8, LaunchError> {
        let mut child =
            self.mpirun(&self.program, &self.arguments).spawn().map_err(system("starting mpirun"))?;
        let status = child.wait().map_err(system("waiting for mpirun"))?;
        if let Some(signal) = signal_of(status) {
            report_line!("error: a rank was killed by signal {signal}; the job ends");
            return Ok((128 + signal) as u8);
        }
        Ok(code_of(status))
    }

    /// The command that starts an agent for each rank: this process's own, which finds the launcher in its environment.
    fn agents(&self, address: &str, secret: &Secret) -> Result<Command, LaunchError> {
        let program = std::env::current_exe().map_err(system("looking for this program"))?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let mut command = self.mpirun(&program.into(), &arguments);
        let passed = std::env::var(PASSED).map(|list| format!("{list};")).unwrap_or_default();
        command
            .env(AGENT, variable(address))
            .env(SECRET, secret.to_hex())
            .env(PASSED, format!("{passed}{AGENT};{SECRET}"));
        let chosen = |name: &str| std::env::var_os(name).is_some();
        command.envs(SETTINGS.into_iter().filter(|(name, _)| !chosen(name)));
        Ok(command)
    }

    /// Runs a job whose ranks are replaced, of which so many have been.
    pub(crate) fn run_agents(
        &self,
        (restart, can_resize): (Option<&Path>, bool),
        restarted: u32,
    ) -> Result<End, LaunchError> {
        let secret = Secret::new().map_err(system("making the job's secret"))?;
        let mut admission = self.listen(false, &secret)?;
        let mut mpirun = Mpirun::start(&mut self.agents(&admission.address(), &secret)?)?;
        let agents = match gather(&mut admission, &machine(), self.ranks, &mut mpirun.0)? {
            Ok(agents) => agents,
            // it has said why
            Err(status) if signal_of(status).is_none() && !status.success() => {
                return Ok(End::Code(code_of(status)));
            }
            Err(status) => return Ok(self.lost((restarted, false), Some(status))),
        };
        let mpirun = RefCell::new(mpirun);
        let has_ended = || !matches!(mpirun.borrow_mut().0.try_wait(), Ok(None));
        drop(admission);
        let agents: Vec<_> = agents.into_iter().map(|agent| Rc::new(RefCell::new(agent))).collect();
        let is_local = agents.iter().all(|agent| agent.borrow().is_local());
        let admission = self.listen(is_local, &secret)?;
        let requests = Requests::listen(secret.clone()).map_err(system("listening for requests"))?;
        let session = Session {
            launcher: admission.address(),
            requests: requests.address.clone(),
            restart: restart.map(Path::to_owned),
        };
        let start = |rank: u32, start: u32| {
            let agent = Rc::clone(&agents[rank as usize]);
            let variables = self.variables((rank, start), &agent.borrow(), &session)?;
            agent.borrow_mut().start(variables);
            Ok(Process::Agent(agent))
        };
        let connections = Connections::new(self.ranks, self.timeout);
        let parts = (admission, connections, requests);
        let rules = Rules { restarted, has_checkpoint: has_checkpoint(restart), ..self.rules(can_resize) };
        let hosts = RefCell::new(Hosts::default());
        let mut job = Job::start((&start, &hosts, &has_ended), parts, (self.ranks, self.ranks), rules)?;
        let end = job.run();
        drop(job);
        // the end of their connections ends the agents
        drop(agents);
        let status = mpirun.borrow_mut().finish();
        Ok(match end? {
            End::Lost { restarted, is_over } => self.lost((restarted, is_over), status),
            end => end,
        })
    }

    /// `mpirun` has ended before the job, with all ranks.
    fn lost(&self, (restarted, is_over): (u32, bool), status: Option<ExitStatus>) -> End {
        let signal = status.and_then(signal_of);
        let how = match (signal, status) {
            (Some(signal), _) => format!("was killed by signal {signal}, or an agent or host was"),
            (None, Some(status)) => format!("has ended ({status}), or an agent or host was lost"),
            (None, None) => "does not end".to_owned(),
        };
        if restarted < self.restarts && !is_over {
            let restarted = restarted + 1;
            report_line!("warning: mpirun {how}; all begin again, restart {restarted} of {}", self.restarts);
            return End::Again(restarted);
        }
        report_line!("error: mpirun {how}; the job ends (restarts used: {restarted})");
        End::Code(signal.map_or(1, |signal| (128 + signal) as u8))
    }

    /// The variables of a rank, beside those that `mpirun` has given its agent.
    fn variables(
        &self,
        (rank, start): (u32, u32),
        agent: &Agent,
        session: &Session,
    ) -> Result<Vec<(String, String)>, LaunchError> {
        let mut variables = options();
        let mut set = |name: &str, value: &str| variables.insert(name.to_owned(), value.to_owned());
        set(LAUNCHER, &session.launcher);
        set(LAUNCHER_PROCESS, &std::process::id().to_string());
        set(RANK, &rank.to_string());
        set(SIZE, &self.ranks.to_string());
        set(START, &start.to_string());
        set(RESTARTS, "1");
        set(HOST, agent.host());
        // a replacement cannot join the ranks of MPI
        if start == 0 {
            set(OVER_MPI, "1");
        }
        if agent.is_local() {
            set(REQUESTS, &session.requests);
        }
        if let Some(folder) = &session.restart {
            set(RESTART, utf8(folder.as_os_str())?);
        }
        Ok(variables.into_iter().collect())
    }
}
