// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU changes from one thread to another.
//!
//! A thread that leaves its CPU has nothing on the kernel's stack: its registers and the end of its wait are all that is
//! kept of it. So the kernel has one stack a CPU, however many threads there are.

use core::sync::atomic::Ordering::{Relaxed, Release};

use cnk_logic::sched::THREADS;
use colony_fship::calls::number;
use colony_fship::layout::PROCESSES;

use super::{Over, Process, Thread, Wait, answers, timers};
use crate::cpu::{NEVER, cpu};
use crate::machine::area::area;
use crate::machine::context::{self, Context};
use crate::machine::{fpu, ops, paging, zeroed};
use crate::process::{self, count, number_on};
use crate::time;
use spin::Mutex;
use zerocopy::FromZeros;

/// The registers of a thread that has no CPU.
#[derive(FromZeros)]
struct Saved {
    context: Context,
    fs_base: u64,
    gs_base: u64,
    fpu: fpu::State,
}

static SAVED: [Mutex<Saved>; THREADS] = [const { Mutex::new(zeroed()) }; THREADS];

/// Bytes that each thread takes once it begins.
const THREAD_BYTES: usize = size_of::<Mutex<Saved>>() + size_of::<Thread>();

/// Bytes that nothing has used yet on a node with so many CPUs and a thread on each: those of further threads, and of a
/// second process.
pub fn spare_bytes(cpus: usize) -> u64 {
    let second = (PROCESSES - 1) * size_of::<Mutex<Process>>();
    ((THREADS - cpus) * THREAD_BYTES + second) as u64
}

/// Where a thread of process `number` has its registers.
fn saved(number: usize, thread: usize) -> &'static Mutex<Saved> {
    &SAVED[number * (THREADS / count()) + thread]
}

/// A thread of process `number` begins a program.
pub fn begin(number: usize, thread: usize, context: Context) {
    let saved = &mut *saved(number, thread).lock();
    (saved.context, saved.fs_base, saved.gs_base) = (context, 0, 0);
    saved.fpu.renew();
}

/// A thread begins that is like the one on CPU `n`, but for these.
pub fn begin_like(n: usize, thread: usize, context: Context, fs_base: u64) {
    let saved = &mut *saved(number_on(n), thread).lock();
    (saved.context, saved.fs_base, saved.gs_base) = (context, fs_base, ops::read_msr(ops::msr::GS_BASE));
    saved.fpu.save(&saved.context.xmm);
}

fn save(n: usize, thread: usize, context: &Context) {
    begin_like(n, thread, *context, ops::read_msr(ops::msr::FS_BASE));
}

/// The next thread of CPU `n`, which has none and belongs to it from now on.
pub fn take(n: usize) -> Option<usize> {
    let process = &mut *process::on(n);
    if !process.runs {
        return None;
    }
    let thread = process.sched.take(n)?;
    process.queue_changed(n);
    cpu(n).busy.store(true, Release);
    Some(thread)
}

/// Makes CPU `n` that of its thread; the thread's registers.
pub fn restore(n: usize) -> Context {
    let (thread, id, map) = {
        let process = process::on(n);
        (process.current(n), process.id_on(n), process.map)
    };
    if cpu(n).map.load(Relaxed) != map {
        paging::activate(number_on(n));
        ops::clear_segments();
        answers::prepare(n);
        cpu(n).map.store(map, Relaxed);
    }
    area(n).answer(number::gettid, id);
    cpu(n).slice.store(NEVER, Relaxed);
    let saved = &mut *saved(number_on(n), thread).lock();
    let set = ops::set_fs_base(saved.fs_base) && ops::set_gs_base(saved.gs_base);
    debug_assert!(set);
    saved.fpu.load(&mut saved.context.xmm);
    saved.context
}

impl Process {
    /// The thread on CPU `n` waits for something from now on, and for no longer than until then.
    pub fn begin_wait(&mut self, n: usize, wait: Wait, until_ns: Option<u64>) {
        let thread = self.own(n);
        (thread.wait, thread.over, thread.cancel) = (wait, Over::Not, false);
        (thread.until_ns, thread.timer) = (until_ns.unwrap_or(NEVER), n);
    }
}

/// The thread on CPU `n` waits as it has said by [`Process::begin_wait`], and leaves the CPU. Its call goes on in
/// `calls::resume`. The caller holds no lock.
pub fn wait(n: usize, context: &Context) -> ! {
    {
        let process = &mut *process::on(n);
        process.collect(n);
        let thread = process.current(n);
        save(n, thread, context);
        process.sched.wait(n);
        // what has come meanwhile
        if process.threads[thread].over != Over::Not {
            process.make_ready(n, thread);
        }
        process.look_at_signals(n, thread);
        if process.threads[thread].until_ns <= time::monotonic_ns() {
            process.end_wait(n, thread, Over::Timeout);
        }
    }
    // the timer of its wait is this CPU's, whichever thread runs here next
    timers::arm(n);
    context::leave(n)
}

/// The thread on CPU `n` lets others run first. The caller holds no lock.
pub fn give_way(n: usize, context: &Context) -> ! {
    {
        let process = &mut *process::on(n);
        let thread = process.current(n);
        process.threads[thread].wait = Wait::No;
        save(n, thread, context);
        let placed = process.sched.give_way(n);
        process.placed(n, placed);
    }
    context::leave(n)
}

/// The thread on CPU `n`, the only one of its process, begins another program. The caller holds no lock.
pub fn begin_anew(n: usize, context: Context) -> ! {
    {
        let process = &mut *process::on(n);
        let thread = process.current(n);
        begin(number_on(n), thread, context);
        process.threads[thread].wait = Wait::No;
        process.sched.wait(n);
        process.make_ready(n, thread);
    }
    context::leave(n)
}
