// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads: one on each CPU. In coprocessor mode a process may start a second one, on the second CPU.

use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use cnk_logic::ensure;
use cnk_logic::signals::Thread as Signals;
use colony_fship::Errno;

use crate::cpu::{self, Start, cpu};
use crate::machine::CPUS;
use crate::node::node;
use crate::process::{self, Process, Thread, signals};

impl Process {
    /// Wakes at most `count` threads that wait at `address` for one of `bits`; how many.
    pub fn wake(&mut self, n: usize, address: u64, count: u32, bits: u32) -> u32 {
        let mut woken = 0;
        for m in 0..CPUS {
            let waits = self.threads[m].futex.is_some_and(|(at, b)| at == address && b & bits != 0);
            if waits && woken < count {
                self.threads[m].futex = None;
                cpu(m).woken.store(true, Release);
                cpu::interrupt_other(n, m);
                woken += 1;
            }
        }
        woken
    }

    /// Releases the robust locks of the thread on CPU `n`, which ends: those in the list at `head`, and the one that it
    /// was about to take or to release (`get_robust_list(2)`). A list that is none ends it, as on Linux.
    fn release_locks(&mut self, n: usize, head: u64) {
        /// Locks that Linux looks at, at most.
        const MOST: usize = 2048;
        let Ok([first, offset, pending]) = self.user.get::<[u64; 3]>(head) else { return };
        let mut at = first;
        for _ in 0..MOST {
            if at == head {
                break;
            }
            // before it is released: its next owner may take it out of the list
            let next = self.user.get(at);
            if at != pending {
                self.release_lock(n, at.wrapping_add(offset));
            }
            let Ok(next) = next else { break };
            at = next;
        }
        if pending != 0 {
            self.release_lock(n, pending.wrapping_add(offset));
        }
    }

    /// Tells the next owner of a lock of the thread on CPU `n` that its owner has died, and wakes it if it waits.
    fn release_lock(&mut self, n: usize, address: u64) {
        const WAITERS: u32 = 1 << 31;
        const OWNER_DIED: u32 = 1 << 30;
        const OWNER: u32 = OWNER_DIED - 1;
        let own = self.id_on(n);
        let Ok(word) = self.user.word(address, true) else { return };
        let died = |value: u32| (value & OWNER == own).then_some(value & WAITERS | OWNER_DIED);
        if word.fetch_update(SeqCst, SeqCst, died).is_ok_and(|value| value & WAITERS != 0) {
            self.wake(n, address, 1, u32::MAX);
        }
    }
}

/// The result of `gettid` on CPU `n`.
pub fn id(n: usize) -> u32 {
    process::on(n).id_on(n)
}

/// Starts a thread on the second CPU.
///
/// # Errors
/// `EAGAIN` if there is none, or it has a thread already.
pub fn start(n: usize, start: Start, clear_tid: u64) -> Result<u32, Errno> {
    let other = cpu::other(n);
    let has_cpu = process::count() == 1 && other == 1 && node().cpus == CPUS;
    ensure(has_cpu && !process::on(n).runs_on(other), Errno::EAGAIN)?;
    // a thread that has just ended may not have left its CPU yet
    while cpu(other).busy.load(Acquire) {
        core::hint::spin_loop();
    }
    let id = {
        let process = &mut *process::on(n);
        let mask = process.threads[n].signals.mask;
        process.threads[other] =
            Thread { alive: true, signals: Signals { mask, ..Signals::NEW }, clear_tid, ..Thread::NONE };
        process.id_on(other)
    };
    cpu::run_on(other, start);
    Ok(id)
}

/// Ends the thread on CPU `n`; `false` if it is the last of its process.
pub fn end(n: usize) -> bool {
    let process = &mut *process::on(n);
    if process.threads_len() < 2 {
        return false;
    }
    let Thread { clear_tid: clear, robust, .. } = process.threads[n];
    process.release_locks(n, robust);
    process.threads[n] = Thread::NONE;
    if clear != 0 && process.user.put(clear, &0u32).is_ok() {
        process.wake(n, clear, 1, u32::MAX);
    }
    // what is the process's goes on at the other CPU
    let other = cpu::other(n);
    process.timer.cpu = other;
    signals::alert(n, other);
    true
}
