// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads: one more than the first, and more than there are CPUs.

use std::cell::{Cell, UnsafeCell};
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

use colony_fship::calls::number as n;

use crate::report::{Report, call, close, mut_of, of, shown};

pub(crate) fn try_all(r: &mut Report) {
    for round in ["first", "second"] {
        turns(r, round);
    }
    apart(r);
    signaled(r);
    barriers(r);
    robust(r);
    crowd(r);
    affinity(r);
}

/// Two threads take turns: a lock and a condition, each of which waits in the kernel.
fn turns(r: &mut Report, round: &str) {
    const TURNS: u32 = 500;
    let shared = Arc::new((Mutex::new(0u32), Condvar::new()));
    let steps = |parity: u32, (turn, changed): &(Mutex<u32>, Condvar)| {
        for _ in 0..TURNS {
            let turn = turn.lock();
            let turn = changed.wait_while(turn.expect("nobody panics"), |t| *t % 2 != parity);
            *turn.expect("nobody panics") += 1;
            changed.notify_one();
        }
    };
    let other = shared.clone();
    let thread = thread::spawn(move || steps(1, &other));
    steps(0, &shared);
    let ended = thread.join().is_ok();
    let count = *shared.0.lock().expect("nobody panics");
    r.line(n::futex, round, &format!("{count} turns, joined {ended}"));
}

thread_local! {
    static OWN: Cell<u32> = const { Cell::new(1) };
}

/// Number, data and vector registers are a thread's own; memory is not.
fn apart(r: &mut Report) {
    let number = call(n::gettid, &[]);
    let (sums, theirs) = mpsc::channel();
    let counted = Arc::new(AtomicU64::new(0));
    let count = counted.clone();
    let thread = thread::spawn(move || {
        OWN.set(OWN.get() + 1);
        for step in 0..10_000u32 {
            count.fetch_add(1, Ordering::Relaxed);
            if step % 1000 == 0 {
                let _ = sums.send((0..step).map(f64::from).map(f64::sqrt).sum::<f64>());
            }
        }
        (OWN.get(), call(n::gettid, &[]), call(n::getpid, &[]))
    });
    for _ in 0..10_000 {
        counted.fetch_add(1, Ordering::Relaxed);
    }
    let total: f64 = theirs.iter().sum();
    let Ok((own, other, pid)) = thread.join() else { return r.line(n::gettid, "thread", "panicked") };
    r.line(n::gettid, "apart", &format!("{} {}", other != number, pid == call(n::getpid, &[])));
    r.line(n::arch_prctl, "own data", &format!("{own} {}", OWN.get()));
    r.line(n::futex, "shared", &format!("{} {total:.6}", counted.load(Ordering::Relaxed)));
}

/// A signal for a thread comes to that thread, and ends its wait.
fn signaled(r: &mut Report) {
    static RAN_ON: AtomicI32 = AtomicI32::new(0);
    extern "C" fn handler(_: i32) {
        RAN_ON.store(call(n::gettid, &[]) as i32, Ordering::Relaxed);
    }
    // SAFETY: all zeroes is an empty action; the handler does only what is safe in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = ready.send(call(n::gettid, &[]) as i32);
        call(n::pause, &[])
    });
    let number = is_ready.recv().unwrap_or(0);
    // it may not wait yet: once more until it has been heard
    while !thread.is_finished() {
        // SAFETY: the thread was not joined yet.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
        thread::sleep(std::time::Duration::from_millis(1));
    }
    let result = thread.join().unwrap_or(0);
    let right = RAN_ON.load(Ordering::Relaxed) == number;
    r.line(n::tgkill, "thread", &format!("{}, on the thread {right}", shown(result)));
}

/// A robust lock of the C library, which its owner never moves.
struct Robust(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library's functions for mutexes, which alone reach it, may be called by any thread.
unsafe impl Sync for Robust {}

impl Robust {
    fn new() -> &'static Self {
        let lock = Box::leak(Box::new(Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))));
        // SAFETY: the attributes are made before they are used, and the lock has its place for good.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(lock.0.get(), &raw const attributes);
        }
        lock
    }

    fn take(&self) -> i32 {
        // SAFETY: it was made by `new`.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }

    /// Takes it after its owner has ended, mends and releases it.
    fn mend(&self) -> String {
        let taken = self.take();
        // SAFETY: as of `take`; the lock is held.
        let (mended, released) = unsafe {
            (libc::pthread_mutex_consistent(self.0.get()), libc::pthread_mutex_unlock(self.0.get()))
        };
        format!("{} {mended} {released}", shown(-i64::from(taken)))
    }
}

/// A thread that ends releases its robust locks: for who comes later, and for who waits.
fn robust(r: &mut Report) {
    let (first, second) = (Robust::new(), Robust::new());
    let _ = thread::spawn(|| first.take() + second.take()).join();
    r.line(n::set_robust_list, "owner has ended", &first.mend());
    r.line(n::set_robust_list, "owner of two has ended", &second.mend());
    r.line(n::set_robust_list, "mended", &first.take().to_string());
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::spawn(move || {
        second.take();
        let _ = ready.send(());
        // by its end the other one waits, most of the time
        thread::sleep(std::time::Duration::from_millis(20));
    });
    let _ = is_ready.recv();
    r.line(n::set_robust_list, "owner ends", &second.mend());
    let _ = thread.join();
}

/// A barrier for all threads is done while another computes, asks for one itself, or waits in the kernel.
fn barriers(r: &mut Report) {
    const PRIVATE: u64 = 1 << 3;
    const REGISTER_PRIVATE: u64 = 1 << 4;
    const TIMES: usize = 200;
    r.case(n::membarrier, "register", &[REGISTER_PRIVATE, 0, 0]);
    let all = || (0..TIMES).filter(|_| call(n::membarrier, &[PRIVATE, 0, 0]) == 0).count();
    let thread = thread::spawn(all);
    let own = all();
    r.line(n::membarrier, "both at once", &format!("{own} {}", thread.join().unwrap_or(0)));
    let computing = Arc::new(AtomicBool::new(true));
    let still = computing.clone();
    let thread = thread::spawn(move || while still.load(Ordering::Relaxed) {});
    r.line(n::membarrier, "other computes", &all().to_string());
    computing.store(false, Ordering::Relaxed);
    let _ = thread.join();
    let mut ends = [0u32; 2];
    call(n::pipe, &[mut_of(&mut ends)]);
    let [out, into] = ends.map(u64::from);
    let thread = thread::spawn(move || call(n::read, &[out, mut_of(&mut [0u8]), 1]));
    // by then it waits, most of the time
    thread::sleep(std::time::Duration::from_millis(20));
    r.line(n::membarrier, "other waits", &all().to_string());
    call(n::write, &[into, of(b"x"), 1]);
    r.line(n::read, "after barriers", &shown(thread.join().unwrap_or(0)));
    close(out);
    close(into);
}

/// More threads than CPUs: some spin, some wait in calls, some sleep; none keeps another from its turn.
fn crowd(r: &mut Report) {
    const EACH: usize = 3;
    let started = Arc::new(AtomicU64::new(0));
    let spin = |started: Arc<AtomicU64>| {
        started.fetch_add(1, Ordering::Relaxed);
        while started.load(Ordering::Relaxed) < EACH as u64 {
            std::hint::spin_loop();
        }
        call(n::sched_yield, &[])
    };
    let mut ends = [0u32; 2];
    call(n::pipe, &[mut_of(&mut ends)]);
    let [out, into] = ends.map(u64::from);
    let mut all = Vec::new();
    for n in 0..EACH {
        let started = started.clone();
        all.push(thread::spawn(move || spin(started)));
        all.push(thread::spawn(move || call(n::read, &[out, mut_of(&mut [0u8]), 1])));
        all.push(thread::spawn(move || {
            thread::sleep(std::time::Duration::from_millis(1 + n as u64));
            call(n::write, &[into, of(b"x"), 1])
        }));
    }
    let results: Vec<i64> = all.into_iter().map(|t| t.join().unwrap_or(-1)).collect();
    r.line(n::clone, "a crowd", &format!("{results:?}"));
    close(out);
    close(into);
    // a thread that waits for a time, and one that is given a signal while it does
    let late = thread::spawn(|| call(n::poll, &[0, 0, 5]));
    r.line(n::poll, "in a thread", &shown(late.join().unwrap_or(-1)));
}

/// A thread runs where it may.
fn affinity(r: &mut Report) {
    let mut mask = [0u64; 16];
    call(n::sched_getaffinity, &[0, 128, mut_of(&mut mask)]);
    let last = 1u64 << (63 - mask[0].leading_zeros().min(63));
    let there = thread::spawn(move || {
        let only = [last, 0];
        let bound = call(n::sched_setaffinity, &[0, 16, of(&only)]);
        let mut cpu = 0u32;
        call(n::getcpu, &[mut_of(&mut cpu), 0, 0]);
        let mut now = [0u64; 16];
        call(n::sched_getaffinity, &[0, 128, mut_of(&mut now)]);
        format!("{bound} {} {}", 1u64 << cpu == last, now[0] == last)
    });
    r.line(n::sched_setaffinity, "last CPU", &there.join().unwrap_or_default());
    let nobody = i32::MAX as u64;
    r.case(n::sched_getaffinity, "of nobody", &[nobody, 128, mut_of(&mut mask)]);
    r.case(n::sched_setaffinity, "of nobody", &[nobody, 128, of(&mask)]);
}
