// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals and handlers.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use colony_fship::calls::number as n;

use crate::report::{NOWHERE, Report, call, mut_of, of, shown};

/// Signals that the handler has seen, and the last one, its code and its address.
static COUNT: AtomicI32 = AtomicI32::new(0);
static LAST: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
static STACK: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(signal: i32, info: *const libc::siginfo_t, _context: *const libc::c_void) {
    let here = 0u8;
    STACK.store(of(&here), Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    LAST[0].store(signal, Ordering::Relaxed);
    // SAFETY: the system passes a siginfo, as SA_SIGINFO asks.
    LAST[1].store(unsafe { (*info).si_code }, Ordering::Relaxed);
}

fn handle(signal: i32, flags: i32) {
    // SAFETY: all zeroes is an empty action; the handler does only what is safe in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags | libc::SA_SIGINFO;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

fn ignore(signal: i32) {
    // SAFETY: nothing is called.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

fn seen(r: &mut Report, what: &str) {
    let [last, code] = LAST.each_ref().map(|a| a.load(Ordering::Relaxed));
    r.line(
        n::rt_sigaction,
        what,
        &format!("{} seen, last {last} code {code}", COUNT.load(Ordering::Relaxed)),
    );
}

pub(crate) fn try_all(r: &mut Report) {
    let (pid, tid) = (call(n::getpid, &[]) as u64, call(n::gettid, &[]) as u64);
    handle(libc::SIGUSR1, 0);
    let usr1 = libc::SIGUSR1 as u64;
    r.case(n::kill, "self", &[pid, usr1]);
    seen(r, "kill");
    r.case(n::tkill, "self", &[tid, usr1]);
    r.case(n::tgkill, "self", &[pid, tid, usr1]);
    seen(r, "tgkill");
    r.case(n::kill, "nothing", &[pid, 0]);
    r.case(n::kill, "signal", &[pid, 99]);
    r.case(n::tgkill, "nobody", &[pid, 1 << 22, usr1]);
    r.case(n::tkill, "nobody", &[1 << 22, usr1]);
    actions(r);
    masks(r, pid);
    waits(r, pid);
    stacks(r, pid);
    faults(r);
    pipes(r);
}

fn actions(r: &mut Report) {
    let mut old = [0u64; 4];
    r.case(n::rt_sigaction, "look", &[libc::SIGUSR1 as u64, 0, mut_of(&mut old), 8]);
    r.line(n::rt_sigaction, "ours", &(old[0] == handler as *const () as u64).to_string());
    r.case(n::rt_sigaction, "SIGKILL", &[libc::SIGKILL as u64, of(&old), 0, 8]);
    r.case(n::rt_sigaction, "signal", &[99, of(&old), 0, 8]);
    r.case(n::rt_sigaction, "size", &[libc::SIGUSR1 as u64, 0, 0, 4]);
    r.case(n::rt_sigaction, "nowhere", &[libc::SIGUSR1 as u64, NOWHERE, 0, 8]);
}

fn masks(r: &mut Report, pid: u64) {
    let usr1: u64 = 1 << (libc::SIGUSR1 - 1);
    let mut old = 0u64;
    r.case(n::rt_sigprocmask, "block", &[0, of(&usr1), mut_of(&mut old), 8]);
    let before = COUNT.load(Ordering::Relaxed);
    r.case(n::kill, "blocked", &[pid, libc::SIGUSR1 as u64]);
    r.line(n::rt_sigprocmask, "held back", &(COUNT.load(Ordering::Relaxed) == before).to_string());
    let mut pending = 0u64;
    r.case(n::rt_sigpending, "one", &[mut_of(&mut pending), 8]);
    r.line(n::rt_sigpending, "set", &format!("{pending:#x}"));
    r.case(n::rt_sigprocmask, "unblock", &[1, of(&usr1), mut_of(&mut old), 8]);
    r.line(n::rt_sigprocmask, "old", &format!("{old:#x}"));
    seen(r, "unblocked");
    r.case(n::rt_sigprocmask, "how", &[9, of(&usr1), 0, 8]);
    r.case(n::rt_sigprocmask, "size", &[0, of(&usr1), 0, 4]);
}

fn waits(r: &mut Report, pid: u64) {
    let usr1: u64 = 1 << (libc::SIGUSR1 - 1);
    call(n::rt_sigprocmask, &[0, of(&usr1), 0, 8]);
    call(n::kill, &[pid, libc::SIGUSR1 as u64]);
    r.case(n::rt_sigtimedwait, "pending", &[of(&usr1), 0, 0, 8]);
    let soon: [u64; 2] = [0, 1_000_000];
    r.case(n::rt_sigtimedwait, "time is over", &[of(&usr1), 0, of(&soon), 8]);
    call(n::kill, &[pid, libc::SIGUSR1 as u64]);
    let none = 0u64;
    r.case(n::rt_sigsuspend, "pending", &[of(&none), 8]);
    seen(r, "suspended");
    call(n::rt_sigprocmask, &[1, of(&usr1), 0, 8]);
    handle(libc::SIGALRM, 0);
    interrupted(r, n::pause, "timer", &[]);
    seen(r, "timer");
    let long: [u64; 2] = [100, 0];
    let mut left: [u64; 2] = [0; 2];
    interrupted(r, n::nanosleep, "interrupted", &[of(&long), mut_of(&mut left)]);
    r.line(n::nanosleep, "most is left", &(50..100).contains(&left[0]).to_string());
    let mut ends = [0u32; 2];
    call(n::pipe, &[mut_of(&mut ends)]);
    let mut byte = [0u8; 1];
    interrupted(r, n::read, "interrupted", &[ends[0].into(), mut_of(&mut byte), 1]);
    ends.into_iter().for_each(|fd| crate::report::close(fd.into()));
}

/// Tries a call that only a signal ends. The timer goes on until the call has returned: a signal that comes before the
/// call, as on a machine that is busy with others, is followed by another. They count as one.
fn interrupted(r: &mut Report, number: u32, what: &str, args: &[u64]) {
    let before = COUNT.load(Ordering::Relaxed);
    let (every, off): ([u64; 4], [u64; 4]) = ([0, 20_000, 0, 20_000], [0; 4]);
    call(n::setitimer, &[0, of(&every), 0]);
    let result = call(number, args);
    call(n::setitimer, &[0, of(&off), 0]);
    COUNT.store(COUNT.load(Ordering::Relaxed).min(before + 1), Ordering::Relaxed);
    r.line(number, what, &shown(result));
}

fn stacks(r: &mut Report, pid: u64) {
    let mut memory = vec![0u8; 65_536];
    let stack: [u64; 3] = [mut_of(&mut memory[..]), 0, 65_536];
    r.case(n::sigaltstack, "new", &[of(&stack), 0]);
    let small: [u64; 3] = [mut_of(&mut memory[..]), 0, 100];
    r.case(n::sigaltstack, "small", &[of(&small), 0]);
    handle(libc::SIGUSR2, libc::SA_ONSTACK);
    call(n::kill, &[pid, libc::SIGUSR2 as u64]);
    let at = STACK.load(Ordering::Relaxed);
    r.line(n::sigaltstack, "used", &(at >= stack[0] && at < stack[0] + stack[2]).to_string());
    seen(r, "own stack");
    let off: [u64; 3] = [0, 2, 0];
    let mut old = [0u64; 3];
    r.case(n::sigaltstack, "off", &[of(&off), mut_of(&mut old)]);
    r.line(n::sigaltstack, "old", &(old[0] == stack[0]).to_string());
}

/// Faults reach a handler, which goes on behind them.
fn faults(r: &mut Report) {
    extern "C" fn skip(signal: i32, info: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
        LAST[0].store(signal, Ordering::Relaxed);
        // SAFETY: the system passes both; the faulting instruction is three bytes long, see below.
        unsafe {
            LAST[1].store((*info).si_code, Ordering::Relaxed);
            STACK.store((*info).si_addr() as u64, Ordering::Relaxed);
            (*context).uc_mcontext.gregs[libc::REG_RIP as usize] += 3;
        }
    }
    // SAFETY: all zeroes is an empty action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = skip as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGFPE, &action, std::ptr::null_mut());
    }
    for (what, address) in [("null", 0u64), ("low", 0x1000), ("text", faults as *const () as u64)] {
        // SAFETY: a store of three bytes of code that faults; the handler steps over it.
        unsafe { std::arch::asm!(".byte 0x48, 0x89, 0x00", in("rax") address, options(nostack)) };
        let [last, code] = LAST.each_ref().map(|a| a.load(Ordering::Relaxed));
        let right = STACK.load(Ordering::Relaxed) == address;
        r.line(n::rt_sigaction, what, &format!("signal {last} code {code}, address {right}"));
    }
    // SAFETY: a division of three bytes of code by zero; the handler steps over it.
    unsafe {
        std::arch::asm!(".byte 0x48, 0xf7, 0xf1", in("rcx") 0u64, inout("rax") 1u64 => _, inout("rdx") 0u64 => _, options(nostack));
    }
    let [last, code] = LAST.each_ref().map(|a| a.load(Ordering::Relaxed));
    r.line(n::rt_sigaction, "division", &format!("signal {last} code {code}"));
    // SAFETY: back to the default.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
}

fn pipes(r: &mut Report) {
    let mut ends = [0u32; 2];
    call(n::pipe, &[mut_of(&mut ends)]);
    crate::report::close(ends[0].into());
    handle(libc::SIGPIPE, 0);
    r.case(n::write, "nobody reads", &[ends[1].into(), of(b"x"), 1]);
    seen(r, "SIGPIPE");
    ignore(libc::SIGPIPE);
    r.line(n::write, "ignored", &shown(call(n::write, &[ends[1].into(), of(b"x"), 1])));
    crate::report::close(ends[1].into());
}
