// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cycle of jobs: ask for one, check it, build its map, run it, tell how it ended.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cnk_logic::access::Access;
use cnk_logic::job::{Wrong, check, check_process};
use cnk_logic::map::Complex;
use cnk_logic::signals::SIGKILL;
use colony_fship::calls::number;
use colony_fship::layout::{self, CrashRecord};
use colony_fship::message::own;
use zerocopy::IntoBytes as _;

use crate::cpu::{self, cpu};
use crate::machine::area::area;
use crate::machine::console::debug;
use crate::machine::context::{self, Context};
use crate::machine::paging;
use crate::node::node;
use crate::process::{self, cpus_with, shared, switch, timers};
use crate::{shipping, time};

/// Processes of the job that have not ended.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Some program has run, so that other code may lie where its code was.
static CODE_SEEN: AtomicBool = AtomicBool::new(false);

/// Lets CPU 0 ask for the next job if the last has ended, for CPU `n`, which has no thread.
pub fn between(n: usize) {
    if RUNNING.load(Ordering::Acquire) > 0 {
        return;
    }
    if n != 0 {
        cpu::interrupt(0);
    } else if (1..node().cpus).all(|m| !cpu(m).busy.load(Ordering::Acquire)) {
        // that a process has ended is to be known before there is a request for another job
        (1..node().cpus).for_each(shipping::drain);
        timers::forget(n);
        next(n);
    }
}

/// Asks for jobs until there is one that is right; all is ready for it then.
fn next(n: usize) {
    loop {
        let hz = time::rate().hz();
        let up_ns = time::monotonic_ns();
        let version = u64::from(colony_fship::VERSION);
        let args = [version, node().cpus as u64, hz, node().resident, up_ns, 0];
        let result = shipping::next_job(n, args);
        if result != 0 {
            shipping::log(n, format_args!("NEXT_JOB was answered with {result}"));
            continue;
        }
        debug!("cnk: waited for a job from {up_ns} to {} ns", time::monotonic_ns());
        match prepare() {
            Ok(()) => return,
            Err((wrong, count)) => {
                shipping::log(n, format_args!("job refused: {wrong}"));
                // its processes have ended before they began
                for process in 0..count {
                    shipping::send(process, own::EXIT, [u64::from(SIGKILL), 0, 0, 0, 0, 0]);
                    shipping::drain(process);
                }
            }
        }
    }
}

/// Makes the node ready for the job in the window, and lets it run. The block is on the stack only meanwhile.
/// An error comes with the number of processes, if there is a block.
#[inline(never)]
fn prepare() -> Result<(), (Wrong, usize)> {
    let job = node().window.job();
    check(&job, node().cpus, node().window.size()).map_err(|wrong| (wrong, 0))?;
    let count = job.processes_len as usize;
    for (n, block) in job.processes[..count].iter().enumerate() {
        map(n, count, block).map_err(|Complex| (Wrong::Map, count))?;
    }
    process::set_count(count);
    time::set_realtime(job.realtime_ns);
    shared::start_job(&job);
    // the signals there are came after the daemon forgot those for the last job: they are for this one
    for n in 0..node().cpus {
        cpu(n).restart();
        area(n).local_calls.store(0, Ordering::Relaxed);
        area(n).answer(number::sched_yield, 0);
    }
    RUNNING.store(count, Ordering::Release);
    CODE_SEEN.store(true, Ordering::Relaxed);
    debug!("cnk: a job of {count} processes here");
    for (n, block) in job.processes[..count].iter().enumerate() {
        let process = &mut *process::numbered(n);
        process.restart(n, block);
        switch::begin(n, 0, Context::start(block.entry, block.stack));
        process.make_ready(0, 0);
    }
    Ok(())
}

/// Maps process `n` of `count` as its block says.
fn map(n: usize, count: usize, block: &layout::Process) -> Result<(), Complex> {
    let user = &mut process::numbered(n).user;
    user.bank = node().window.bank(n, count);
    user.access = Access::new(block, user.bank.size());
    paging::build(n, count, &user.bank, &user.access)?;
    if CODE_SEEN.load(Ordering::Relaxed) {
        for code in user.access.parts().iter().filter(|p| p.flags & layout::EXECUTE != 0) {
            let done = user.bank.renew_code(code.first, code.end - code.first);
            debug_assert!(done.is_ok());
        }
    }
    Ok(())
}

/// Takes the program that the daemon has put in the place of the one on CPU `n`; its registers at the start.
/// `None` if that is no program.
pub fn reload(n: usize) -> Option<Context> {
    let (number, count) = (process::number_on(n), process::count());
    let block = node().window.process(number);
    let bank = node().window.size() / count as u64;
    if let Err(wrong) = check_process(&block, bank) {
        shipping::log(n, format_args!("new program refused: {wrong}"));
        return None;
    }
    map(number, count, &block).ok()?;
    process::on(n).replace(&block);
    Some(Context::start(block.entry, block.stack))
}

/// The end of a process.
pub enum End {
    /// By `exit_group` or its last `exit`, with this status.
    Exit(u8),
    /// By a signal.
    Signal(CrashRecord),
}

/// Ends the process on CPU `n`. The caller holds no lock.
pub fn end(n: usize, end: &End) -> ! {
    if !core::mem::replace(&mut process::on(n).runs, false) {
        // another thread was faster; it waits for this CPU
        context::leave(n);
    }
    cpus_with(n).filter(|&m| m != n).for_each(cpu::stop);
    timers::forget(n);
    let (call, status) = match end {
        End::Exit(code) => (own::EXIT, u64::from(*code) << 8),
        End::Signal(record) => {
            node().window.put(layout::crash_at(n), record.as_bytes());
            (own::FAULT, u64::from(record.signal))
        }
    };
    let of = |counter: fn(usize) -> u64| cpus_with(n).map(counter).sum();
    let args = [
        status,
        of(|n| cpu(n).timer_interrupts.load(Ordering::Relaxed)),
        of(|n| cpu(n).other_interrupts.load(Ordering::Relaxed)),
        of(|n| area(n).local_calls.load(Ordering::Relaxed)),
        of(|n| cpu(n).shipped_calls.load(Ordering::Relaxed)),
        of(|n| cpu(n).faults.load(Ordering::Relaxed)),
    ];
    debug!("cnk: process on CPU {n} ends: {args:?}");
    shipping::send(n, call, args);
    RUNNING.fetch_sub(1, Ordering::AcqRel);
    context::leave(n)
}
