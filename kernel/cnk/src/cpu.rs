// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of each CPU.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use zerocopy::FromZeros;

use crate::machine::{CPUS, apic, area::area, context, smp, zeroed};

/// No time: an alarm that is off, a slice that has not begun.
pub const NEVER: u64 = u64::MAX;

/// One CPU. Counters are written by the CPU itself only.
#[derive(FromZeros)]
pub struct Cpu {
    /// It runs a thread.
    pub busy: AtomicBool,
    /// It is to leave its process as soon as it can.
    pub stop: AtomicBool,
    /// Something may have come for its thread: a signal, the end of a timer, another thread that is ready.
    pub attention: AtomicBool,
    /// The wait of its thread at a futex is over, before the thread has left the CPU.
    pub woken: AtomicBool,
    /// A thread that is ready waits for a CPU, and may run on this one.
    pub crowded: AtomicBool,
    /// Another CPU waits until it sees what that has written.
    pub barrier: AtomicBool,
    /// Number of the last request on its channel.
    pub seq: AtomicU32,
    /// Calls on its channel whose threads have left the CPU.
    pub open: AtomicU32,
    /// The daemon rings for each reply on its channel.
    pub listens: AtomicBool,
    /// The map that it uses: see `process::switch`.
    pub map: AtomicU64,
    /// The time at which its timer ends, ns; [`NEVER`] if it is off.
    pub alarm: AtomicU64,
    /// Its timer has interrupted it, and nobody has looked at the ends yet.
    pub fired: AtomicBool,
    /// The time at which its thread lets others run first, ns; [`NEVER`] if there are no others.
    pub slice: AtomicU64,
    /// Interrupts of the timer.
    pub timer_interrupts: AtomicU64,
    /// All other interrupts.
    pub other_interrupts: AtomicU64,
    /// Calls that were shipped.
    pub shipped_calls: AtomicU64,
    /// Exceptions of programs.
    pub faults: AtomicU64,
}

/// All zero at the start: no time is [`NEVER`] then, but a CPU that idles sees that nothing is to be done.
static STATES: [Cpu; CPUS] = [const { zeroed() }; CPUS];

/// A CPU by its number.
pub fn cpu(n: usize) -> &'static Cpu {
    &STATES[n]
}

impl Cpu {
    /// Nothing is left of an earlier job.
    pub fn restart(&self) {
        for counter in [&self.timer_interrupts, &self.other_interrupts, &self.shipped_calls, &self.faults] {
            counter.store(0, Ordering::Relaxed);
        }
        for flag in [&self.attention, &self.crowded, &self.listens] {
            flag.store(false, Ordering::Relaxed);
        }
        self.open.store(0, Ordering::Relaxed);
        self.slice.store(NEVER, Ordering::Relaxed);
    }
}

/// Adds one to a counter of this CPU's own: no locked instruction is needed.
pub fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Interrupts CPU `n`, so that it looks at what has changed; nothing if there is none.
pub fn interrupt(n: usize) {
    if let Some(apic) = smp::apic_of(n) {
        apic::send(apic, apic::INTERRUPT);
    }
}

/// Interrupts CPU `to`, unless that is this one, `n`.
pub fn interrupt_other(n: usize, to: usize) {
    if n != to {
        interrupt(to);
    }
}

/// Makes CPU `m` look at what has come for its thread, from CPU `n`.
pub fn alert(n: usize, m: usize) {
    cpu(m).attention.store(true, Ordering::Release);
    interrupt_other(n, m);
}

/// Makes CPU `n` leave its process, and waits until it has. Never call this with a lock that it may want.
pub fn stop(n: usize) {
    let cpu = cpu(n);
    if !cpu.busy.load(Ordering::Acquire) {
        return;
    }
    cpu.stop.store(true, Ordering::Release);
    interrupt(n);
    while cpu.busy.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    cpu.stop.store(false, Ordering::Release);
}

/// Waits until CPU `n` sees all that this one, `own`, has written, and the other way round. The caller holds no lock.
pub fn barrier(own: usize, n: usize) {
    let other = cpu(n);
    other.barrier.store(true, Ordering::SeqCst);
    interrupt(n);
    // one that has become idle meanwhile has no accesses to order
    while other.barrier.load(Ordering::SeqCst) && other.busy.load(Ordering::Acquire) {
        // it may wait for this one, or want it to end
        obey(own);
        core::hint::spin_loop();
    }
}

/// Does what another CPU asks for: an acknowledgement, or to leave the process. The caller holds no lock.
///
/// Whatever waits in the kernel comes here again and again.
pub fn obey(n: usize) {
    count(&area(n).pulses);
    let cpu = cpu(n);
    if cpu.barrier.load(Ordering::Relaxed) {
        // all accesses of the thread here are before this, or after
        cpu.barrier.swap(false, Ordering::SeqCst);
    }
    if cpu.stop.load(Ordering::Acquire) {
        context::leave(n);
    }
}
