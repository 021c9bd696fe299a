// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of jobs that the machine keeps, one folder a job: how much of a job, and how long.

use std::path::PathBuf;
use std::sync::Arc;

use super::control::Control;
use crate::ControlError;
use crate::api::Severity;

/// Bytes of each stream of a job that the machine keeps at most. Files of the user have no such limit.
pub(super) const STREAM: u64 = 256 << 20;

impl Control {
    fn outputs_folder(&self) -> PathBuf {
        self.folder().join("jobs")
    }

    fn output_folder(&self, job: u64) -> PathBuf {
        self.outputs_folder().join(job.to_string())
    }

    /// The files of a job's output.
    pub(super) fn output_files(&self, job: u64) -> [PathBuf; 2] {
        let folder = self.output_folder(job);
        ["stdout", "stderr"].map(|stream| folder.join(stream))
    }

    /// The files of a job's output, in a folder that is there.
    pub(super) fn outputs(&self, job: u64) -> Result<[PathBuf; 2], ControlError> {
        let files = self.output_files(job);
        if let Some(folder) = files[0].parent() {
            std::fs::create_dir_all(folder).map_err(ControlError::io(folder.display().to_string()))?;
        }
        Ok(files)
    }

    /// Counts the output of a job that has ended, and removes that of earlier jobs of its user if it is too much together.
    pub(super) fn count_output(&self, job: u64) -> Result<(), ControlError> {
        let length = |file: &PathBuf| std::fs::symlink_metadata(file).map_or(0, |file| file.len());
        let bytes = self.output_files(job).iter().map(length).sum();
        let removed = self.store().store_output_size(job, bytes)?;
        removed.into_iter().for_each(|id| self.remove_outputs(id));
        Ok(())
    }

    /// Removes the output of a job. A job that never began has none.
    pub(super) fn remove_outputs(&self, job: u64) {
        let folder = self.output_folder(job);
        match std::fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                let text =
                    format!("the output of job {job} cannot be removed from {}: {e}", folder.display());
                self.report(Severity::Warning, "", "job-output", text, None);
            }
            _ => {}
        }
    }

    /// Counts and removes what a daemon before this one did not: it was killed meanwhile, or it was of an older version.
    fn count_outputs(&self) -> Result<(), ControlError> {
        let folders = std::fs::read_dir(self.outputs_folder());
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        for id in folders.into_iter().flatten().filter_map(name) {
            let job = self.store().job(id)?;
            match job {
                Some(job) if job.is_output_removed => self.remove_outputs(id),
                Some(_) if self.store().lacks_output_size(id)? => self.count_output(id)?,
                None if self.store().is_forgotten(id)? => self.remove_outputs(id),
                _ => {}
            }
        }
        Ok(())
    }

    /// As [`Control::count_outputs`], beside requests: there may be many.
    pub(super) fn count_outputs_beside(self: &Arc<Self>) -> Result<(), ControlError> {
        let control = self.clone();
        let count = move || {
            if let Err(error) = control.count_outputs() {
                let text = format!("the outputs of ended jobs are not counted: {error}");
                control.report(Severity::Warning, "", "job-output", text, None);
            }
        };
        std::thread::Builder::new().spawn(count).map(drop).map_err(ControlError::io("starting a thread"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_daemon_has_left_is_counted_or_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let control = Control::open(folder.path().to_owned()).expect("a database");
        let job = r#"{"partition": "A", "executable": "/bin/a", "directory": "/"}"#;
        let request = serde_json::from_str(job).expect("a request");
        let submit = || {
            let id = control.store().add_job((5, "eve"), &request).expect("added");
            let [stdout, _] = control.outputs(id).expect("a folder");
            std::fs::write(stdout, "words").expect("written");
            id
        };
        let [runs, ended, large, next] = [(); 4].map(|()| submit());
        for id in [ended, large, next] {
            control.store().end_job(id, 0, None).expect("stored");
        }
        control.store().store_output_size(large, 2 << 30).expect("stored");
        assert_eq!(control.store().store_output_size(next, 1).expect("stored"), [large]);
        control.count_outputs().expect("counted");
        assert!(!control.store().lacks_output_size(ended).expect("read"));
        let has_output = |id: u64| control.output_files(id)[0].exists();
        assert_eq!([runs, ended, large, next].map(has_output), [true, true, false, true]);
    }
}
