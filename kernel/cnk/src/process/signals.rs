// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of the processes that run here, until they are delivered (`delivery.rs`).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use cnk_logic::signals::{Info, SIGALRM};

use crate::cpu::{self, cpu};
use crate::node::node;
use crate::process::{self, Process, timers};

/// CPUs that run the process of CPU `n`.
fn cpus_of(n: usize) -> impl Iterator<Item = usize> {
    let threaded = process::count() == 1;
    (0..node().cpus).filter(move |&m| m == n || threaded)
}

/// Makes CPU `m` look at its signals, from CPU `n`.
pub fn alert(n: usize, m: usize) {
    cpu(m).attention.store(true, Release);
    if m != n && cpu(m).busy.load(Acquire) {
        cpu::interrupt(m);
    }
}

impl Process {
    /// A signal for the whole process has come on CPU `n`.
    pub fn post(&mut self, n: usize, signal: u32, info: Info) {
        let running = cpus_of(n).filter(|&m| self.runs_on(m));
        let blocked = running.fold(u64::MAX, |all, m| all & self.threads[m].signals.keeps());
        self.signals.post(signal, info, None, blocked);
        cpus_of(n).for_each(|m| alert(n, m));
    }

    /// A signal for the thread on CPU `m` has come on CPU `n`.
    pub fn post_thread(&mut self, n: usize, m: usize, signal: u32, info: Info) {
        let thread = &mut self.threads[m].signals;
        let blocked = thread.keeps();
        self.signals.post(signal, info, Some(thread), blocked);
        alert(n, m);
    }

    /// Takes what has come from outside: the daemon's signals, the end of the timer.
    pub fn collect(&mut self, n: usize) {
        for channel in cpus_of(n) {
            let signals = node().window.signals(channel);
            // an emulator may swap in two steps: what comes between them is lost, so there is no swap for nothing
            let mut word = if signals.load(Relaxed) == 0 { 0 } else { signals.swap(0, AcqRel) };
            while word != 0 {
                let signal = word.trailing_zeros() + 1;
                word &= word - 1;
                self.post(n, signal, Info::from(0, 0, false));
            }
        }
        if self.timer.ended() {
            self.post(n, SIGALRM, Info::KERNEL);
        }
    }
}

/// Returns `true` if a signal may have come for CPU `n`.
pub fn alerted(n: usize) -> bool {
    cpu(n).attention.load(Acquire) || cpus_of(n).any(|m| node().window.signals(m).load(Relaxed) != 0)
}

/// Returns `true` if a signal waits for the thread on CPU `n` that it does not block.
pub fn waits(n: usize) -> bool {
    if !alerted(n) {
        return false;
    }
    let mut guard = process::on(n);
    let process = &mut *guard;
    process.collect(n);
    let waits = process.signals.waits(&process.threads[n].signals);
    // what waits is delivered on the way back to the user
    cpu(n).attention.store(waits, Release);
    drop(guard);
    if !waits {
        // the alarm was early by the error of its clock, or for a signal that is blocked: who halts now needs the next
        timers::arm(n, None);
    }
    waits
}
