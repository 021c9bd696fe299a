// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes of the files: the setting of the windows, the members of the job, the documents.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use colony_client::File;
use colony_client::{ClockReport, JobReport, StatsReport};
use colony_clock::source::{Source, chrony::Chrony, ptp4l::Ptp4l};
use colony_node::task;
use colony_sched::binding::BindingError;
use colony_sched::limits::Limits;
use colony_time::estimate::{Feed, FeedError};
use colony_time::text;
use serde::Serialize;

use crate::access::{self, Access, Peer, Right};
use crate::clock::{self, ClockJudge, StaleFeed};
use crate::config::Checked;
use crate::event::Event;
use crate::files;
use crate::guard::Teller;
use crate::metrics::open_metrics;
use crate::quota::LogQuota;
use crate::saved::JobFile;
use crate::scheduler::{JoinError, Scheduler, Snapshot};
use crate::setting::{Setting, SettingError};

/// Users whose last refusal is kept.
const REMEMBERED: usize = 256;

/// A write that is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The writer does not have the right.
    #[error(
        "user {uid} may not {}; root can allow it in [access] of colonyd's configuration ({})",
        match right { Right::RegisterJob => "register jobs", Right::SetWindows => "set the windows" },
        match right { Right::RegisterJob => "users, groups", Right::SetWindows => "admin_users, admin_groups" }
    )]
    NoRight {
        /// The writer.
        uid: u32,
        /// The right that is missing.
        right: Right,
    },
    /// The file is for reading.
    #[error("{0} can only be read")]
    ReadOnly(&'static str),
    /// Not text, or more of it than any setting.
    #[error("that is no text, or longer than 4096 bytes")]
    NoText,
    /// The windows cannot be so.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The text for `clock` is no estimate.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The estimate is too old, or of another boot.
    #[error(transparent)]
    Stale(#[from] StaleFeed),
    /// The text for `job` means nothing.
    #[error("write 1 (or an empty line) to register the writing process, or the number of another one")]
    NoProcess,
    /// The writer is in a pid namespace this daemon cannot see into.
    #[error("colonyd cannot see the writing process: it is in a pid namespace outside colonyd's")]
    Unseen,
    /// The writer's process numbers are not this daemon's.
    #[error(
        "process numbers mean something else in the writer's pid namespace; \
         let the process write 1 for itself"
    )]
    OtherNumbers,
    /// The process is a thread of the kernel, or one of this daemon's.
    #[error("process {0} is the kernel's or colonyd's own; only programs can be a job")]
    NoProgram(i32),
    /// The process is another user's.
    #[error("process {pid} is not user {uid}'s; only root may register other users' processes")]
    NotYours {
        /// The process.
        pid: i32,
        /// The writer.
        uid: u32,
    },
    /// The process did not become a member.
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl Refusal {
    /// The error number the writer gets.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NoRight { .. } | Self::ReadOnly(_) | Self::NotYours { .. } => libc::EACCES,
            Self::NoText
            | Self::NoProcess
            | Self::Unseen
            | Self::OtherNumbers
            | Self::NoProgram(_)
            | Self::Feed(_) => libc::EINVAL,
            Self::Stale(_) => libc::ERANGE,
            Self::Setting(e) => e.errno(),
            Self::Join(JoinError::Sched(colony_sched::SchedError::NoProcess(_))) => libc::ESRCH,
            Self::Join(JoinError::Closed) => libc::ESHUTDOWN,
            Self::Join(JoinError::OtherUser { .. }) => libc::EBUSY,
            Self::Join(JoinError::Binding(BindingError::NoSharedCpu(_))) => libc::EINVAL,
            Self::Join(JoinError::Sched(e)) if e.is_wrong_use() => libc::EINVAL,
            Self::Join(_) => libc::EIO,
        }
    }
}

/// The daemon behind the files.
#[derive(Debug)]
pub(crate) struct Service {
    limits: Limits,
    access: Access,
    scheduler: Scheduler,
    /// Locked before all others.
    setting: Mutex<Setting>,
    judge: Mutex<ClockJudge>,
    /// The programs that may discipline the clock. Asked with no other lock held: they may take their time.
    sources: Mutex<Vec<Box<dyn Source>>>,
    refusals: Mutex<BTreeMap<u32, String>>,
    log_quota: Mutex<LogQuota>,
    started: Instant,
    events: Sender<Event>,
}

impl Service {
    pub(crate) fn new(config: &Checked, events: Sender<Event>, guard: Option<Teller>) -> Self {
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(Chrony::default()), Box::new(Ptp4l::default())];
        let reading = clock::ask(&mut sources);
        Self {
            limits: config.limits,
            access: config.access.clone(),
            scheduler: Scheduler::new(
                config.cpus.clone(),
                config.backend(),
                guard,
                JobFile::beside(&config.mount),
            ),
            setting: Mutex::new(config.setting),
            judge: Mutex::new(ClockJudge::new(config.clock, config.setting.windows(), reading)),
            sources: Mutex::new(sources),
            refusals: Mutex::default(),
            log_quota: Mutex::new(LogQuota::new(Instant::now())),
            started: Instant::now(),
            events,
        }
    }

    pub(crate) const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Checks that `peer` may open `file` to write; a refusal is logged, and remembered for it.
    pub(crate) fn may_open(&self, file: File, peer: &Peer) -> Result<(), Refusal> {
        self.may_write(file, peer).inspect_err(|e| self.remember(file, peer, e))
    }

    /// Takes one write; `None` is something that is no text. A refusal is logged, and remembered for the writer.
    pub(crate) fn write(&self, file: File, peer: &Peer, written: Option<&str>) -> Result<(), Refusal> {
        let done = self
            .may_write(file, peer)
            .and_then(|()| written.ok_or(Refusal::NoText))
            .and_then(|text| self.apply(file, peer, text));
        match &done {
            Ok(()) => drop(lock(&self.refusals).remove(&peer.uid)),
            Err(e) => self.remember(file, peer, e),
        }
        done
    }

    /// The content of `file` for user `uid` now.
    pub(crate) fn document(&self, file: File, uid: u32) -> String {
        let setting = *lock(&self.setting);
        match file {
            File::Period => format!("{}\n", text::Ns(setting.windows().period_ns())),
            File::DutyCycle => format!("{}\n", setting.duty()),
            File::Job => self.scheduler.snapshot().processes.iter().map(|p| format!("{p}\n")).collect(),
            File::Stats => json(&self.stats(setting, self.scheduler.snapshot())),
            File::Clock => json(&ClockReport::now(setting.windows(), lock(&self.judge).state().clone())),
            File::Limits => self.limits_document(),
            File::LastError => lock(&self.refusals).get(&uid).cloned().unwrap_or_default(),
        }
    }

    /// Checks that `peer` may write `file`.
    pub(crate) fn may_write(&self, file: File, peer: &Peer) -> Result<(), Refusal> {
        let right = files::right_to_write(file).ok_or(Refusal::ReadOnly(file.name()))?;
        if self.access.allows(peer, right) {
            return Ok(());
        }
        Err(Refusal::NoRight { uid: peer.uid, right })
    }

    fn apply(&self, file: File, peer: &Peer, text: &str) -> Result<(), Refusal> {
        match file {
            File::Period => self.set(|now| now.with_period(text, &self.limits))?,
            File::DutyCycle => self.set(|now| now.with_duty(text, &self.limits))?,
            File::Clock => self.feed(text)?,
            _ => {
                let pid = process_named(text, peer)?;
                // held, so that no change of the windows slips between reading them and the agent's start
                let setting = lock(&self.setting);
                let kept = lock(&self.judge).state().kept;
                self.scheduler.join(pid, peer.uid, kept)?;
                drop(setting);
                self.log_for(peer.uid, || {
                    tracing::info!("process {pid} joins the job, as user {} wrote", peer.uid);
                });
                let _ = self.events.send(Event::Joined);
            }
        }
        Ok(())
    }

    fn set(
        &self,
        change: impl FnOnce(&Setting) -> Result<Setting, SettingError>,
    ) -> Result<(), SettingError> {
        let mut setting = lock(&self.setting);
        *setting = change(&setting)?;
        let mut judge = lock(&self.judge);
        judge.update(setting.windows());
        self.scheduler.set_windows(judge.state().kept);
        let period = text::Ns(setting.windows().period_ns());
        tracing::info!("the windows are now: period {period}, duty cycle {}", setting.duty());
        Ok(())
    }

    /// Takes an estimate of the cluster's clock.
    fn feed(&self, text: &str) -> Result<(), Refusal> {
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let feed = if text == "none" { None } else { Some(text.parse::<Feed>()?) };
        lock(&self.judge).feed(feed)?;
        self.judge_clock();
        Ok(())
    }

    /// Asks the program that disciplines the clock, and judges the clock anew.
    pub(crate) fn ask_and_judge_clock(&self) {
        let reading = clock::ask(&mut lock(&self.sources));
        lock(&self.judge).set_reading(reading);
        self.judge_clock();
    }

    /// Judges the clock anew, and has the windows follow it.
    pub(crate) fn judge_clock(&self) {
        let setting = lock(&self.setting);
        let mut judge = lock(&self.judge);
        if judge.update(setting.windows()) {
            self.scheduler.set_windows(judge.state().kept);
        }
    }

    /// Takes over the job that ran when the daemon before this one ended.
    pub(crate) fn rejoin(&self) {
        self.judge_clock();
        // held, as for a process that joins
        let setting = lock(&self.setting);
        let kept = lock(&self.judge).state().kept;
        if self.scheduler.rejoin(kept) {
            let _ = self.events.send(Event::Joined);
        }
        drop(setting);
    }

    fn remember(&self, file: File, peer: &Peer, refusal: &Refusal) {
        let text = format!("{}: {refusal}\n", file.name());
        let mut refusals = lock(&self.refusals);
        // said once: nobody fills the log by asking again and again
        if refusals.get(&peer.uid) == Some(&text) {
            return;
        }
        self.log_for(peer.uid, || {
            tracing::warn!("refused thread {} of user {}: {}", peer.tid, peer.uid, text.trim_end());
        });
        if refusals.len() >= REMEMBERED && !refusals.contains_key(&peer.uid) {
            refusals.pop_last();
        }
        refusals.insert(peer.uid, text);
    }

    /// Logs a line that user `uid` causes, if the user has not caused too many.
    fn log_for(&self, uid: u32, line: impl FnOnce()) {
        let Some(left_out) = lock(&self.log_quota).take(uid, Instant::now()) else { return };
        if left_out > 0 {
            tracing::warn!("{left_out} lines that users caused were left out here: they wrote too often");
        }
        line();
    }

    /// The metrics now, as OpenMetrics text.
    pub(crate) fn metrics(&self) -> String {
        let setting = *lock(&self.setting);
        let (now, totals) = self.scheduler.totals();
        open_metrics(self.stats(setting, now), totals)
    }

    fn stats(&self, setting: Setting, now: Snapshot) -> StatsReport {
        StatsReport {
            schema: StatsReport::SCHEMA.into(),
            pid: std::process::id(),
            uptime_ns: self.started.elapsed().as_nanos() as u64,
            windows: setting.windows(),
            coordination: lock(&self.judge).state().clone(),
            duty_cycle: setting.duty().to_string(),
            cpus: self.scheduler.cpus().clone(),
            job: JobReport { active: now.active, processes: now.processes, tasks: now.tasks, jobs: now.jobs },
            agent: now.did.agent,
            kept_by: now.did.backend,
            sched_ext: now.did.sched_ext,
            warnings: now.did.warnings,
        }
    }

    fn limits_document(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            cpus: String,
            limits: &'a Limits,
        }
        let document = Document { cpus: self.scheduler.cpus().to_string(), limits: &self.limits };
        toml::to_string(&document).unwrap_or_else(|e| format!("# {e}\n"))
    }
}

/// The process that a write to `job` names: the writer's own, or another process of the same user.
fn process_named(text: &str, peer: &Peer) -> Result<i32, Refusal> {
    let writer = access::status(peer.tid).ok_or(Refusal::Unseen)?;
    match text.trim_matches(|c: char| c.is_whitespace() || c == '\0') {
        "" | "0" | "1" | "self" => task::process_of(peer.tid).ok_or(Refusal::Unseen),
        number => {
            let given = number.parse::<i32>().ok().filter(|p| *p > 1).ok_or(Refusal::NoProcess)?;
            if writer.own_numbers {
                return Err(Refusal::OtherNumbers);
            }
            let gone = || Refusal::Join(colony_sched::SchedError::NoProcess(given).into());
            let pid = task::process_of(given).ok_or_else(gone)?;
            let owner = access::status(pid).ok_or_else(gone)?;
            let me = std::process::id() as i32;
            if !owner.program || pid == me || task::children(me).contains(&pid) {
                return Err(Refusal::NoProgram(pid));
            }
            if peer.uid != 0 && owner.uids.iter().any(|&u| u != peer.uid) {
                return Err(Refusal::NotYours { pid, uid: peer.uid });
            }
            Ok(pid)
        }
    }
}

fn json<T: Serialize>(value: &T) -> String {
    match serde_json::to_string_pretty(value) {
        Ok(text) => text + "\n",
        Err(e) => format!("{{\"error\": \"{e}\"}}\n"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use proptest::prelude::*;

    fn service() -> Service {
        let checked = Config::default().check().expect("the defaults work on every node");
        Service::new(&checked, std::sync::mpsc::channel().0, None)
    }

    fn peer(uid: u32) -> Peer {
        Peer { tid: std::process::id() as i32, uid, groups: [uid].into() }
    }

    #[test]
    fn each_user_hears_of_its_own_refusals() {
        let service = service();
        assert!(service.write(File::Period, &peer(0), Some("x")).is_err());
        assert!(service.may_open(File::Period, &peer(7)).is_err());
        assert!(service.document(File::LastError, 0).contains("100ms"));
        assert!(service.document(File::LastError, 7).contains("user 7 may not set the windows"));
        assert_eq!(service.document(File::LastError, 8), "");
        for uid in 1000..2000 {
            assert!(service.may_open(File::Stats, &peer(uid)).is_err());
        }
        assert_eq!(lock(&service.refusals).len(), REMEMBERED, "bounded");
    }

    proptest! {
        #[test]
        fn a_refused_write_changes_no_file_and_a_taken_one_can_be_read_back(
            writes in prop::collection::vec((any::<bool>(), "(0x[0-9a-f]{8}|[0-9]{1,4}(ms|us|%)|.{0,9})"), 0..20),
        ) {
            let service = service();
            let read = || [File::Period, File::DutyCycle].map(|f| service.document(f, 0));
            for (period, written) in writes {
                let file = if period { File::Period } else { File::DutyCycle };
                let before = read();
                match service.write(file, &peer(0), Some(&written)) {
                    Err(_) => prop_assert_eq!(read(), before),
                    Ok(()) => {
                        let after = read();
                        let back = service.document(file, 0);
                        prop_assert!(service.write(file, &peer(0), Some(&back)).is_ok());
                        prop_assert_eq!(read(), after);
                    }
                }
            }
        }
    }
}
