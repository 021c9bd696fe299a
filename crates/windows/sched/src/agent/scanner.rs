// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's scanner: everything that takes time, so that the threads at the edges need none.
//!
//! It reads `/proc` for tasks that join and leave, keeps the table the threads switch from, tells the
//! guardian, settles what no thread has switched, collects what the threads record, and keeps the job on its
//! [CPUs](super::confine).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use colony_node::class::{self, Class};
use colony_node::cpu::CpuSet;
use colony_node::task::{self, TaskId};
use colony_stats::histogram;
use colony_time::Windows;
use colony_time::clock::Clock;
use hdrhistogram::Histogram;
use rtrb::Consumer;

use super::bandwidth::Bandwidth;
use super::config::AgentConfig;
use super::confine::Confinement;
use super::contenders::Contenders;
use super::edges::{Record, Shared};
use super::slots::Slots;
use super::table::Mark;
use crate::SchedError;
use crate::binding::keep_off;
use crate::guardian::{Guardian, Message, Starter};
use crate::job::{Job, JobTask};
use crate::relief::{Relief, relieved};
use crate::undo::{Tasks, UndoFile};

/// The time between two scans; longer if one takes more than a twentieth of it.
const INTERVAL: Duration = Duration::from_millis(20);
/// The longest rest between two scans: far less than the silence a guardian bears.
const LONGEST_REST: Duration = Duration::from_millis(200);
/// The scanner's class: it must not take the job's time.
const ORDINARY: Class = Class::Other(-10);
/// Number of times a guardian that died is replaced before the agent stops.
const RESTARTS: u64 = 20;
/// Without news on the node, only every so many-th scan looks at each task, for the CPU it is on.
const LAZY: u32 = 10;
/// Interval at which the guardian is told that the agent lives; its timeout is a second at least.
const BEAT: Duration = Duration::from_millis(200);

/// The findings of the scanner, for [`stats`](super::Agent::stats).
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) lateness: Histogram<u64>,
    pub(super) switching: Histogram<u64>,
    pub(super) records: Vec<Consumer<Record>>,
    pub(super) windows: Windows,
    pub(super) tasks: u64,
    pub(super) joined: u64,
    pub(super) overflow: u64,
    pub(super) guardian_restarts: u64,
    /// Warnings for the user about the job.
    pub(super) warnings: Vec<String>,
    pub(super) stopped: Option<String>,
}

impl Findings {
    pub(super) fn new(windows: Windows, records: Vec<Consumer<Record>>) -> Self {
        Self {
            lateness: histogram(),
            switching: histogram(),
            records,
            windows,
            tasks: 0,
            joined: 0,
            overflow: 0,
            guardian_restarts: 0,
            warnings: Vec::new(),
            stopped: None,
        }
    }

    pub(super) fn collect(&mut self) {
        for ring in &mut self.records {
            while let Ok(r) = ring.pop() {
                self.lateness.saturating_record(r.late_ns);
                self.switching.saturating_record(r.switching_ns);
            }
        }
    }
}

/// The scanner, before it runs.
pub(super) struct Scanner {
    pub(super) config: AgentConfig,
    pub(super) job: Arc<Job>,
    pub(super) shared: Arc<Shared>,
    pub(super) findings: Arc<Mutex<Findings>>,
    pub(super) guardian: Guardian,
    pub(super) starter: Starter,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) slots: Slots,
    pub(super) pace: Pace,
    pub(super) confinement: Confinement,
    pub(super) bandwidth: Bandwidth,
    pub(super) contenders: Contenders,
    /// For the death of the agent and its guardian; `None` where there is no place for it.
    pub(super) undo: Option<UndoFile<Tasks>>,
    /// True once the guardian has ended.
    pub(super) guardian_gone: Arc<AtomicBool>,
}

/// The pace of the scanner's work that not every scan does.
#[derive(Debug, Default)]
pub(super) struct Pace {
    newest: Option<i32>,
    skipped: u32,
    beat: Option<Instant>,
}

impl Pace {
    /// Returns `true` if a task may have been started on this node since the last scan, or a full scan is due.
    fn is_due(&mut self) -> bool {
        // read before looking: what starts meanwhile is news the next time
        let newest = task::newest();
        let due = newest.is_none() || newest != self.newest || self.skipped >= LAZY;
        self.newest = newest;
        self.skipped = if due { 0 } else { self.skipped + 1 };
        due
    }

    fn beat(&mut self) -> bool {
        let due = self.beat.is_none_or(|b| b.elapsed() >= BEAT);
        if due {
            self.beat = Some(Instant::now());
        }
        due
    }
}

/// Tells the threads to stop however the scanner ends, a panic included.
struct StopAtEnd(Arc<Shared>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

impl Scanner {
    /// Scans until it is told to stop; then every task is put back and the guardian sent home.
    pub(super) fn run(mut self) {
        let _stop = StopAtEnd(Arc::clone(&self.shared));
        keep_off(&self.config.cpus);
        // ahead of other ordinary tasks, where that is allowed
        let _ = class::set(0, ORDINARY);
        let relief = Relief::of_this_thread(self.config.agent_priority).ok();
        self.watch_guardian();
        while !self.shared.stop.load(Ordering::Acquire) {
            let before_ns = Clock::ThreadCpu.now_ns();
            self.confine(relief.as_ref());
            self.keep_limits();
            let warnings = self.contenders.look_if_due(&self.config.cpus);
            self.report_contenders(warnings);
            if let Err(reason) = self.scan() {
                self.findings().stopped = Some(reason);
                break;
            }
            self.shared.counts.note_cpu(self.config.cpus.len());
            // its own time counts, not what it waited for: where the job has every CPU a favored window may
            // hold it up, and a long rest after that would be silence to the guardian
            let worked = Duration::from_nanos((Clock::ThreadCpu.now_ns() - before_ns).max(0).unsigned_abs());
            std::thread::park_timeout((20 * worked).clamp(INTERVAL, LONGEST_REST));
        }
        self.end();
    }

    fn findings(&self) -> std::sync::MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Scans the job once; an error ends the agent.
    fn scan(&mut self) -> Result<(), String> {
        if self.pace.is_due() {
            self.job.refresh();
        }
        let gone = self.slots.settle_the_left();
        let choices = self.take_choices();
        let tasks = self.job.tasks();
        let (joined, left) = self.slots.difference(&tasks);
        let news: Vec<JobTask> = choices.iter().map(|(_, task)| task).chain(&joined).copied().collect();
        // file and guardian know of a task before it is first switched
        self.write_down(&tasks, !news.is_empty() || !gone.is_empty());
        if self.guardian_gone.load(Ordering::Acquire) || self.tell(&news, &gone).is_err() {
            self.replace_guardian(&tasks)?;
        }
        for (index, task) in choices {
            self.shared.table.set_own(index, task.own);
        }
        let overflow = self.keep_table(&tasks, &left);
        let windows = {
            let mut found = self.findings();
            found.collect();
            found.tasks = tasks.len() as u64;
            found.joined += joined.len() as u64;
            found.overflow += overflow;
            found.windows
        };
        self.settle(&windows);
        Ok(())
    }

    /// Switches what no thread has switched, above the job: held up between claiming a task and switching it, it
    /// would leave that task in the wrong class for a whole window.
    fn settle(&self, windows: &Windows) {
        let now = || Mark::at(windows, Clock::Tai.now_ns());
        let (table, counts) = (&self.shared.table, &self.shared.counts);
        if table.is_settled(now()) {
            return;
        }
        // where this is not allowed, the switching fails as well and is counted
        let _ = class::set(0, Class::Fifo(self.config.agent_priority));
        counts.note(table.settle(now), &counts.settled);
        let _ = class::set(0, ORDINARY);
    }

    /// Takes the classes that programs have chosen for their own. Returns the tasks that this has changed, each with its slot, which is to
    /// be told once file and guardian know.
    fn take_choices(&self) -> Vec<(usize, JobTask)> {
        let choices = self.slots.choices(&self.shared.table);
        let changed = |(index, task, chosen)| Some((index, self.job.note_choice(task, chosen)?));
        choices.into_iter().filter_map(changed).collect()
    }

    /// Brings tasks that left the job's CPUs back, above the job: one that left is above all that is not real-time where it
    /// went.
    fn confine(&mut self, relief: Option<&Relief>) {
        if !self.confinement.matters() {
            return;
        }
        // where this is not allowed, neither is it to favor
        let _ = class::set(0, Class::Fifo(self.config.agent_priority));
        let windows = self.findings().windows;
        let now = || Mark::at(&windows, Clock::Tai.now_ns());
        let warnings = relieved(relief, || self.confinement.enforce(&self.slots, &self.shared.table, now));
        let _ = class::set(0, ORDINARY);
        self.findings().warnings.extend(warnings);
    }

    /// Favors no task whose cgroup has less time than the job's CPUs.
    fn keep_limits(&mut self) {
        let windows = self.findings().windows;
        let now = || Mark::at(&windows, Clock::Tai.now_ns());
        self.bandwidth.enforce(&self.slots, &self.shared.table, now);
        let warnings = self.bandwidth.take_news();
        self.findings().warnings.extend(warnings);
    }

    /// Reports other agents on the job's CPUs: in the log at once, and in the report.
    fn report_contenders(&self, warnings: Vec<String>) {
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        self.findings().warnings.extend(warnings);
    }

    /// Says in the undo file which tasks there are.
    fn write_down(&mut self, tasks: &[JobTask], news: bool) {
        let Some(undo) = self.undo.as_ref().filter(|_| news) else { return };
        let affinities = self.confinement.owner();
        let group = self.job.group();
        let record = Tasks { tasks: tasks.to_vec(), affinities, group, ..Tasks::default() };
        if let Err(e) = undo.save(&record) {
            self.undo = None;
            self.findings().warnings.push(format!(
                "the undo file cannot be written ({e}): if agent and guardian are killed at once, tasks stay in the \
                 class they have then"
            ));
        }
    }

    /// Has the guardian's end wake this thread.
    fn watch_guardian(&mut self) {
        let gone = Arc::new(AtomicBool::new(false));
        let scanner = std::thread::current();
        self.guardian_gone = Arc::clone(&gone);
        self.guardian.on_end(move || {
            gone.store(true, Ordering::Release);
            scanner.unpark();
        });
    }

    fn tell(&mut self, joined: &[JobTask], left: &[TaskId]) -> std::io::Result<()> {
        for task in left {
            self.guardian.tell(Message::Left(*task))?;
        }
        for task in joined {
            self.guardian.tell(Message::Joined(*task))?;
        }
        if self.pace.beat() {
            self.guardian.tell(Message::Beat)?;
        }
        Ok(())
    }

    /// Starts another guardian; the tasks stay as they are for the moment that takes.
    fn replace_guardian(&mut self, tasks: &[JobTask]) -> Result<(), String> {
        let restarts = {
            let mut found = self.findings();
            found.guardian_restarts += 1;
            found.guardian_restarts
        };
        if restarts > RESTARTS {
            return Err(format!("the guardian died {restarts} times"));
        }
        let fresh = start_guardian(&self.starter, &self.job).map_err(|e| e.to_string())?;
        // the old one is gone, or does not listen and is ended here
        self.guardian = fresh;
        self.watch_guardian();
        for task in tasks {
            self.guardian
                .tell(Message::Joined(*task))
                .map_err(|e| format!("the guardian died again: {e}"))?;
        }
        Ok(())
    }

    /// Brings the table up to date; how many tasks did not fit.
    fn keep_table(&mut self, tasks: &[JobTask], left: &[i32]) -> u64 {
        let table = &self.shared.table;
        for &tid in left {
            self.slots.strike(tid, table);
        }
        let mut overflow = 0;
        // a process is in one cgroup, however many threads it has
        let mut limited = BTreeMap::new();
        for task in tasks {
            let home = home_of(task, &self.config.cpus);
            match self.slots.of.get(&task.tid) {
                Some(&(index, _)) => index.iter().for_each(|&i| table.set_home(i, home, task.runnable)),
                None => {
                    let barred = self.confinement.is_barred(task)
                        || *limited.entry(task.pid).or_insert_with(|| self.bandwidth.covers(task.pid));
                    overflow += u64::from(!self.slots.enter(task, table, barred, home));
                }
            }
        }
        overflow
    }

    /// Lets the threads end, puts every task back, and lets the guardian go.
    fn end(mut self) {
        // the last look: another agent may have started since the one before
        let warnings = self.contenders.look(&self.config.cpus);
        self.report_contenders(warnings);
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // a thread that panicked has ended as well
            let _ = thread.join();
        }
        self.shared.table.look_for_choices();
        let _ = self.take_choices();
        self.slots.settle_the_left();
        self.job.restore();
        self.job.scatter();
        self.confinement.undo();
        let tasks = self.job.tasks().len() as u64;
        {
            let mut found = self.findings();
            found.collect();
            found.tasks = tasks;
        }
        self.shared.counts.note_cpu(self.config.cpus.len());
        let _ = self.guardian.tell(Message::Done);
        if let Some(undo) = &self.undo {
            undo.remove();
        }
    }
}

/// The thread that starts the guardians of an agent of this configuration.
pub(super) fn starter(config: &AgentConfig, undo: Option<PathBuf>) -> Result<Starter, SchedError> {
    let silence = Duration::from_secs(1).max(2 * Duration::from_nanos(config.windows.period_ns()));
    Starter::new(config.agent_priority, silence, undo, config.cpus.clone())
}

/// Starts a guardian and keeps it out of the job.
pub(super) fn start_guardian(starter: &Starter, job: &Job) -> Result<Guardian, SchedError> {
    job.start_stranger(|| starter.start(), Guardian::pid)
}

/// The position of the thread that switches a task: that of the CPU it ran on last, where it is the job's.
fn home_of(task: &JobTask, cpus: &CpuSet) -> usize {
    cpus.iter()
        .position(|c| c == task.cpu)
        .unwrap_or_else(|| task.tid.unsigned_abs() as usize % cpus.len().max(1))
}
