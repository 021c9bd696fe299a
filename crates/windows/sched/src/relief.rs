// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time for others while a thread of Colony works in a real-time class.
//!
//! In some places the kernel waits by spinning. A thread that opens a file of `/proc/PID` spins while another thread removes that folder
//! (`shrink_dcache_parent`, seen with Linux 6.18). If the spinning thread has preempted the other one, the folder is never removed. A
//! guardian has spun like that for minutes on a CPU of the job, and `SIGKILL` did not end it. A lower priority is no remedy: a guardian
//! has to run before a job that never waits.
//!
//! Therefore a second thread, one priority above, wakes when the work takes longer than 100 ms. If the worker has used its CPU all that
//! time, the second thread makes the worker an ordinary thread for 5 ms, and the preempted thread runs. Shorter work wakes nobody.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use colony_node::class::{self, Class};
use nix::sys::timerfd::{ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

/// CPU time of the worker before other threads get a share.
const LONG: Duration = Duration::from_millis(100);
/// The share of other threads.
const BREAK: Duration = Duration::from_millis(5);

/// Priority of processes that undo what others have changed. The thread that watches over one has the highest.
const UNDO: u8 = 98;

/// Watches over one thread.
#[derive(Debug)]
pub(crate) struct Relief {
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The worker's number.
    worker: i32,
    /// The worker's `SCHED_FIFO` priority.
    priority: u8,
    timer: TimerFd,
    is_working: AtomicBool,
    stop: AtomicBool,
    /// Held while the worker has another class than its own.
    resting: Mutex<()>,
}

impl Relief {
    /// Watches over the calling thread, whose work is done in `SCHED_FIFO` `priority`.
    ///
    /// # Errors
    /// No thread can be started, or none may have a higher priority.
    pub(crate) fn of_this_thread(priority: u8) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            worker: nix::unistd::gettid().as_raw(),
            priority,
            timer: TimerFd::new(TimerClock::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?,
            is_working: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            resting: Mutex::new(()),
        });
        let (ready, told) = sync_channel(1);
        let of_watcher = Arc::clone(&shared);
        let body = move || of_watcher.watch(&ready);
        let watcher = std::thread::Builder::new().name("colony-relief".into()).spawn(body)?;
        let relief = Self { shared, watcher: Some(watcher) };
        told.recv().map_err(io::Error::other)??;
        Ok(relief)
    }

    /// Does work in the calling thread, which is the one that is watched over.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let shared = &self.shared;
        shared.is_working.store(true, Ordering::Release);
        // without the timer, the work is done all the same
        let _ = shared.set(LONG);
        let done = work();
        shared.is_working.store(false, Ordering::Release);
        let _ = shared.timer.unset();
        // a break may be under way: this thread has its own class again after it
        drop(shared.resting.lock().unwrap_or_else(PoisonError::into_inner));
        done
    }
}

/// As [`Relief::during`]; without a watcher, the work is only done. A thread without the privilege to have one is an ordinary thread.
pub(crate) fn relieved<T>(relief: Option<&Relief>, work: impl FnOnce() -> T) -> T {
    match relief {
        Some(relief) => relief.during(work),
        None => work(),
    }
}

/// Does work in the calling thread that a job must not keep from running, though it spins on every CPU in a real-time class: to undo
/// changes. The thread stays in the real-time class. Without the privilege for that, the work is done all the same, if later.
pub fn above_all_jobs<T>(work: impl FnOnce() -> T) -> T {
    // passed on at first: the thread that watches over this one starts at once
    let _ = class::set(0, Class::Fifo(UNDO));
    let relief = Relief::of_this_thread(UNDO).ok();
    let _ = class::set_not_inherited(0, Class::Fifo(UNDO));
    relieved(relief.as_ref(), work)
}

impl Drop for Relief {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if self.shared.set(Duration::from_nanos(1)).is_ok()
            && let Some(watcher) = self.watcher.take()
        {
            let _ = watcher.join();
        }
    }
}

impl Shared {
    fn set(&self, after: Duration) -> nix::Result<()> {
        self.timer.set(Expiration::OneShot(after.into()), TimerSetTimeFlags::empty())
    }

    fn watch(&self, ready: &SyncSender<io::Result<()>>) {
        let above = Class::Fifo(self.priority.saturating_add(1));
        let prepared = class::set_not_inherited(0, above).map_err(io::Error::other);
        let failed = prepared.is_err();
        if ready.send(prepared).is_err() || failed {
            return;
        }
        let mut used = Duration::ZERO;
        while self.timer.wait().is_ok() && !self.stop.load(Ordering::Acquire) {
            let before = std::mem::replace(&mut used, self.cpu_time());
            let held = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.is_working.load(Ordering::Acquire) {
                continue;
            }
            if used.saturating_sub(before) >= LONG / 2 {
                self.let_others_run();
                used = self.cpu_time();
            }
            drop(held);
            let _ = self.set(LONG);
        }
    }

    fn let_others_run(&self) {
        // it may have ended just now
        if class::set(self.worker, Class::Other(0)).is_ok() {
            std::thread::sleep(BREAK);
            let _ = class::set_not_inherited(self.worker, Class::Fifo(self.priority));
        }
    }

    /// CPU time that the worker has used.
    fn cpu_time(&self) -> Duration {
        // as pthread_getcpuclockid(3) makes it: of one thread (4), all of its time (2)
        let clock = ClockId::from_raw((!self.worker << 3) | 4 | 2);
        clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use colony_node::cpu;
    use colony_node::privilege::Privileges;

    use super::*;

    #[test]
    fn a_real_time_thread_that_waits_for_one_below_it_on_its_cpu_does_not_wait_for_ever() {
        if !Privileges::here().real_time {
            return colony_testing::skip("this user has no real-time classes");
        }
        let cpu = cpu::usable().expect("linux").first().expect("one");
        let done = Arc::new(AtomicBool::new(false));
        let of_lower = Arc::clone(&done);
        let worker = std::thread::spawn(move || {
            cpu::pin(cpu).expect("usable");
            let relief = Relief::of_this_thread(41).expect("privileged");
            class::set_not_inherited(0, Class::Fifo(41)).expect("privileged");
            let lower = std::thread::spawn(move || {
                // in this order: as an ordinary thread, the kernel itself would give it a share of that CPU
                class::set(0, Class::Fifo(40)).expect("privileged");
                cpu::pin(cpu).expect("usable");
                of_lower.store(true, Ordering::Release);
            });
            let since = Instant::now();
            relief.during(
                || while !done.load(Ordering::Acquire) && since.elapsed() < Duration::from_secs(5) {},
            );
            assert_eq!(class::get(0).expect("self"), Class::Fifo(41), "its own class again");
            class::set(0, Class::Other(0)).expect("ours");
            lower.join().expect("no panic");
            (done.load(Ordering::Acquire), since.elapsed())
        });
        let (is_done, waited) = worker.join().expect("no panic");
        assert!(is_done && waited < Duration::from_secs(5), "{waited:?}");
    }

    #[test]
    fn short_work_is_not_interrupted_and_its_result_comes_back() {
        if !Privileges::here().real_time {
            return colony_testing::skip("this user has no real-time classes");
        }
        std::thread::spawn(|| {
            let relief = Relief::of_this_thread(41).expect("privileged");
            assert_eq!((0..100).map(|i| relief.during(|| i)).sum::<i32>(), 4950);
            assert!(!relief.shared.is_working.load(Ordering::Acquire));
        })
        .join()
        .expect("no panic");
    }
}
