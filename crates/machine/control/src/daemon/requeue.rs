// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of jobs. If the machine fails before a rank has begun, the job runs again; if a rank has begun, only with `--requeue`.

use std::path::PathBuf;

use super::control::Control;
use crate::ControlError;
use crate::api::{MACHINE_FAILED, PartitionState, Severity, now};
use crate::store::{MOST_REQUEUES, NewEvent, Requeue};

/// The mark of a job that has begun no rank: a file in its folder, removed before the first program starts.
const MARK: &str = "not-begun";
/// The identifier of this boot of the host.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The end of a job on its partition.
pub(super) struct Over {
    pub(super) job: u64,
    pub(super) code: i32,
    pub(super) error: Option<String>,
    /// A rank may have begun.
    pub(super) has_begun: bool,
    /// The machine has failed, not the job.
    pub(super) by_machine: bool,
}

impl Over {
    pub(super) fn by_machine(job: u64, has_begun: bool, why: String) -> Self {
        Self { job, code: MACHINE_FAILED, error: Some(why), has_begun, by_machine: true }
    }
}

impl Control {
    fn mark_file(&self, job: u64) -> PathBuf {
        self.output_files(job)[0].with_file_name(MARK)
    }

    /// Creates the mark of a job that has begun no rank. If there is no room for the file, the job counts as begun.
    pub(super) fn mark(&self, job: u64) -> Option<PathBuf> {
        let file = self.mark_file(job);
        let boot = std::fs::read(BOOT).ok()?;
        colony_node::file::replace(&file, &boot).ok().map(|()| file)
    }

    /// Returns `true` if it is certain that no rank of a job has begun. A mark of an earlier boot of the host proves nothing: the
    /// crash of the host may have undone its removal.
    pub(super) fn is_marked(&self, job: u64) -> bool {
        let marked = std::fs::read(self.mark_file(job));
        marked.is_ok_and(|boot| !boot.is_empty() && std::fs::read(BOOT).is_ok_and(|own| own == boot))
    }

    /// Ends a job, or puts it back into the queue. `news` is the number of the partition's news about the end.
    pub(super) fn job_over(
        &self,
        partition: &str,
        news: Option<u64>,
        over: Over,
    ) -> Result<(), ControlError> {
        if over.by_machine && self.runs_again(partition, news, &over)? {
            self.job_changed(over.job);
            return Ok(());
        }
        // a job whose partition has ended may still have it
        let _ = std::fs::remove_file(self.mark_file(over.job));
        let error = self.with_reason(over.code, over.error)?;
        self.end_job(over.job, over.code, error.as_deref())
    }

    /// Puts a job back into the queue, if it may run again.
    fn runs_again(&self, partition: &str, news: Option<u64>, over: &Over) -> Result<bool, ControlError> {
        let is_off = matches!(self.row(partition)?.state, PartitionState::Freeing | PartitionState::Free);
        let Some(job) = self.store().job(over.job)? else { return Ok(false) };
        if is_off || self.is_ending()? || (over.has_begun && !job.request.requeue) {
            return Ok(false);
        }
        let why = over.error.clone().unwrap_or_else(|| "the machine has failed".to_owned());
        let how =
            if over.has_begun { "ran, and runs again since it may (--requeue)" } else { "began no rank" };
        let (times, first) = (job.requeues + 1, why.lines().next().unwrap_or_default());
        let message =
            format!("the job {how}: back in the queue, time {times} of {MOST_REQUEUES} at most: {first}");
        let event = NewEvent {
            time: now(),
            severity: Severity::Warning,
            location: partition.to_owned(),
            code: "job-requeued".to_owned(),
            message,
            job: Some(over.job),
        };
        let news = news.map(|number| (partition, number));
        let again = Requeue { id: over.job, why: &why, news, event };
        let events = self.store().requeue_job(again)?;
        let is_back = events.is_some();
        self.tell_events(events.unwrap_or_default());
        Ok(is_back)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::{Job, JobBlock, JobRequest, JobState};
    use crate::store::{Change, Row};

    /// A machine whose partition A is in this state.
    fn control(state: PartitionState) -> (tempfile::TempDir, Arc<Control>) {
        let folder = tempfile::tempdir().expect("a folder");
        let control = Control::open(folder.path().to_owned()).expect("a database");
        let row = r#"{"pset": 8, "cpus": 1, "memory_mib": 16}"#;
        let (name, shape) = ("A".to_owned(), "2x2x2".parse().expect("a shape"));
        let node = serde_json::from_str(row).expect("nodes");
        let (error, boot_s, owner) = (None, None, None);
        let row = Row { name, shape, origin: [0; 3], node, state, error, boot_s, owner, news: 0 };
        control.store().add_partition(&row).expect("added");
        (folder, control)
    }

    /// A job that has been started.
    fn started(control: &Control, requeue: bool) -> u64 {
        let job = serde_json::json!({ "partition": "A", "executable": "/bin/a", "directory": "/", "requeue": requeue });
        let request: JobRequest = serde_json::from_value(job).expect("a request");
        let id = control.store().add_job((0, "root"), &request).expect("added");
        let block = JobBlock { origin: [0; 3], shape: "2x2x2".parse().expect("a shape") };
        control.store().take_jobs("A", |_, _| vec![(id, block)]).expect("taken");
        id
    }

    fn job(control: &Control, id: u64) -> Job {
        control.store().job(id).expect("read").expect("it is there")
    }

    #[test]
    fn a_job_runs_again_if_the_machine_failed_before_its_ranks_began_or_if_it_may() {
        let (_folder, control) = control(PartitionState::Ready);
        for (requeue, has_begun, by_machine, runs_again) in [
            (false, false, true, true),
            (false, true, true, false),
            (true, true, true, true),
            (true, true, false, false),
            (false, false, false, false),
        ] {
            let id = started(&control, requeue);
            let code = if by_machine { MACHINE_FAILED } else { 1 };
            let over = Over { job: id, code, error: Some("why".to_owned()), has_begun, by_machine };
            control.job_over("A", None, over).expect("stored");
            let job = job(&control, id);
            let expected = if runs_again { (JobState::Queued, None) } else { (JobState::Ended, Some(code)) };
            assert_eq!((job.state, job.code, job.error.as_deref()), (expected.0, expected.1, Some("why")));
            control.end_job(id, 0, None).expect("stored");
        }
    }

    #[test]
    fn on_a_partition_that_is_switched_off_no_job_runs_again() {
        let (_folder, control) = control(PartitionState::Ready);
        let id = started(&control, true);
        let change = Change { state: PartitionState::Freeing, error: None, boot_s: None };
        control.store().set_partition("A", &change, true).expect("stored");
        control.job_over("A", None, Over::by_machine(id, false, "why".to_owned())).expect("stored");
        assert_eq!(job(&control, id).code, Some(MACHINE_FAILED));
    }

    #[test]
    fn only_a_mark_of_this_boot_of_the_host_says_that_no_rank_has_begun() {
        let (_folder, control) = control(PartitionState::Ready);
        let id = started(&control, false);
        assert!(!control.is_marked(id), "nothing is known");
        assert_eq!(control.mark(id), None, "it has no folder yet");
        control.outputs(id).expect("a folder");
        let mark = control.mark(id).expect("made");
        assert!(control.is_marked(id));
        for other in ["", "another boot\n"] {
            std::fs::write(&mark, other).expect("written");
            assert!(!control.is_marked(id), "{other:?}");
        }
        control.mark(id).expect("made again");
        std::fs::remove_file(&mark).expect("removed");
        assert!(!control.is_marked(id), "its ranks have begun");
    }
}
