// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a process, of its threads and of its timer.

use core::sync::atomic::{AtomicUsize, Ordering};

use cnk_logic::clock::next_end;
use cnk_logic::signals::{Signals, Stack, Thread as ThreadSignals};
use cnk_logic::space::Space;
use colony_fship::layout::{self, STACK};

use super::memory::User;
use crate::machine::lock::{Guard, Lock};
use crate::machine::{CPUS, ops};
use crate::time;

/// A thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// It runs.
    pub alive: bool,
    /// Its mask and the like.
    pub signals: ThreadSignals,
    /// The exception that its next handler is told of: vector, error code, address.
    pub fault: (u64, u64, u64),
    /// Address of a word that is cleared, and whose waiters are woken, when the thread ends; 0 for none.
    pub clear_tid: u64,
    /// Head of its list of robust locks.
    pub robust: u64,
    /// It waits at this address, for wakers of these bits.
    pub futex: Option<(u64, u32)>,
}

impl Thread {
    /// None.
    pub const NONE: Self = Self {
        alive: false,
        signals: ThreadSignals::NEW,
        fault: (0, 0, 0),
        clear_tid: 0,
        robust: 0,
        futex: None,
    };
}

/// `ITIMER_REAL`.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// Its next end, on the monotonic clock.
    pub at_ns: Option<u64>,
    /// It starts anew for so long; 0 for not.
    pub interval_ns: u64,
    /// CPU whose interrupt it is.
    pub cpu: usize,
}

impl Timer {
    /// Off.
    pub const OFF: Self = Self { at_ns: None, interval_ns: 0, cpu: 0 };

    /// Returns `true` if it has ended, and sets its next end.
    pub fn ended(&mut self) -> bool {
        let now = time::monotonic_ns();
        let Some(at) = self.at_ns.filter(|&at| at <= now) else { return false };
        self.at_ns = match self.interval_ns {
            0 => None,
            // ends that nobody has seen are one
            interval => Some(next_end(at, now, interval)),
        };
        true
    }
}

/// Bit that makes the number of the second thread from that of the first.
const SECOND: u32 = 1 << 21;

/// One process of the job.
pub struct Process {
    /// As the job block has it.
    pub block: layout::Process,
    /// Its memory.
    pub user: User,
    /// Its heap and mappings.
    pub space: Space,
    /// It has ended, or is ending.
    pub ended: bool,
    /// Its signals.
    pub signals: Signals,
    /// Its threads, by CPU.
    pub threads: [Thread; CPUS],
    /// The timer of `alarm` and `setitimer`.
    pub timer: Timer,
    /// Time stamp counter at its start.
    pub started: u64,
}

static PROCESSES: [Lock<Process>; CPUS] = [const { Lock::new(Process::none()) }; CPUS];
/// Processes of the job.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Of no process: all zero.
const NO_BLOCK: layout::Process = zerocopy::transmute!([0u8; size_of::<layout::Process>()]);

impl Process {
    const fn none() -> Self {
        Self {
            block: NO_BLOCK,
            user: User::NONE,
            space: Space::new(0, 0),
            ended: true,
            signals: Signals::NEW,
            threads: [Thread::NONE; CPUS],
            timer: Timer::OFF,
            started: 0,
        }
    }

    /// Begins on CPU `n`, as the block says.
    pub fn restart(&mut self, n: usize, block: &layout::Process, user: User) {
        self.replace(block, user);
        self.signals = Signals::NEW;
        self.threads = [Thread::NONE; CPUS];
        self.threads[n].alive = true;
        self.timer = Timer::OFF;
        self.ended = false;
        self.started = ops::tsc();
    }

    /// Another program takes the place of the one that runs: `execve`. Masks, pending signals and the timer stay.
    pub fn replace(&mut self, block: &layout::Process, user: User) {
        self.space = Space::new(block.heap, block.memory - STACK);
        self.block = *block;
        self.user = user;
        self.signals.forget_handlers();
        for thread in &mut self.threads {
            thread.signals.stack = Stack::NONE;
            thread.clear_tid = 0;
            thread.robust = 0;
        }
    }

    /// Returns `true` if a thread runs on CPU `n`.
    pub fn runs_on(&self, n: usize) -> bool {
        self.threads[n].alive
    }

    /// CPU of the thread with number `id`.
    pub fn thread_with(&self, id: u32) -> Option<usize> {
        (0..CPUS).find(|&n| self.threads[n].alive && self.id_on(n) == id)
    }

    /// The result of `gettid` on CPU `n`.
    pub fn id_on(&self, n: usize) -> u32 {
        if n > 0 && count() == 1 { self.block.pid ^ SECOND } else { self.block.pid }
    }

    /// Threads that run.
    pub fn threads_len(&self) -> usize {
        self.threads.iter().filter(|t| t.alive).count()
    }
}

/// Number of the process that CPU `n` runs: its own in virtual node mode, the only one in coprocessor mode.
pub fn number_on(n: usize) -> usize {
    if COUNT.load(Ordering::Relaxed) == CPUS { n } else { 0 }
}

/// The process that CPU `n` runs.
pub fn on(n: usize) -> Guard<'static, Process> {
    PROCESSES[number_on(n)].lock()
}

/// A process by its number.
pub fn numbered(n: usize) -> Guard<'static, Process> {
    PROCESSES[n].lock()
}

/// Processes of the job.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// There are so many from now on.
pub fn set_count(count: usize) {
    COUNT.store(count, Ordering::Relaxed);
}
