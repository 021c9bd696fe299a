// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job in a file, for a daemon that starts while a job of the one before it still runs.
//!
//! The file is `job.json` in a folder beside the mount point (`/run/colony-state`) that only root can look into. It is
//! replaced by renaming, and removed when the job has ended. A process is identified by its number and its start, so a
//! number that was given again names nobody. `colony doctor` reads the file too, to leave the job alone.

use std::io;
use std::path::{Path, PathBuf};

use colony_ledger::state::{boot, check_private, make_private};
use colony_node::file::replace;
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

/// The job of a daemon that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedJob {
    /// The boot that process numbers and starts belong to.
    boot: String,
    /// The user whose job it is.
    pub(crate) owner: u32,
    /// Its processes.
    pub(crate) processes: Vec<TaskId>,
}

/// The file in which the job is saved.
#[derive(Clone, Debug)]
pub(crate) struct JobFile {
    folder: PathBuf,
}

impl JobFile {
    /// The file of the daemon that has its files at `mount`.
    pub(crate) fn beside(mount: &Path) -> Self {
        let mut name = mount.file_name().unwrap_or_default().to_owned();
        name.push("-state");
        Self { folder: mount.with_file_name(name) }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("job.json")
    }

    /// Saves the job.
    pub(crate) fn save(&self, owner: u32, processes: &[TaskId]) -> io::Result<()> {
        make_private(&self.folder)?;
        let job = SavedJob { boot: boot()?, owner, processes: processes.to_vec() };
        replace(&self.path(), &serde_json::to_vec(&job)?)
    }

    /// Reads the job that an earlier daemon of this boot saved: the processes that still exist. `None` if there are none.
    pub(crate) fn load(&self) -> Option<SavedJob> {
        check_private(&self.folder).ok()?;
        let text = std::fs::read(self.path()).ok()?;
        let mut job: SavedJob = serde_json::from_slice(&text)
            .inspect_err(|e| tracing::warn!("{} holds no job: {e}", self.path().display()))
            .ok()
            .filter(|job: &SavedJob| boot().is_ok_and(|now| job.boot == now))?;
        job.processes.retain(|p| p.is_running_process().unwrap_or(true));
        (!job.processes.is_empty()).then_some(job)
    }

    /// Removes the file, and the folder where nothing else is in it.
    pub(crate) fn remove(&self) {
        if check_private(&self.folder).is_err() {
            return;
        }
        let _ = std::fs::remove_file(self.path());
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn me() -> TaskId {
        let tid = std::process::id().cast_signed();
        let start_ticks = colony_node::task::stat(tid).expect("alive").start_ticks;
        TaskId { tid, start_ticks }
    }

    #[test]
    fn a_job_is_read_back_without_the_processes_that_have_ended() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = JobFile::beside(&dir.path().join("colony"));
        assert!(file.load().is_none());
        let reused = TaskId { start_ticks: me().start_ticks + 1, ..me() };
        file.save(7, &[me(), reused]).expect("writable");
        let mode = std::fs::metadata(dir.path().join("colony-state")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let job = file.load().expect("it is there");
        assert_eq!((job.owner, job.processes), (7, vec![me()]));
        file.save(7, &[reused]).expect("writable");
        assert!(file.load().is_none());
        file.remove();
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
    }

    #[test]
    fn a_file_of_another_boot_or_in_an_open_folder_is_not_believed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = JobFile::beside(&dir.path().join("colony"));
        file.save(0, &[me()]).expect("writable");
        let text = std::fs::read_to_string(file.path()).expect("there");
        std::fs::write(file.path(), text.replace(&boot().expect("linux"), "another")).expect("ours");
        assert!(file.load().is_none());
        std::fs::write(file.path(), text).expect("ours");
        assert!(file.load().is_some());
        std::fs::set_permissions(&file.folder, PermissionsExt::from_mode(0o777)).expect("ours");
        assert!(file.load().is_none());
        assert!(file.save(0, &[me()]).is_err());
    }
}
