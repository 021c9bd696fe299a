// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process: who it is, its memory, its signals.

pub mod memory;
pub mod signals;
pub mod threads;
pub mod timers;
pub mod wait;

use core::sync::atomic::{AtomicUsize, Ordering};

use cnk_logic::signals::{Signals, Stack};
use cnk_logic::space::Space;
use colony_fship::layout::{self, STACK};

use crate::machine::lock::{Guard, Lock};
use crate::machine::{CPUS, ops};
use memory::User;
use threads::Thread;
use timers::Timer;

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
    /// What it does about signals.
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
