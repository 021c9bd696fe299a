// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that run side by side: which may start when, within the CPUs of the machine.
//!
//! A [`Job`] starts when the jobs it comes [after](Job::after) have passed, nobody holds one of its
//! [locks](Job::locks), and the CPUs that it keeps busy are left. A job that fails does not stop the others; jobs that
//! come after a failed one are reported as not run.

use std::collections::BTreeMap;
use std::sync::mpsc;

use crate::process::Times;

/// A step of a run.
pub(crate) struct Job {
    pub(crate) name: String,
    /// Names of the jobs that must have passed before.
    pub(crate) after: Vec<String>,
    /// Names of jobs that must have ended before, passed or failed.
    pub(crate) behind: Vec<String>,
    /// CPUs that the job keeps busy on average.
    pub(crate) cpus: f64,
    /// Expected duration in seconds: of two jobs that can start, the one with more work behind it starts first.
    pub(crate) expected_s: f64,
    /// Resources that only one job may use at a time.
    pub(crate) locks: Vec<String>,
    /// A background job has a low priority, and does not count as a user of CPUs. One runs at a time.
    pub(crate) background: bool,
    pub(crate) work: Work,
}

/// What a job does, on a thread of its own.
pub(crate) type Work = Box<dyn FnOnce() -> Outcome + Send>;

impl Job {
    /// A job that needs one CPU and nothing else.
    pub(crate) fn new(name: impl Into<String>, work: impl FnOnce() -> Outcome + Send + 'static) -> Self {
        Self {
            name: name.into(),
            after: Vec::new(),
            behind: Vec::new(),
            cpus: 1.0,
            expected_s: 0.0,
            locks: Vec::new(),
            background: false,
            work: Box::new(work),
        }
    }

    /// The job must wait until these have passed.
    pub(crate) fn after<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.after.extend(names.into_iter().map(Into::into));
        self
    }

    /// The job must wait until these have ended, even if they fail.
    pub(crate) fn behind<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.behind.extend(names.into_iter().map(Into::into));
        self
    }

    /// The job shares this resource with no other.
    pub(crate) fn lock(mut self, name: impl Into<String>) -> Self {
        self.locks.push(name.into());
        self
    }

    /// The job keeps this many CPUs busy.
    pub(crate) fn cpus(mut self, cpus: f64) -> Self {
        self.cpus = cpus;
        self
    }

    /// The job takes about so many seconds.
    pub(crate) fn expected(mut self, seconds: f64) -> Self {
        self.expected_s = seconds;
        self
    }

    /// The job takes what other jobs leave of the processor.
    pub(crate) fn background(mut self) -> Self {
        self.background = true;
        self
    }
}

/// How a job ended.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Why the job failed; `None` if it passed.
    pub(crate) failure: Option<String>,
    pub(crate) times: Times,
    /// Words for the line that reports the end, such as the number of tests.
    pub(crate) detail: String,
    /// Jobs that are known only now.
    pub(crate) more: Vec<Job>,
}

/// A job that has ended, or that could not run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) times: Times,
    pub(crate) detail: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Passed,
    Failed(String),
    /// Not run, because this other job failed.
    NotRun(String),
}

/// Runs jobs until none is left, and returns how each ended, in this order. `report` is called at each end.
pub(crate) fn run_all(jobs: Vec<Job>, cpus: f64, mut report: impl FnMut(&Ended)) -> Vec<Ended> {
    let (sender, receiver) = mpsc::channel::<(String, Outcome)>();
    let mut waiting = jobs;
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let mut ended: Vec<Ended> = Vec::new();
    loop {
        drop_unreachable(&mut waiting, &mut ended, &mut report);
        while let Some(next) = choose(&waiting, &running, &ended, cpus) {
            let job = waiting.remove(next);
            running.insert(job.name.clone(), Running::of(&job));
            let (sender, name, work) = (sender.clone(), job.name, job.work);
            std::thread::spawn(move || {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                let outcome = outcome.unwrap_or_else(|_| Outcome {
                    failure: Some("the driver panicked: this is a fault of xtask".into()),
                    ..Outcome::default()
                });
                // The receiver outlives every job.
                let _ = sender.send((name, outcome));
            });
        }
        if running.is_empty() {
            // What is left waits for a job that does not exist.
            for job in waiting {
                let state =
                    State::NotRun(job.after.into_iter().chain(job.behind).collect::<Vec<_>>().join(", "));
                ended.push(Ended { name: job.name, state, times: Times::default(), detail: String::new() });
                report(&ended[ended.len() - 1]);
            }
            return ended;
        }
        let Ok((name, outcome)) = receiver.recv() else { return ended };
        running.remove(&name);
        waiting.extend(outcome.more);
        let state = outcome.failure.map_or(State::Passed, State::Failed);
        ended.push(Ended { name, state, times: outcome.times, detail: outcome.detail });
        report(&ended[ended.len() - 1]);
    }
}

/// What a running job keeps from the others.
struct Running {
    cpus: f64,
    locks: Vec<String>,
    background: bool,
}

impl Running {
    fn of(job: &Job) -> Self {
        Self { cpus: job.cpus, locks: job.locks.clone(), background: job.background }
    }
}

/// Moves jobs that come after a failed one to the ended ones, until there are none.
fn drop_unreachable(waiting: &mut Vec<Job>, ended: &mut Vec<Ended>, report: &mut impl FnMut(&Ended)) {
    let failed =
        |ended: &[Ended], name: &String| ended.iter().any(|e| e.name == *name && e.state != State::Passed);
    while let Some(i) = waiting.iter().position(|job| job.after.iter().any(|name| failed(ended, name))) {
        let job = waiting.remove(i);
        let culprit = job.after.iter().find(|name| failed(ended, name)).cloned().unwrap_or_default();
        ended.push(Ended {
            name: job.name,
            state: State::NotRun(culprit),
            times: Times::default(),
            detail: String::new(),
        });
        report(&ended[ended.len() - 1]);
    }
}

/// The waiting job to start now, if one can start: the one with the most work behind it.
fn choose(waiting: &[Job], running: &BTreeMap<String, Running>, ended: &[Ended], cpus: f64) -> Option<usize> {
    let used: f64 = running.values().filter(|r| !r.background).map(|r| r.cpus).sum();
    let in_foreground = running.values().filter(|r| !r.background).count();
    let in_background = running.len() - in_foreground;
    let has_ended = |name: &String| ended.iter().any(|e| e.name == *name);
    let has_passed = |name: &String| ended.iter().any(|e| e.name == *name && e.state == State::Passed);
    let can_start = |job: &Job| {
        let free = |lock: &String| !running.values().any(|r| r.locks.contains(lock));
        let fits = if job.background {
            // It would hold up a job of the foreground that needs the same.
            let wanted = |lock| waiting.iter().any(|other| !other.background && other.locks.contains(lock));
            in_background == 0 && !job.locks.iter().any(wanted)
        } else {
            // A job that needs more than there is runs when no other does.
            in_foreground == 0 || used + job.cpus <= cpus
        };
        fits && job.after.iter().all(has_passed)
            && job.behind.iter().all(has_ended)
            && job.locks.iter().all(free)
    };
    let left = |job: &Job| (!job.background, work_behind(job, waiting, waiting.len()), job.expected_s);
    let candidates = waiting.iter().enumerate().filter(|(_, job)| can_start(job));
    // Of two that are equal the first one wins.
    candidates
        .rev()
        .max_by(|(_, a), (_, b)| left(a).partial_cmp(&left(b)).unwrap_or(std::cmp::Ordering::Equal))
        .map(|(i, _)| i)
}

/// The seconds of work that cannot begin, or go on, before this job has ended: its own and that of the jobs with the same first lock,
/// which run one after another; or the work behind a job that waits for this one, if that is more. `steps` bounds how many jobs that
/// wait for each other are followed.
fn work_behind(job: &Job, waiting: &[Job], steps: usize) -> f64 {
    let shares = |other: &&Job| other.locks.first() == job.locks.first();
    let row: f64 = waiting.iter().filter(shares).map(|other| other.expected_s).sum();
    let own = if job.locks.is_empty() { job.expected_s } else { row };
    let waits = |other: &&Job| {
        !other.background && other.after.iter().chain(&other.behind).any(|name| *name == job.name)
    };
    let Some(steps) = steps.checked_sub(1) else { return own };
    waiting.iter().filter(waits).map(|other| work_behind(other, waiting, steps)).fold(own, f64::max)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier, Mutex};

    use super::*;

    fn passing(name: &str) -> Job {
        Job::new(name, Outcome::default)
    }

    fn failing(name: &str) -> Job {
        Job::new(name, || Outcome { failure: Some("no".into()), ..Outcome::default() })
    }

    fn names(ended: &[Ended]) -> Vec<&str> {
        ended.iter().map(|e| e.name.as_str()).collect()
    }

    #[test]
    fn a_failed_job_hides_only_what_needs_it() {
        let jobs = vec![
            passing("wheels").after(["build"]),
            passing("report").behind(["build"]),
            failing("build"),
            passing("lints"),
            passing("python").after(["wheels"]),
        ];
        let ended = run_all(jobs, 1.0, |_| {});
        let state = |name: &str| &ended.iter().find(|e| e.name == name).expect("every job ends").state;
        assert_eq!(state("build"), &State::Failed("no".into()));
        assert_eq!(state("wheels"), &State::NotRun("build".into()));
        assert_eq!(state("python"), &State::NotRun("wheels".into()));
        assert_eq!((state("lints"), state("report")), (&State::Passed, &State::Passed));
    }

    #[test]
    fn a_job_after_one_that_does_not_exist_is_reported_and_not_waited_for() {
        let ended = run_all(vec![passing("a").after(["nothing"])], 1.0, |_| {});
        assert_eq!(ended[0].state, State::NotRun("nothing".into()));
    }

    #[test]
    fn jobs_that_are_known_later_run_too() {
        let build = Job::new("build", || Outcome { more: vec![passing("test")], ..Outcome::default() });
        assert_eq!(names(&run_all(vec![build], 2.0, |_| {})), ["build", "test"]);
    }

    #[test]
    fn locks_and_cpus_bound_what_runs_side_by_side() {
        // (running now, most at a time) of the jobs with the lock, and of all
        let counts: Arc<[AtomicUsize; 4]> = Arc::default();
        let job = |i: usize| {
            let counts = counts.clone();
            let locked = i.is_multiple_of(2);
            let job = Job::new(format!("job {i}"), move || {
                for at in (0..4).step_by(2).filter(|at| *at == 2 || locked) {
                    let now = counts[at].fetch_add(1, Ordering::SeqCst) + 1;
                    counts[at + 1].fetch_max(now, Ordering::SeqCst);
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
                for at in (0..4).step_by(2).filter(|at| *at == 2 || locked) {
                    counts[at].fetch_sub(1, Ordering::SeqCst);
                }
                Outcome::default()
            });
            if locked { job.lock("target").cpus(0.5) } else { job.cpus(0.5) }
        };
        let ended = run_all((0..40).map(job).collect(), 1.5, |_| {});
        assert_eq!(ended.len(), 40);
        assert_eq!(counts[1].load(Ordering::SeqCst), 1, "the lock is for one job at a time");
        assert!(counts[3].load(Ordering::SeqCst) <= 3, "jobs of half a CPU, and one and a half CPUs");
    }

    #[test]
    fn two_jobs_that_fit_run_at_the_same_time_and_a_background_job_beside_them() {
        let all = Arc::new(Barrier::new(3));
        let meet = |name: &str| {
            let all = all.clone();
            Job::new(name, move || {
                all.wait();
                Outcome::default()
            })
        };
        let jobs = vec![meet("a"), meet("b"), meet("c").background()];
        assert_eq!(run_all(jobs, 2.0, |_| {}).len(), 3);
    }

    #[test]
    fn a_background_job_leaves_its_lock_to_jobs_of_the_foreground() {
        let jobs = vec![
            passing("lints").background().lock("cargo"),
            passing("tools"),
            passing("wheels").after(["tools"]).lock("cargo"),
        ];
        let ended = run_all(jobs, 1.0, |_| {});
        assert_eq!(names(&ended), ["tools", "wheels", "lints"]);
    }

    #[test]
    fn a_job_that_needs_more_cpus_than_there_are_runs_alone() {
        let ended = run_all(vec![passing("wide").cpus(64.0), passing("narrow")], 2.0, |_| {});
        assert!(ended.iter().all(|e| e.state == State::Passed));
    }

    #[test]
    fn the_longest_row_of_a_lock_begins_first() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let job = |name: &'static str, expected_s: f64, lock: &str| {
            let order = order.clone();
            let mut job = Job::new(name, move || {
                order.lock().expect("no panic").push(name);
                Outcome::default()
            });
            job.expected_s = expected_s;
            if lock.is_empty() { job } else { job.lock(lock) }
        };
        let jobs = vec![job("long", 50.0, ""), job("first", 30.0, "node"), job("second", 29.0, "node")];
        run_all(jobs, 1.0, |_| {});
        assert_eq!(*order.lock().expect("no panic"), ["first", "long", "second"]);
    }

    #[test]
    fn a_short_job_that_a_long_row_waits_for_begins_before_the_rest() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let job = |name: &'static str, expected_s: f64| {
            let order = order.clone();
            let work = move || {
                order.lock().expect("no panic").push(name);
                Outcome::default()
            };
            Job::new(name, work).expected(expected_s)
        };
        let jobs = vec![
            job("long", 50.0),
            job("short", 1.0),
            job("download", 0.0),
            job("image", 0.0).after(["download"]),
            job("virtual nodes", 30.0).after(["image"]).lock("emulators"),
            job("more virtual nodes", 40.0).behind(["image"]).lock("emulators"),
        ];
        run_all(jobs, 1.0, |_| {});
        let expected = ["download", "image", "more virtual nodes", "long", "virtual nodes", "short"];
        assert_eq!(*order.lock().expect("no panic"), expected);
    }

    #[test]
    fn jobs_that_wait_for_each_other_are_reported_and_not_waited_for() {
        let jobs = vec![passing("a").after(["b"]), passing("b").after(["a"]), passing("c")];
        let ended = run_all(jobs, 1.0, |_| {});
        assert_eq!(names(&ended), ["c", "a", "b"]);
        assert_eq!(ended[1].state, State::NotRun("b".into()));
    }

    #[test]
    fn a_panic_of_the_driver_fails_its_job_alone() {
        let jobs = vec![Job::new("bad", || panic!("as the test wants")), passing("good")];
        let ended = run_all(jobs, 1.0, |_| {});
        assert!(ended.iter().any(|e| matches!(&e.state, State::Failed(why) if why.contains("xtask"))));
        assert!(ended.iter().any(|e| e.name == "good" && e.state == State::Passed));
    }
}
