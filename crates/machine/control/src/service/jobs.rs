// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs of a partition, each in a thread of its own.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use colony_ciod::{JobError, JobOutcome, JobSpec, Streams};
use colony_model::Block;
use colony_nodes::{CnkError, Death, Partition, Running};

use super::events::News;
use super::input::Input;
use super::nodes::{JobEntry, Nodes};
use super::outcome::Ended;
use super::output_file;
use crate::api::{InputTaken, JobBlock, PartitionState, Severity};

/// Timeout for a check of the nodes.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// A job to start.
pub(crate) struct Launch {
    pub(crate) job: u64,
    pub(crate) spec: JobSpec,
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
    pub(crate) block: Option<JobBlock>,
    pub(crate) sends_stdin: bool,
    /// A file that is removed before its ranks begin.
    pub(crate) mark: Option<PathBuf>,
}

/// Starts a job, unless it is known.
///
/// # Errors
/// The nodes are not ready.
pub(crate) fn launch(nodes: &Arc<Nodes>, launch: Launch) -> Result<(), String> {
    let input = launch.sends_stdin.then(Input::new).transpose();
    let (input, stdin) = input.map_err(|e| format!("the standard input of the job: {e}"))?.unzip();
    nodes
        .change(|state| {
            if state.jobs.contains_key(&launch.job) {
                return Ok(false);
            }
            if state.partition != PartitionState::Ready {
                return Err("the partition is not ready".to_owned());
            }
            let input = input.map(Arc::new);
            state.jobs.insert(launch.job, JobEntry { running: None, has_ended: false, signal: None, input });
            Ok(true)
        })?
        .then(|| {
            let nodes = nodes.clone();
            std::thread::spawn(move || run(&nodes, launch, stdin));
        });
    Ok(())
}

/// Takes a part of the standard input of a job.
///
/// # Errors
/// The job is unknown, or its user does not send its input.
pub(crate) fn input(
    nodes: &Nodes,
    job: u64,
    from: u64,
    part: &[u8],
    is_last: bool,
) -> Result<InputTaken, String> {
    let input = {
        let state = nodes.state();
        let entry = state.jobs.get(&job).ok_or_else(|| format!("job {job} does not run"))?;
        if entry.has_ended {
            return Ok(InputTaken { bytes: from, is_open: false });
        }
        entry.input.clone().ok_or_else(|| format!("the standard input of job {job} is not sent"))?
    };
    // this may wait for the program
    input.take(from, part, is_last)
}

/// Ends the inputs of jobs whose senders are not there any more.
pub(crate) fn check_inputs(nodes: &Nodes) {
    nodes.state().jobs.values().filter_map(|entry| entry.input.as_ref()).for_each(|input| input.check());
}

/// Sends a signal to a job. One that has not begun gets it when it does.
///
/// # Errors
/// The job is unknown or has ended.
pub(crate) fn signal(nodes: &Nodes, job: u64, signal: i32) -> Result<(), String> {
    let running = nodes.change(|state| {
        let entry = state.jobs.get_mut(&job).filter(|entry| !entry.has_ended);
        let entry = entry.ok_or_else(|| format!("job {job} does not run"))?;
        if entry.running.is_none() {
            entry.signal = Some(signal);
        }
        Ok::<_, String>(entry.running.clone())
    })?;
    running.map_or(Ok(()), |running| running.signal(signal).map_err(|e| e.to_string()))
}

/// Forgets what the daemon has stored: the news up to this number, and the jobs whose ends are among them.
pub(crate) fn forget(nodes: &Nodes, stored: u64) {
    nodes.change(|state| {
        for job in state.journal.stored(stored) {
            state.jobs.remove(&job);
        }
    });
}

/// Runs a job to its end.
fn run(nodes: &Nodes, launch: Launch, stdin: Option<OwnedFd>) {
    let (job, block, mark) = (launch.job, launch.block, launch.mark.clone());
    let ended = match start(nodes, launch, stdin) {
        Ok(running) => {
            if running.wait_started() {
                nodes.tell(News::JobBegan { job });
            }
            let outcome = running.wait();
            let deaths = running.deaths();
            report_deaths(nodes, job, &deaths);
            if let Some((pset, error)) = failed_io_node(&running, &outcome, &deaths) {
                io_node_failed(nodes, (job, block), pset, error);
            }
            Ended::of(&running, &outcome, &deaths)
        }
        Err(ended) => ended,
    };
    if let Some(mark) = mark {
        // a job that has begun has none
        let _ = std::fs::remove_file(mark);
    }
    if ended.by_machine {
        // so that the daemon does not place the next job on the nodes that have just died
        nodes.check_now(CHECK_TIMEOUT);
    }
    let Ended { code, error, has_begun, by_machine } = ended;
    nodes.change(|state| {
        if let Some(entry) = state.jobs.get_mut(&job) {
            (entry.running, entry.input, entry.has_ended) = (None, None, true);
        }
        state.journal.add(News::JobEnded { job, code, error, has_begun, by_machine });
    });
}

/// Reports the deaths of nodes in a job: each cause is one event.
fn report_deaths(nodes: &Nodes, job: u64, deaths: &[Death]) {
    for death in deaths {
        if let Some(pid) = death.boot_process() {
            nodes.boot_process_died(pid, Some(job));
        } else {
            nodes.state().reported.insert(death.node);
            nodes.ras((Severity::Fatal, "node-died"), Some(death.node), Some(job), death.to_string());
        }
    }
}

/// The I/O node that failed in a job, by the number of its pset, and how. One that ended with the boot process of its compute
/// nodes has not failed by itself.
fn failed_io_node(running: &Running, outcome: &JobOutcome, deaths: &[Death]) -> Option<(u32, String)> {
    if deaths.iter().any(|death| death.boot_process().is_some()) {
        return None;
    }
    let error = outcome.error.as_ref()?;
    let pset = match error {
        JobError::IoNodeFailed { pset, .. } => *pset,
        // of a job on one pset
        JobError::WorkerDied(_) if deaths.is_empty() => running.io_nodes().first()?.0,
        _ => return None,
    };
    Some((pset, error.to_string()))
}

/// Reports the I/O node of a pset of a job.
fn io_node_failed(nodes: &Nodes, (job, block): (u64, Option<JobBlock>), pset: u32, message: String) {
    let (severity, code) = (Severity::Fatal, "io-node-failed".to_owned());
    let location = io_location(nodes, block, pset);
    nodes.tell(News::Ras { severity, node: None, location, code, message, job: Some(job) });
}

/// The nodes of a job as a block of the machine.
fn in_machine(partition: &Partition, block: JobBlock) -> Result<Block, String> {
    let machine = partition.places().machine().ok_or("the nodes are not part of a machine")?;
    Block::new(machine, block.origin, block.shape).map_err(|e| e.to_string())
}

/// The location of the I/O node of a pset of a job.
fn io_location(nodes: &Nodes, block: Option<JobBlock>, pset: u32) -> Option<String> {
    let guard = nodes.partition();
    let partition = guard.as_ref()?;
    let block = block.map(|block| in_machine(partition, block)).transpose().ok()?;
    // Linux I/O nodes are numbered in the partition, not in the block of the job
    let block = block.filter(|_| partition.linux_io_nodes() == 0);
    partition.places().io_location(block, pset)
}

fn start(nodes: &Nodes, launch: Launch, stdin: Option<OwnedFd>) -> Result<Arc<Running>, Ended> {
    let owner = launch.spec.user_ids().map_err(|e| Ended::not_started(&e.into()))?;
    let mut streams = output_file::open(&launch.stdout, owner)
        .and_then(|stdout| Streams::output(stdout.into(), output_file::open(&launch.stderr, owner)?.into()))
        .map_err(|e| Ended::by_machine(format!("the output of the job: {e}")))?;
    streams.stdin = stdin.unwrap_or(streams.stdin);
    let launched = {
        let mut guard = nodes.partition();
        let partition = guard.as_mut().ok_or_else(|| Ended::by_machine("the nodes are switched off"))?;
        let block = launch.block.map(|block| in_machine(partition, block)).transpose();
        let block = block.map_err(Ended::refused)?;
        partition.launch_marked(block, launch.spec, streams, launch.mark)
    };
    let running = launched.map(Arc::new).map_err(|error: CnkError| {
        if let CnkError::Job(JobError::IoNodeFailed { pset, .. }) = error {
            io_node_failed(nodes, (launch.job, launch.block), pset, error.to_string());
        }
        Ended::not_started(&error)
    })?;
    let early = nodes.change(|state| {
        let entry = state.jobs.get_mut(&launch.job)?;
        entry.running = Some(running.clone());
        entry.signal.take()
    });
    if let Some(signal) = early {
        // a job that has ended meanwhile needs no signal
        let _ = running.signal(signal);
    }
    Ok(running)
}
