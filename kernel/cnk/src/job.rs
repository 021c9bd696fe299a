// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cycle of jobs: ask for one, check it, build its map, run it, tell how it ended.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cnk_logic::access::Access;
use cnk_logic::job::{Wrong, check, check_process};
use cnk_logic::map::Complex;
use cnk_logic::signals::SIGKILL;
use colony_fship::layout::{self, CrashRecord};
use colony_fship::message::own;

use crate::cpu::{self, Start, cpu};
use crate::machine::area::area;
use crate::machine::console::debug;
use crate::machine::context::{self, Context};
use crate::machine::{apic, fpu, ops, paging};
use crate::node::node;
use crate::process::{self, answers, memory::User, shared, signals};
use crate::shipping::{self, Wait};
use crate::time;

/// Processes of the job that have not ended.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Some program has run, so that other code may lie where its code was.
static CODE_SEEN: AtomicBool = AtomicBool::new(false);

/// The loop of a CPU without a process.
pub fn idle(n: usize) -> ! {
    cpu(n).busy.store(false, Ordering::Release);
    if n != 0 {
        cpu::interrupt(0);
        loop {
            let start = cpu(n).start.lock().take();
            match start {
                Some(start) => run(n, &start),
                None => ops::halt(),
            }
        }
    }
    while RUNNING.load(Ordering::Acquire) > 0 || cpu(cpu::other(n)).busy.load(Ordering::Acquire) {
        // the thread here has ended, and another goes on: it is told of what has come for the process
        if node().window.signals(n).load(Ordering::Relaxed) != 0 && process::count() == 1 {
            signals::alert(n, cpu::other(n));
        }
        ops::halt();
    }
    // that a process has ended is to be known before there is a request for another job
    shipping::drain(cpu::other(n));
    let start = next(n);
    run(n, &start)
}

/// Asks for jobs until there is one that is right; all is ready for it then.
fn next(n: usize) -> Start {
    loop {
        let hz = time::rate().hz();
        let up_ns = time::monotonic_ns();
        let version = u64::from(colony_fship::VERSION);
        let args = [version, node().cpus as u64, hz, node().resident, up_ns, 0];
        let result = shipping::call(n, own::NEXT_JOB, args, Wait::RingAgain);
        if result != 0 {
            shipping::log(n, format_args!("NEXT_JOB was answered with {result}"));
            continue;
        }
        match prepare() {
            Ok(start) => return start,
            Err(Refusal::Wrong(wrong)) => shipping::log(n, format_args!("job block refused: {wrong}")),
            Err(Refusal::Complex(count)) => {
                shipping::log(n, format_args!("job refused: its map has too many parts"));
                // its processes have ended before they began
                for process in 0..count {
                    shipping::send(process, own::EXIT, [u64::from(SIGKILL), 0, 0, 0, 0, 0]);
                    shipping::drain(process);
                }
            }
        }
    }
}

/// The reason why a job is refused.
enum Refusal {
    /// The block is none.
    Wrong(Wrong),
    /// One of these so many processes needs more tables than there are.
    Complex(usize),
}

/// Makes the node ready for the job in the window; what CPU 0 is to run.
fn prepare() -> Result<Start, Refusal> {
    let job = node().window.job();
    check(&job, node().cpus, node().window.size()).map_err(Refusal::Wrong)?;
    let count = job.processes_len as usize;
    for (n, block) in job.processes[..count].iter().enumerate() {
        let user = map(n, count, block).map_err(|Complex| Refusal::Complex(count))?;
        process::numbered(n).restart(n, block, user);
    }
    process::set_count(count);
    time::set_realtime(job.realtime_ns);
    shared::start_job(&job);
    RUNNING.store(count, Ordering::Release);
    // the signals there are came after the daemon forgot those for the last job: they are for this one
    for n in 0..node().cpus {
        cpu(n).restart_counters();
        area(n).local_calls.store(0, Ordering::Relaxed);
        cpu(n).attention.store(false, Ordering::Relaxed);
    }
    debug!("cnk: a job of {count} processes here");
    let starts =
        |block: &layout::Process| Start { context: Context::start(block.entry, block.stack), fs_base: 0 };
    if let [_, second] = &job.processes[..count] {
        cpu::run_on(1, starts(second));
    }
    cpu(0).busy.store(true, Ordering::Release);
    Ok(starts(&job.processes[0]))
}

/// Maps process `n` of `count` as its block says.
fn map(n: usize, count: usize, block: &layout::Process) -> Result<User, Complex> {
    let bank = node().window.bank(n, count);
    let access = Access::new(block);
    paging::build(n, count, &bank, &access)?;
    if CODE_SEEN.load(Ordering::Relaxed) {
        for code in access.parts().iter().filter(|p| p.flags & layout::EXECUTE != 0) {
            let done = bank.renew_code(code.first, code.end - code.first);
            debug_assert!(done.is_ok());
        }
    }
    Ok(User { bank, access })
}

/// Takes the program that the daemon has put in the place of the one on CPU `n`; where it starts.
/// `None` if that is no program.
pub fn reload(n: usize) -> Option<Start> {
    let (number, count) = (process::number_on(n), process::count());
    let block = node().window.job().processes[number];
    let bank = node().window.size() / count as u64;
    if let Err(wrong) = check_process(&block, bank) {
        shipping::log(n, format_args!("new program refused: {wrong}"));
        return None;
    }
    let user = map(number, count, &block).ok()?;
    process::on(n).replace(&block, user);
    Some(Start { context: Context::start(block.entry, block.stack), fs_base: 0 })
}

/// Runs a program, or a thread of one, with nothing left of what ran before.
pub fn run(n: usize, start: &Start) -> ! {
    fpu::reset();
    paging::activate(process::number_on(n));
    ops::clear_segments();
    let set = ops::set_fs_base(start.fs_base) && ops::set_gs_base(0);
    debug_assert!(set);
    answers::prepare(n);
    CODE_SEEN.store(true, Ordering::Relaxed);
    // a call to stop that came before interrupts are on again
    cpu::obey(n);
    context::enter(&start.context)
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
    if core::mem::replace(&mut process::on(n).ended, true) {
        // the other thread was faster; it waits for this CPU
        context::leave(n);
    }
    let alone = process::count() == 1;
    if alone && node().cpus > 1 {
        cpu::stop(cpu::other(n));
    }
    apic::alarm_off();
    let (call, status) = match end {
        End::Exit(code) => (own::EXIT, u64::from(*code) << 8),
        End::Signal(record) => {
            node().window.crash(n, record);
            (own::FAULT, u64::from(record.signal))
        }
    };
    let of = |counter: fn(usize) -> u64| if alone { (0..node().cpus).map(counter).sum() } else { counter(n) };
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
