// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of threads.

use core::sync::atomic::Ordering::SeqCst;

use cnk_logic::signals::Thread as Signals;
use colony_fship::Errno;
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};

use crate::machine::context::Context;
use crate::process::{self, Process, Thread, signals, switch};

impl Process {
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
        let own = self.id_on(n);
        let Ok(word) = self.user.word(address, true) else { return };
        let died =
            |value: u32| (value & FUTEX_TID_MASK == own).then_some(value & FUTEX_WAITERS | FUTEX_OWNER_DIED);
        if word.fetch_update(SeqCst, SeqCst, died).is_ok_and(|value| value & FUTEX_WAITERS != 0) {
            self.wake(n, address, 1, u32::MAX);
        }
    }
}

/// Starts a thread beside the one on CPU `n`, with these registers; its number for `gettid`. `tell` is told the number
/// before the thread runs.
///
/// # Errors
/// `EAGAIN` if there are as many as there may be; those of `tell`.
pub fn start(
    n: usize,
    context: Context,
    fs_base: u64,
    clear_tid: u64,
    tell: impl FnOnce(&Process, u32) -> Result<(), Errno>,
) -> Result<u32, Errno> {
    let process = &mut *process::on(n);
    let own = process.current(n);
    let thread = process.sched.free().ok_or(Errno::EAGAIN)?;
    let id = process.id_of(thread);
    tell(process, id)?;
    process.sched.create(own);
    let Thread { signals: Signals { mask, .. }, name, .. } = process.threads[own];
    process.threads[thread] =
        Thread { signals: Signals { mask, told: false, ..Signals::NEW }, clear_tid, name, ..Thread::NONE };
    switch::begin_like(n, thread, context, fs_base);
    process.make_ready(n, thread);
    Ok(id)
}

/// Ends the thread on CPU `n`; `false` if it is the last of its process.
pub fn end(n: usize) -> bool {
    let process = &mut *process::on(n);
    if process.sched.alive() < 2 {
        return false;
    }
    let own = process.current(n);
    let Thread { clear_tid: clear, robust, .. } = process.threads[own];
    process.release_locks(n, robust);
    if clear != 0 && process.user.put(clear, &0u32).is_ok() {
        process.wake(n, clear, 1, u32::MAX);
    }
    process.sched.end(n);
    process.threads[own] = Thread::NONE;
    // what was to be its, another one takes
    signals::pass_on(process, n, u64::MAX);
    true
}
