// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program as the job class, start to end, with its proof.

mod child;
mod config;
mod signals;

use std::sync::Arc;
use std::time::Instant;

use colony_node::cpu::{self, CpuSet};
use colony_node::task;
use colony_pages::{Launch, Watch};
use colony_time::Windows;
use nix::sys::prctl;

use crate::SchedError;
use crate::backend::BackendChoice;
use crate::job::Job;
use crate::keeper::{Keeper, KeeperConfig};
use crate::limits::Limits;
use crate::proof::Observer;
use crate::spare::{Reservation, Split};
use child::Child;
use signals::Signals;

use colony_client::Client;
use colony_client::{Backend, KeeperStats};
pub use config::{Ending, RunConfig, RunReport};

/// Runs a program as the job class and waits for its end. Prints nothing.
///
/// Signals sent to this process go to the program, real-time signals and their values too, except for those about a fault
/// of this process; for that, call it from the only thread of the process. If this process is told to stop and the program
/// stops, this process stops with it. The program's orphans become children of this process, and are waited for. If this
/// process is killed, the program goes on in its own class.
///
/// # Errors
/// [`SchedError`] where it cannot be started.
pub fn run(config: &RunConfig) -> Result<RunReport, SchedError> {
    let plan = Plan::of(config)?;
    let signals = Signals::block()?;
    let job = Arc::new(Job::new());
    let mut reservation = plan.split.clone().map(|split| Reservation::make(split, &job)).transpose()?;
    let _subreaper = Subreaper::become_one(&job)?;
    let observer = Observer::start(plan.windows, &plan.cpus, Arc::clone(&job));
    let (enforcement, mut warnings) = Enforcement::start(config, &plan, &job, reservation.as_ref())?;
    warnings.extend(plan.warnings);
    if let Some(reservation) = &mut reservation {
        reservation.job_starts();
    }
    let started = Instant::now();
    let mut pages = config.pages.map(Launch::new);
    let mut start = || {
        let (daemon, reservation) = (plan.daemon.as_ref(), reservation.as_ref());
        Child::start(config, &plan.cpus, &signals, daemon, reservation, pages.as_mut())
    };
    let child = observer.following(|| match &enforcement.keeper {
        Some(keeper) => keeper.following(start),
        None => start(),
    })?;
    job.add(child.pid()).or_else(|e| if child.has_ended() { Ok(()) } else { Err(e) })?;
    if let Some(keeper) = &enforcement.keeper {
        keeper.rescan_tasks();
    }
    if let Some(reservation) = &reservation {
        reservation.job_has_members();
    }
    observer.follow();
    let program = child.pid();
    let mut pages = pages.map(|launch| launch.watch(move || task::tree(program)));

    let ended = child.wait(&signals, &job, pages.as_mut())?;
    let wall_ns = started.elapsed().as_nanos() as u64;
    let proof = observer.proof();
    drop(observer);
    let pages = pages.map(Watch::finish);
    let backend = enforcement.backend();
    let did = enforcement.finish();
    job.refresh();
    let spare = reservation.map(Reservation::end);
    warnings.extend(did.warnings);
    let (agent, sched_ext) = (did.agent, did.sched_ext);
    warnings.extend(sched_ext.iter().flat_map(|s| s.warnings.iter().cloned()));
    if let Some(agent) = &agent {
        warnings.extend(agent.warnings.iter().cloned());
        warnings.extend(agent.stopped.iter().map(|why| format!("the agent gave up during the run: {why}")));
    }
    Ok(RunReport {
        schema: "colony.run/1".into(),
        command: config.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        windows: plan.windows,
        backend,
        cpus: plan.cpus,
        ending: ended.ending,
        wall_ns,
        job_cpu_ns: ended.cpu_ns,
        proof,
        agent,
        sched_ext,
        spare,
        pages,
        left_running: job.processes(),
        warnings,
    })
}

/// The run that the configuration asks for, resolved for this node.
struct Plan {
    daemon: Option<Client>,
    windows: Windows,
    cpus: CpuSet,
    /// The CPUs of the job and of the system, if cores are to be spare.
    split: Option<Split>,
    warnings: Vec<String>,
}

impl Plan {
    fn of(config: &RunConfig) -> Result<Self, SchedError> {
        let cpus = match &config.cpus {
            Some(cpus) => cpus.clone(),
            None => cpu::usable()?,
        };
        cpu::check(&cpus)?;
        let daemon = match config.backend {
            BackendChoice::Auto => Client::find(),
            BackendChoice::Daemon => Some(Client::find().ok_or(SchedError::Config {
                what: "no colonyd answers on this node".into(),
                advice: "start it (systemctl start colonyd), or run with --backend agent",
            })?),
            BackendChoice::SchedExt | BackendChoice::Agent | BackendChoice::None => None,
        };
        let split = config.spare.as_ref().map(|spare| spare.split(config.cpus.as_ref())).transpose()?;
        let cpus = split.as_ref().map_or(cpus, |split| split.job.clone());
        let mut plan = match daemon {
            Some(daemon) => Self::of_daemon(config, daemon, &cpus)?,
            None => Self { daemon: None, windows: config.windows, cpus, split: None, warnings: Vec::new() },
        };
        plan.split = split.map(|split| Split { job: plan.cpus.clone(), ..split });
        Ok(plan)
    }

    /// The daemon's windows and CPUs hold, whatever was asked for.
    fn of_daemon(config: &RunConfig, daemon: Client, wanted: &CpuSet) -> Result<Self, SchedError> {
        let stats = daemon.stats().map_err(|e| SchedError::Daemon(e.to_string()))?;
        let mut warnings = Vec::new();
        if stats.windows != config.windows {
            warnings.push(format!(
                "colonyd owns the windows of this node: period {}, duty cycle {}; change them in {}",
                colony_time::text::Ns(stats.windows.period_ns()),
                stats.duty_cycle,
                daemon.mount().display()
            ));
        }
        let mut cpus = stats.cpus.and(wanted);
        if cpus.is_empty() {
            warnings.push(format!(
                "colonyd gives jobs {}, none of those asked for ({wanted})",
                stats.cpus.named()
            ));
            cpus = stats.cpus;
        }
        Ok(Self {
            daemon: Some(daemon),
            windows: stats.coordination.kept.unwrap_or(stats.windows),
            cpus,
            split: None,
            warnings,
        })
    }
}

/// The backend that enforces the windows of a run; neither field is set if they are only measured.
#[derive(Default)]
struct Enforcement {
    daemon: Option<Client>,
    keeper: Option<Keeper>,
}

impl Enforcement {
    /// Starts what enforces the windows, as far as this node lets it, and says what it does not.
    fn start(
        config: &RunConfig,
        plan: &Plan,
        job: &Arc<Job>,
        reservation: Option<&Reservation>,
    ) -> Result<(Self, Vec<String>), SchedError> {
        if plan.daemon.is_some() {
            return Ok((Self { daemon: plan.daemon.clone(), keeper: None }, Vec::new()));
        }
        if config.backend == BackendChoice::None {
            return Ok((Self::default(), Vec::new()));
        }
        Limits::default().check(&config.windows)?;
        let keeper = KeeperConfig {
            backend: config.backend,
            windows: plan.windows,
            cpus: plan.cpus.clone(),
            regular: config.regular,
            entry: reservation.and_then(Reservation::thread_entry),
            ext: config.ext.clone(),
        };
        match Keeper::start(keeper, Arc::clone(job)) {
            Ok(keeper) => {
                if let Some(reservation) = reservation.filter(|_| keeper.backend() == Backend::SchedExt) {
                    reservation.is_balanced_otherwise();
                }
                Ok((Self { daemon: None, keeper: Some(keeper) }, Vec::new()))
            }
            Err(e @ SchedError::NoRealTime(_)) if config.backend == BackendChoice::Auto => {
                let warning = format!("the windows are only measured, nothing is held back: {e}");
                Ok((Self::default(), vec![warning]))
            }
            Err(e) => Err(e),
        }
    }

    fn backend(&self) -> Backend {
        match (&self.daemon, &self.keeper) {
            (Some(_), _) => Backend::Daemon,
            (None, keeper) => keeper.as_ref().map_or(Backend::None, Keeper::backend),
        }
    }

    /// Ends it, and says what it did.
    fn finish(self) -> KeeperStats {
        // the backend of the daemon goes on while the node has other jobs; its figures are of all of them
        let of_daemon = |daemon: Client| {
            let stats = daemon.stats().ok()?;
            Some(KeeperStats { agent: stats.agent, sched_ext: stats.sched_ext, ..KeeperStats::default() })
        };
        let keeper = self.keeper.map(Keeper::stop);
        keeper.or_else(|| self.daemon.and_then(of_daemon)).unwrap_or_default()
    }
}

/// Makes this process the parent of the job's orphans, while it lives.
struct Subreaper {
    before: bool,
}

impl Subreaper {
    fn become_one(job: &Job) -> Result<Self, SchedError> {
        let failed = SchedError::system("becoming the parent of the job's orphans");
        let before = prctl::get_child_subreaper().map_err(&failed)?;
        prctl::set_child_subreaper(true).map_err(&failed)?;
        job.adopt_orphans_of(std::process::id().cast_signed());
        Ok(Self { before })
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        let _ = prctl::set_child_subreaper(self.before);
    }
}
