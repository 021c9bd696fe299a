// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that looks at the node, and writes the health file when the result changes.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use colony_node::health::{HealthReport, State};
use colony_time::clock::Clock;

use super::file::HealthFile;
use super::rules::HealthRules;
use super::watcher::Watcher;
use crate::privileges;

/// The time from one look to the next.
const EVERY: Duration = Duration::from_secs(1);

/// The longest wait for the end of the thread: a device may not answer.
const END: Duration = Duration::from_secs(1);

/// The thread. When this is dropped, the thread removes its file and ends.
#[derive(Debug)]
pub(crate) struct Watching {
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.ended.recv_timeout(END);
    }
}

/// Starts the thread, if the rules ask for it.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn start(rules: &HealthRules, file: HealthFile) -> io::Result<Option<Watching>> {
    if !rules.watch {
        return Ok(None);
    }
    let (stop, stopped) = mpsc::channel();
    let (runs, ended) = mpsc::channel::<()>();
    let watcher = Watcher::new(rules.clone(), file.marker());
    let work = move || {
        let _runs = runs;
        // also `scontrol`, which this thread starts, gets none
        match privileges::keep_only(&[]) {
            Ok(()) => watch(watcher, &file, &stopped),
            Err(e) => {
                tracing::error!("the health of the node is not watched: cannot give up privileges: {e}")
            }
        }
    };
    std::thread::Builder::new().name("colonyd-health".into()).spawn(work)?;
    Ok(Some(Watching { stop: Some(stop), ended }))
}

fn watch(mut watcher: Watcher, file: &HealthFile, stopped: &Receiver<()>) {
    let (began, mut written) = (Instant::now(), Written::default());
    loop {
        let report = watcher.look(began.elapsed(), Clock::Realtime.now_ns());
        written.update(report, file);
        if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return file.remove();
        }
    }
}

/// What is in the file.
#[derive(Debug, Default)]
struct Written {
    report: Option<HealthReport>,
    state: Option<State>,
    /// A failure was logged, and no write has succeeded since.
    has_failed: bool,
}

impl Written {
    /// Writes the report if it is not in the file.
    fn update(&mut self, report: HealthReport, file: &HealthFile) {
        if self.state.replace(report.state) != Some(report.state) {
            match report.state {
                State::Warning => tracing::warn!("this node may fail: {}", report.summary()),
                State::Healthy => tracing::info!("nothing warns of a failure of this node"),
            }
        }
        // the guard of a daemon before this one may have removed it
        if self.report.as_ref() == Some(&report) && file.path().exists() {
            return;
        }
        match file.save(&report) {
            Ok(()) => {
                self.report = Some(report);
                self.has_failed = false;
            }
            Err(e) => {
                self.report = None;
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(
                        "programs do not see warnings about this node: {}: {e}",
                        file.path().display()
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_follows_the_node_and_goes_with_the_thread() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = HealthFile::beside(&dir.path().join("colony"));
        let rules = HealthRules { sysfs: dir.path().into(), ..HealthRules::default() };
        assert!(
            start(&HealthRules { watch: false, ..rules.clone() }, file.clone()).expect("a thread").is_none()
        );
        let watching = start(&rules, file.clone()).expect("a thread").expect("wanted");
        let until = |state: State| {
            while HealthReport::read(&file.path()).ok().map(|report| report.state) != Some(state) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        until(State::Healthy);
        std::fs::write(file.marker(), "").expect("room");
        until(State::Warning);
        std::fs::remove_file(file.path()).expect("ours");
        until(State::Warning);
        std::fs::remove_file(file.marker()).expect("ours");
        until(State::Healthy);
        drop(watching);
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
    }
}
