// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a process, of its threads and of its timer.

use core::sync::atomic::{AtomicUsize, Ordering};

use cnk_logic::access::zone;
use cnk_logic::clock::next_end;
use cnk_logic::futex::Waiters;
use cnk_logic::reserve::Zone;
use cnk_logic::sched::{Scheduler, State, THREADS};
use cnk_logic::signals::{Signals, Stack, Thread as ThreadSignals};
use cnk_logic::space::Space;
use colony_fship::Errno;
use colony_fship::layout::{self, PROCESSES, STACK};

use super::memory::User;
use crate::machine::{ops, zeroed};
use crate::node::node;
use crate::time;
use spin::{Mutex, MutexGuard};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing.
    No,
    /// A wake-up at a word of memory.
    Futex,
    /// The end of a time; what is left after a signal goes to this address, unless that is null.
    Sleep(u64),
    /// A signal that it takes; what is known of it goes to this address, unless that is null.
    Signal(u64),
    /// A handler.
    Handler,
    /// The reply to the request with this number on the channel of this CPU.
    Reply(usize, u32),
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It is not over.
    Not,
    /// What it waited for has come.
    Done,
    /// The reply has come.
    Reply(i64),
    /// A signal is to be delivered.
    Signal,
    /// The time is over.
    Timeout,
}

/// A thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Its mask and the like.
    pub signals: ThreadSignals,
    /// The exception that its next handler is told of: vector, error code, address.
    pub fault: (u64, u64, u64),
    /// Address of a word that is cleared, and whose waiters are woken, when the thread ends; 0 for none.
    pub clear_tid: u64,
    /// Head of its list of robust locks.
    pub robust: u64,
    /// Its name; ends with a zero.
    pub name: [u8; 16],
    /// What it waits for, or has waited for.
    pub wait: Wait,
    /// The end of that wait.
    pub over: Over,
    /// The time at which it waits no longer; [`NEVER`] for ever.
    pub until_ns: u64,
    /// The CPU whose timer that is.
    pub timer: usize,
    /// Its call is to be cancelled: a signal has come.
    pub cancel: bool,
}

impl Thread {
    /// None: all zero, so that a kernel of few threads has no memory for many.
    pub const NONE: Self = Self {
        signals: ThreadSignals::ZERO,
        fault: (0, 0, 0),
        clear_tid: 0,
        robust: 0,
        name: [0; 16],
        wait: Wait::No,
        over: Over::Not,
        until_ns: 0,
        timer: 0,
        cancel: false,
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

/// The number of thread `t` of a process differs from that of the first in the bits from this one on.
const NUMBER_SHIFT: u32 = 21;

/// One process of the job.
pub struct Process {
    /// As the job block has it.
    pub block: layout::Process,
    /// Its memory.
    pub user: User,
    /// Counts the maps of all processes: this one is its.
    pub map: u64,
    /// Its heap and mappings.
    pub space: Space,
    /// Addresses that it has reserved.
    pub zone: Zone,
    /// It runs: it has not ended, and is not ending.
    pub runs: bool,
    /// Its signals.
    pub signals: Signals,
    /// Its threads, by their numbers.
    pub threads: [Thread; THREADS],
    /// Which of them run, and where.
    pub sched: Scheduler,
    /// Those that wait at words of memory.
    pub waiters: Waiters,
    /// The timer of `alarm` and `setitimer`.
    pub timer: Timer,
    /// Time stamp counter at its start.
    pub started: u64,
}

static ALL: [Mutex<Process>; PROCESSES] = [const { Mutex::new(Process::none()) }; PROCESSES];
/// Processes of the job.
static COUNT: AtomicUsize = AtomicUsize::new(1);

impl Process {
    const fn none() -> Self {
        Self {
            block: zeroed(),
            user: User::NONE,
            map: 0,
            space: Space::new(0, 0),
            zone: Zone::NONE,
            runs: false,
            signals: Signals::NEW,
            threads: [Thread::NONE; THREADS],
            sched: Scheduler::NEW,
            waiters: Waiters::NEW,
            timer: Timer::OFF,
            started: 0,
        }
    }

    /// Process `number` begins as the block says; its memory is mapped. Its first thread waits.
    pub fn restart(&mut self, number: usize, block: &layout::Process) {
        self.replace(block);
        self.signals = Signals::NEW;
        self.waiters.clear();
        self.threads[0] = Thread { signals: ThreadSignals::NEW, name: block.name, ..Thread::NONE };
        let cpus = cpus_of(number).fold(0, |all, n| all | 1 << n);
        self.sched.restart(cpus, threads_most());
        self.timer = Timer::OFF;
        self.started = ops::tsc();
        self.runs = true;
    }

    /// Another program, which is mapped, takes the place of the one that runs: `execve`. Masks, pending signals and the timer stay.
    pub fn replace(&mut self, block: &layout::Process) {
        /// Maps so far.
        static MAPS: AtomicUsize = AtomicUsize::new(0);
        self.map = MAPS.fetch_add(1, Ordering::Relaxed) as u64 + 1;
        self.space.restart(block.heap, block.memory - STACK);
        let zone = zone(block.memory, self.user.bank.size());
        self.zone.restart(zone.start, zone.end);
        self.block = *block;
        self.signals.forget_handlers();
        for thread in &mut self.threads[self.sched.numbers()] {
            thread.signals.stack = Stack::NONE;
            thread.clear_tid = 0;
            thread.robust = 0;
            thread.name = block.name;
        }
    }

    /// Number of the thread that runs on CPU `n`.
    pub fn current(&self, n: usize) -> usize {
        self.sched.running(n).unwrap_or(0)
    }

    /// The thread that runs on CPU `n`.
    pub fn own(&mut self, n: usize) -> &mut Thread {
        &mut self.threads[self.current(n)]
    }

    /// The thread whose `gettid` returns `id`.
    pub fn thread_with(&self, id: u32) -> Option<usize> {
        let number = (id ^ self.block.pid) >> NUMBER_SHIFT;
        let number = usize::try_from(number).ok()?;
        (self.sched.state(number) != State::Free && self.id_of(number) == id).then_some(number)
    }

    /// The same, or that of CPU `n` for 0.
    pub fn thread_or_own(&self, n: usize, id: u64) -> Result<usize, Errno> {
        if id as u32 == 0 { Ok(self.current(n)) } else { self.thread_with(id as u32).ok_or(Errno::ESRCH) }
    }

    /// The result of `gettid` of a thread.
    pub fn id_of(&self, thread: usize) -> u32 {
        self.block.pid ^ (thread as u32) << NUMBER_SHIFT
    }

    /// The result of `gettid` on CPU `n`.
    pub fn id_on(&self, n: usize) -> u32 {
        self.id_of(self.current(n))
    }

    /// Numbers of its threads.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.sched.numbers().filter(|&t| self.sched.state(t) != State::Free)
    }
}

/// Number of the process that CPU `n` runs: all CPUs run the only one, or every other CPU runs each of two.
pub fn number_on(n: usize) -> usize {
    n % COUNT.load(Ordering::Relaxed)
}

/// CPUs of process `number`.
pub fn cpus_of(number: usize) -> impl Iterator<Item = usize> {
    (0..node().cpus).filter(move |&n| number_on(n) == number)
}

/// CPUs of the process that CPU `n` runs.
pub fn cpus_with(n: usize) -> impl Iterator<Item = usize> {
    cpus_of(number_on(n))
}

/// Threads of a process at most.
pub fn threads_most() -> usize {
    THREADS / count()
}

/// The process that CPU `n` runs.
pub fn on(n: usize) -> MutexGuard<'static, Process> {
    ALL[number_on(n)].lock()
}

/// A process by its number.
pub fn numbered(n: usize) -> MutexGuard<'static, Process> {
    ALL[n].lock()
}

/// Processes of the job.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// There are so many from now on.
pub fn set_count(count: usize) {
    COUNT.store(count.max(1), Ordering::Relaxed);
}
