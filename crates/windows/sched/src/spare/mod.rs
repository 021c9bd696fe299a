// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spare cores: the job has its cores for itself, and everything else of the node runs on the others.
//!
//! Oral et al. call this *core specialization*: on Jaguar, the operating system's noise on one core of each node gave allreduce two
//! orders of magnitude. A [`Reservation`] does it with what this node's Linux has, and says what it has:
//!
//! * a control group for the job: an isolated cpuset partition of version 2, else a balanced one, else a plain cpuset, else
//!   affinities that are enforced at each scan,
//! * affinities of all other tasks, kernel threads included,
//! * settings that send work to the job's CPUs: interrupts, unbound workqueues, writeback, packets, timers; as a
//!   transaction of `colony tune`,
//! * what is left is counted and named.
//!
//! All of it is in an undo file before it is done. It is undone by [`Reservation::end`], else by a guard process, else by the
//! release agent, else by the next process of Colony that changes the node.

mod affinity;
mod changes;
mod choice;
mod group;
mod guard;
mod interrupts;
mod report;
mod settings;
mod warden;

use std::fs::File;
use std::sync::Arc;

use colony_node::task::TaskId;

use crate::SchedError;
use crate::cgroup::ThreadEntry;
use crate::job::Job;
use crate::undo::{Kept, UndoFile, release};
use affinity::OtherTasks;
use changes::{Changes, SPARE, alone};
use group::Group;
use guard::Guard;
use interrupts::Comparison;
use warden::{Warden, Watched};

pub use choice::{SpareCores, Split};
pub use report::{Arrivals, Partition, SettingChange, SpareReport, Staying};

pub(crate) use changes::restore_spare;
pub(crate) use guard::main_if_asked;

/// Cores that are the job's alone while it lives.
#[derive(Debug)]
pub struct Reservation {
    split: Split,
    guard: Option<Guard>,
    warden: Option<Warden>,
    entry: Option<File>,
    thread_entry: Option<ThreadEntry>,
    interrupts: std::io::Result<Comparison>,
    report: SpareReport,
}

impl Reservation {
    /// Reserves the job's CPUs of `split`. What this node does not allow is left out and is in the
    /// [report](SpareReport). The tasks of `job` are kept on the job's CPUs.
    ///
    /// # Errors
    /// [`SchedError::Config`] if another run has reserved the CPUs meanwhile, [`SchedError::System`] if the undo file cannot be written, [`SchedError::Guardian`] if the guard does not start: nothing is
    /// changed then.
    pub fn make(split: Split, job: &Arc<Job>) -> Result<Self, SchedError> {
        let interrupts = Comparison::sample(&split.job);
        let failed = |what| move |source| SchedError::System { what, source };
        let report = SpareReport { spare: split.spare.clone(), ..SpareReport::default() };
        let mut reservation =
            Self { split, guard: None, warden: None, entry: None, thread_entry: None, interrupts, report };
        if !nix::unistd::geteuid().is_root() {
            reservation.report.fallbacks.push(
                "moving interrupts, kernel threads and other users' tasks needs root; the job is bound to its CPUs"
                    .into(),
            );
            let changes = Changes { job: reservation.split.job.clone(), ..Changes::default() };
            reservation.watch(changes, None, OtherTasks::of_unprivileged_user(), job)?;
            return Ok(reservation);
        }
        restore_spare(None);
        release::arm_or_log();
        let _alone = alone().map_err(failed("locking the reservations of this node"))?;
        // another run may have reserved them since the CPUs were split
        reservation.split.check()?;
        let undo = UndoFile::new(SPARE).map_err(failed("making an undo file"))?;
        let mut others = OtherTasks::new().map_err(failed("opening the ledger of affinities"))?;
        let mut changes = Changes {
            job: reservation.split.job.clone(),
            spare: reservation.split.spare.clone(),
            affinities: others.owner().map(Kept::Ledger),
            ..Changes::default()
        };
        undo.save(&changes).map_err(failed("writing an undo file"))?;
        let kept = others.keep(&changes.job, &changes.spare);
        kept.inspect_err(|_| undo.remove()).map_err(failed("writing the ledger of affinities"))?;
        let start = || Guard::start(undo.path()).inspect_err(|_| undo.remove());
        let guard = job.start_stranger(start, Guard::pid)?;
        reservation.guard = Some(guard);
        // settings first: the kernel itself narrows some of them while a partition is isolated, and forgets that when it is not
        reservation.change_settings(&mut changes, &undo);
        reservation.make_group(&mut changes, &undo);
        reservation.tell_ledger(&mut others);
        reservation.move_tasks(&mut others);
        reservation.watch(changes, Some(undo), others, job)?;
        Ok(reservation)
    }

    fn make_group(&mut self, changes: &mut Changes, undo: &UndoFile<Changes>) {
        let Ok(me) = TaskId::of(std::process::id().cast_signed()) else { return };
        let mut save = |group: &Group| {
            changes.group = Some(group.clone());
            undo.save(changes)
        };
        let (made, reasons) = Group::make(&self.split.job, me, &mut save);
        self.report.fallbacks.extend(reasons);
        changes.group = None;
        if let Some((group, kind)) = made {
            match File::options().write(true).open(group.entry()) {
                Ok(entry) => self.entry = Some(entry),
                Err(e) => self.report.fallbacks.push(format!("{}: {e}", group.entry().display())),
            }
            self.thread_entry = group.thread_entry();
            self.report.partition = kind;
            changes.group = Some(group);
        }
    }

    fn change_settings(&mut self, changes: &mut Changes, undo: &UndoFile<Changes>) {
        let name = format!("spare-{}", std::process::id());
        changes.transaction = Some(name.clone());
        let made = undo
            .save(changes)
            .map_err(|e| e.to_string())
            .and_then(|()| settings::change(&name, &self.split.job));
        match made {
            Ok(changed) => (self.report.settings, self.report.left) = (changed.settings, changed.left),
            Err(reason) => {
                changes.transaction = None;
                self.report.fallbacks.push(format!("settings of the node are unchanged: {reason}"));
            }
        }
    }

    /// The ledger is ready for a partition; this says if there is none.
    fn tell_ledger(&mut self, others: &mut OtherTasks) {
        if matches!(self.report.partition, Partition::Isolated | Partition::Balanced) {
            return;
        }
        if let Err(e) = others.kernel_changes_nothing() {
            self.report.fallbacks.push(format!("choices of other tasks during the run may be lost: {e}"));
        }
    }

    fn move_tasks(&mut self, others: &mut OtherTasks) {
        match others.move_off(&self.split.job, &self.split.spare, |_| false) {
            Ok(moved) => self.report.moved = moved,
            Err(e) => self.report.fallbacks.push(format!("other tasks stay where they are: {e}")),
        }
    }

    fn watch(
        &mut self,
        changes: Changes,
        undo: Option<UndoFile<Changes>>,
        others: OtherTasks,
        job: &Arc<Job>,
    ) -> Result<(), SchedError> {
        let watched =
            Watched { changes, undo, others, partition: self.report.partition, job: Arc::clone(job) };
        self.warden = Some(Warden::start(watched)?);
        Ok(())
    }

    /// The file through which a process enters the job's group, by writing `0`.
    pub(crate) const fn entry(&self) -> Option<&File> {
        self.entry.as_ref()
    }

    /// The way of a thread of this process into the job's group, if it cannot reach the job's CPUs otherwise.
    pub(crate) fn thread_entry(&self) -> Option<ThreadEntry> {
        self.thread_entry.clone()
    }

    /// Counts interrupts from here on: the job starts.
    pub(crate) fn job_starts(&mut self) {
        if let Err(e) = self.interrupts.as_mut().map_or(Ok(()), Comparison::start) {
            self.interrupts = Err(e);
        }
    }

    /// Writes down the processes of the job at once: if all of Colony were killed before the next scan, nobody would know which processes
    /// to unbind, unless a group has them.
    pub(crate) fn job_has_members(&self) {
        if let Some(warden) = &self.warden {
            warden.scan_now();
        }
    }

    /// Leaves balancing to a scheduler that balances isolated CPUs too, as those of `sched_ext` do.
    pub(crate) fn is_balanced_otherwise(&self) {
        if let Some(warden) = &self.warden {
            warden.never_balance();
        }
    }

    /// Verifies the reservation, undoes it, and reports.
    #[must_use]
    pub fn end(mut self) -> SpareReport {
        let mut report = std::mem::take(&mut self.report);
        let arrivals = match &self.interrupts {
            Ok(comparison) => comparison.arrivals().map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        match arrivals {
            Ok(arrivals) => report.interrupts = arrivals,
            Err(reason) => report
                .fallbacks
                .push(format!("interrupts on the job's CPUs are not counted: /proc/interrupts: {reason}")),
        }
        if self.guard.is_some() {
            for rule in settings::found_again(&self.split.job) {
                if let Some(setting) =
                    report.settings.iter_mut().find(|s| s.rule == rule && s.refused.is_none())
                {
                    setting.refused = Some("the doctor finds it again".into());
                }
            }
        }
        if let Some(warden) = self.warden.take() {
            let ended = warden.end();
            report.partition = ended.partition;
            report.moved += ended.moved;
            report.brought_back = ended.brought_back;
            report.staying = ended.staying;
            report.fallbacks.extend(ended.notes);
            report.not_undone = ended.not_undone;
        }
        report
    }
}
