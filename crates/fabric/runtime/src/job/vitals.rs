// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks whose heartbeats are late: a rank on the launcher's host may be alive, and wait for a CPU, or be stopped.
//!
//! The kernel knows the state of the thread that sends the heartbeats. A rank is dead only if that thread neither waits for a
//! CPU nor runs. Of a rank on another host only the connection is seen, so its silence alone decides.

use std::collections::BTreeMap;
use std::time::Duration;

use colony_node::task::{self, TaskId};

use crate::transport::sockets::entry::HEARTBEAT_THREAD;

/// The time after which a stopped rank counts as dead, unless the user has chosen a timeout.
pub(super) const STOPPED: Duration = Duration::from_secs(5);
/// The time for which the thread of a dead rank neither runs nor waits for a CPU: two heartbeats.
const CONFIRMATION: Duration = Duration::from_millis(100);
/// The time from one look at the thread to the next.
const INTERVAL: Duration = Duration::from_millis(10);

/// The thread that sends a rank's heartbeats, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vitals {
    /// The process of the thread.
    pub(super) pid: i32,
    pub(super) thread: TaskId,
    /// The state letter of `/proc/PID/stat`.
    pub(super) state: u8,
    /// Nanoseconds for which the thread has run.
    pub(super) ran_ns: u64,
}

impl Vitals {
    fn read(pid: i32, tid: i32) -> Option<Self> {
        let stat = task::stat_of_thread(pid, tid).ok()?;
        let thread = TaskId { tid, start_ticks: stat.start_ticks };
        let (ran_ns, _) = task::run_and_delay_ns(tid)?;
        Some(Self { pid, thread, state: stat.state, ran_ns })
    }

    /// Finds the thread in a process or, if that is a command that starts the rank, in its descendants. If there is none, the
    /// rank has not started it yet: its first thread stands in for it.
    fn find(process: i32) -> Option<Self> {
        let threads = |pid: i32| task::threads(pid).into_iter().map(move |tid| (pid, tid));
        let mut threads = task::tree(process).into_iter().flat_map(threads);
        let found = threads.find_map(|(pid, tid)| {
            let is_it = task::name(tid).as_deref() == Some(HEARTBEAT_THREAD);
            is_it.then(|| Self::read(pid, tid)).flatten()
        });
        found.or_else(|| Self::read(process, process))
    }
}

/// The judgement on a rank that is silent for longer than its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It may be alive.
    Alive,
    /// It is alive and stopped, which the user is told now; by a debugger or not.
    Stopped {
        pid: i32,
        by_debugger: bool,
    },
    Dead,
}

/// A rank that is silent.
#[derive(Clone, Debug)]
struct Suspect {
    vitals: Vitals,
    /// Since when the thread has neither run nor waited for a CPU.
    since: Duration,
    looked: Duration,
    is_told: bool,
}

impl Suspect {
    fn new(vitals: Vitals, now: Duration) -> Self {
        Self { vitals, since: now, looked: now, is_told: false }
    }

    /// Judges the rank by its thread, which has been looked at `now`.
    fn judge(
        &mut self,
        vitals: Vitals,
        silence: Duration,
        (now, stopped): (Duration, Duration),
    ) -> Judgement {
        self.looked = now;
        let is_stopped = matches!(vitals.state, b'T' | b't');
        let is_moving = vitals.thread != self.vitals.thread || vitals.ran_ns != self.vitals.ran_ns;
        self.vitals = vitals;
        if is_stopped {
            self.since = now;
            let by_debugger = vitals.state == b't';
            if !by_debugger && silence > stopped {
                return Judgement::Dead;
            }
            let is_news = !std::mem::replace(&mut self.is_told, true);
            return match is_news {
                true => Judgement::Stopped { pid: vitals.pid, by_debugger },
                false => Judgement::Alive,
            };
        }
        let waits_for_memory = vitals.state == b'D' && silence <= stopped;
        if vitals.state == b'R' || is_moving || waits_for_memory {
            self.since = now;
        }
        match now.saturating_sub(self.since) >= CONFIRMATION {
            true => Judgement::Dead,
            false => Judgement::Alive,
        }
    }
}

/// The silent ranks of a job.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<u32, Suspect>);

impl Suspects {
    /// Judges a silent rank by the process that the launcher has started for it on its own host. `stopped` is the time after
    /// which a stopped rank counts as dead.
    pub(super) fn judge(
        &mut self,
        (rank, silence): (u32, Duration),
        process: Option<i32>,
        (now, stopped): (Duration, Duration),
    ) -> Judgement {
        let Some(process) = process else { return Judgement::Dead };
        let known = self.0.get(&rank);
        if known.is_some_and(|one| one.looked < now && now.saturating_sub(one.looked) < INTERVAL) {
            return Judgement::Alive;
        }
        let again = known.and_then(|one| {
            let again = Vitals::read(one.vitals.pid, one.vitals.thread.tid);
            again.filter(|vitals| vitals.thread == one.vitals.thread)
        });
        // the process has ended, or cannot be read
        let Some(vitals) = again.or_else(|| Vitals::find(process)) else { return Judgement::Dead };
        let suspect = self.0.entry(rank).or_insert_with(|| Suspect::new(vitals, now));
        suspect.judge(vitals, silence, (now, stopped))
    }

    /// Forgets ranks that are not silent any more. Returns those that were reported as stopped, and go on.
    pub(super) fn keep_only(&mut self, silent: &[(u32, Duration)]) -> Vec<u32> {
        let is_silent = |rank: u32| silent.iter().any(|(silent, _)| *silent == rank);
        let mut go_on = Vec::new();
        self.0.retain(|rank, one| {
            let stays = is_silent(*rank);
            if !stays && one.is_told {
                go_on.push(*rank);
            }
            stays
        });
        go_on
    }

    /// Forgets a rank that is killed.
    pub(super) fn forget(&mut self, rank: u32) {
        self.0.remove(&rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Vitals =
        Vitals { pid: 7, thread: TaskId { tid: 8, start_ticks: 5 }, state: b'S', ran_ns: 1000 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Judges a rank that is silent since time 0, every 10 ms from 500 ms on. Returns all judgements but `Alive`, with their
    /// times.
    fn judgements(until: u64, vitals: impl Fn(u64) -> Vitals) -> Vec<(u64, Judgement)> {
        let mut suspect = Suspect::new(vitals(500), ms(500));
        let times = (500..=until).step_by(10);
        let all = times.map(|at| (at, suspect.judge(vitals(at), ms(at), (ms(at), STOPPED))));
        let mut found = Vec::new();
        for one in all.filter(|(_, judgement)| *judgement != Judgement::Alive) {
            found.push(one);
            if one.1 == Judgement::Dead {
                break;
            }
        }
        found
    }

    #[test]
    fn a_rank_that_waits_for_a_cpu_is_alive_however_long() {
        let waits = |_| Vitals { state: b'R', ..START };
        assert_eq!(judgements(60_000, waits), []);
        // it runs now and then, and sleeps whenever the launcher looks
        let runs = |at: u64| Vitals { ran_ns: at / 90, ..START };
        assert_eq!(judgements(60_000, runs), []);
    }

    #[test]
    fn a_rank_that_neither_runs_nor_waits_for_a_cpu_is_dead() {
        assert_eq!(judgements(2000, |_| START), [(600, Judgement::Dead)]);
        let waits_first = |at| Vitals { state: if at < 1000 { b'R' } else { b'S' }, ..START };
        assert_eq!(judgements(2000, waits_first), [(1090, Judgement::Dead)]);
    }

    #[test]
    fn a_rank_that_waits_for_memory_is_dead_after_the_limit_for_stopped_ranks() {
        assert_eq!(judgements(9000, |_| Vitals { state: b'D', ..START }), [(5100, Judgement::Dead)]);
    }

    #[test]
    fn a_stopped_rank_is_told_once_and_is_dead_after_the_limit() {
        let told = Judgement::Stopped { pid: 7, by_debugger: false };
        let stopped = |_| Vitals { state: b'T', ..START };
        assert_eq!(judgements(9000, stopped), [(500, told), (5010, Judgement::Dead)]);
        let goes_on = |at| Vitals { state: if at < 2000 { b'T' } else { b'R' }, ..START };
        assert_eq!(judgements(9000, goes_on), [(500, told)]);
    }

    #[test]
    fn a_debugger_may_stop_a_rank_for_any_time() {
        let told = Judgement::Stopped { pid: 7, by_debugger: true };
        assert_eq!(judgements(600_000, |_| Vitals { state: b't', ..START }), [(500, told)]);
    }

    #[test]
    fn another_thread_with_the_same_number_is_another_thread() {
        let thread = |at| TaskId { tid: 8, start_ticks: at / 90 };
        assert_eq!(judgements(2000, |at| Vitals { thread: thread(at), ..START }), []);
    }

    #[test]
    fn of_a_rank_on_another_host_silence_alone_decides() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.judge((1, ms(501)), None, (ms(501), STOPPED)), Judgement::Dead);
    }

    #[test]
    fn the_thread_is_found_by_its_name_and_until_it_starts_the_first_thread_stands_in_for_it() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let process = std::process::id().cast_signed();
        let thread = std::thread::Builder::new().name(HEARTBEAT_THREAD.to_owned());
        let thread = thread.spawn(move || ended.recv().is_err()).expect("starts");
        let began = std::time::Instant::now();
        let found = loop {
            match Vitals::find(process) {
                Some(found) if found.thread.tid != process => break found,
                _ => assert!(began.elapsed() < Duration::from_secs(60), "not found"),
            }
        };
        assert_eq!(found.pid, process);
        assert!(found.thread.lives());
        drop(end);
        thread.join().expect("no panic");
    }
}
