// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of the processes that run here, until they are delivered (`delivery.rs`).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use cnk_logic::sched::State;
use cnk_logic::signals::{Info, SIGALRM, bit, signals as signals_of};

use super::{Over, Wait};
use crate::cpu::{alert, cpu};
use crate::node::node;
use crate::process::{self, Process, cpus_with};

impl Process {
    /// A signal for the whole process has come on CPU `n`.
    pub fn post(&mut self, n: usize, signal: u32, info: Info) {
        let blocked = self.numbers().fold(u64::MAX, |all, t| all & self.threads[t].signals.keeps());
        self.signals.post(signal, info, None, blocked);
        self.tell(n, signal);
    }

    /// A signal for a thread has come on CPU `n`.
    pub fn post_thread(&mut self, n: usize, thread: usize, signal: u32, info: Info) {
        let signals = &mut self.threads[thread].signals;
        let blocked = signals.keeps();
        self.signals.post(signal, info, Some(signals), blocked);
        self.look_at_signals(n, thread);
    }

    /// Makes a thread that takes a signal look: one that waits for it, else one that does not block it, the first of the
    /// process before all others.
    fn tell(&mut self, n: usize, signal: u32) {
        let wants = |&t: &usize| self.threads[t].signals.wanted & bit(signal) != 0;
        let open = |&t: &usize| self.threads[t].signals.mask & bit(signal) == 0;
        let taker = self.numbers().find(wants).or_else(|| self.numbers().find(open));
        if let Some(thread) = taker {
            self.threads[thread].signals.told = true;
            self.look_at_signals(n, thread);
        }
    }

    /// Makes a thread look at its signals: on its CPU, or by ending its wait if there is one for it.
    pub fn look_at_signals(&mut self, n: usize, thread: usize) {
        match self.sched.state(thread) {
            State::Running(m) => alert(n, m.into()),
            State::Waiting => self.interrupt(n, thread),
            // it looks when it has a CPU
            State::Ready | State::Free => {}
        }
    }

    fn interrupt(&mut self, n: usize, thread: usize) {
        let it = &mut self.threads[thread];
        if (self.signals.pending() | it.signals.pending) & it.signals.wanted != 0 {
            self.end_wait(n, thread, Over::Done);
        } else if self.signals.waits(&it.signals) {
            match it.wait {
                // the daemon ends it, when it has been told
                Wait::Reply(channel, _) => {
                    it.cancel = true;
                    alert(n, channel);
                }
                _ => self.end_wait(n, thread, Over::Signal),
            }
        }
    }

    /// Takes what has come from outside: the daemon's signals, the end of the timer.
    pub fn collect(&mut self, n: usize) {
        for channel in cpus_with(n) {
            let signals = node().window.signals(channel);
            // an emulator may swap in two steps: what comes between them is lost, so there is no swap for nothing
            if signals.load(Relaxed) != 0 {
                signals_of(signals.swap(0, AcqRel))
                    .for_each(|signal| self.post(n, signal, Info::from(0, 0, false)));
            }
        }
        if self.timer.ended() {
            self.post(n, SIGALRM, Info::KERNEL);
        }
    }
}

/// The thread on CPU `n` takes none of `blocked` any more: pending ones are for another thread.
pub fn pass_on(process: &mut Process, n: usize, blocked: u64) {
    signals_of(process.signals.pending() & blocked).for_each(|signal| process.tell(n, signal));
}

/// Returns `true` if a signal may have come for CPU `n`.
pub fn alerted(n: usize) -> bool {
    cpu(n).attention.load(Acquire) || cpus_with(n).any(|m| node().window.signals(m).load(Relaxed) != 0)
}

/// Returns `true` if a signal waits for the thread on CPU `n` that it does not block.
pub fn waits(n: usize) -> bool {
    if !alerted(n) {
        return false;
    }
    let process = &mut *process::on(n);
    process.collect(n);
    let waits = process.signals.waits(&process.threads[process.current(n)].signals);
    if waits {
        // what waits is delivered on the way back to the user
        cpu(n).attention.store(true, Release);
    }
    waits
}
