// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ends of waits, and the CPUs of the threads that are ready then.

use core::sync::atomic::Ordering::{Relaxed, Release};

use cnk_logic::sched::{Placed, State};
use colony_fship::calls::number;

use super::{Over, Process, Wait};
use crate::cpu::{self, alert, cpu};
use crate::machine::area::{SLOW, area};
use crate::process::cpus_with;

impl Process {
    /// Ends the wait of a thread, from CPU `n`; nothing if it is over.
    pub fn end_wait(&mut self, n: usize, thread: usize, over: Over) {
        let it = &mut self.threads[thread];
        if it.over != Over::Not || it.wait == Wait::No {
            return;
        }
        it.over = over;
        if it.wait == Wait::Futex && over != Over::Done {
            self.waiters.remove(thread);
        }
        self.make_ready(n, thread);
    }

    /// A thread that waits is ready.
    pub fn make_ready(&mut self, n: usize, thread: usize) {
        match self.sched.state(thread) {
            // it still has its CPU, and looks
            State::Running(m) => cpu(m.into()).woken.store(true, Release),
            _ => {
                let placed = self.sched.ready(thread);
                self.placed(n, placed);
            }
        }
    }

    /// Tells the CPUs of the place of a thread that is ready.
    pub fn placed(&mut self, n: usize, placed: Option<Placed>) {
        match placed {
            Some(Placed::On(m)) => cpu::interrupt_other(n, m),
            Some(Placed::Queued) => self.queue_changed(n),
            None => {}
        }
    }

    /// Tells the CPUs whether others wait for them.
    pub fn queue_changed(&self, n: usize) {
        for m in cpus_with(n) {
            let crowded = self.sched.crowded(m);
            if cpu(m).crowded.swap(crowded, Relaxed) != crowded {
                area(m).quick[number::sched_yield as usize].store(if crowded { SLOW } else { 0 }, Relaxed);
                if crowded && cpu(m).busy.load(Relaxed) {
                    alert(n, m);
                }
            }
        }
    }

    /// Wakes at most `count` threads that wait at `address` for one of `bits`; how many.
    pub fn wake(&mut self, n: usize, address: u64, count: u32, bits: u32) -> u32 {
        let mut woken = 0;
        while woken < count
            && let Some(thread) = self.waiters.wake(address, bits)
        {
            self.end_wait(n, thread, Over::Done);
            woken += 1;
        }
        woken
    }

    /// The reply to a request of channel `n` has come; nothing if its thread does not wait any more.
    pub fn replied(&mut self, n: usize, seq: u32, result: i64) {
        let waits =
            |&t: &usize| self.threads[t].wait == Wait::Reply(n, seq) && self.threads[t].over == Over::Not;
        let thread = self.numbers().find(waits);
        if let Some(thread) = thread.filter(|_| self.runs) {
            let open = &cpu(n).open;
            open.store(open.load(Relaxed).saturating_sub(1), Relaxed);
            self.end_wait(n, thread, Over::Reply(result));
        }
    }

    /// The number of a request on channel `n` that is to be cancelled, once.
    pub fn next_cancelled(&mut self, n: usize) -> Option<u32> {
        let thread = self.numbers().find(|&t| self.threads[t].cancel)?;
        match self.threads[thread].wait {
            Wait::Reply(channel, seq) if channel == n => {
                self.threads[thread].cancel = false;
                Some(seq)
            }
            _ => None,
        }
    }
}
