// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of programs and threads.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use colony_fship::calls::number as n;

use crate::report::{NOWHERE, Report, call, file, of};

/// The word by which this program knows that it was started by itself.
pub(crate) const AGAIN: &str = "again";

pub(crate) fn try_all(r: &mut Report) {
    futexes(r);
    threads(r);
    programs(r);
}

fn futexes(r: &mut Report) {
    let word = AtomicU32::new(5);
    let private = 128u64;
    r.case(n::futex, "wait, changed", &[of(&word), private, 4, 0]);
    let soon: [u64; 2] = [0, 1_000_000];
    r.case(n::futex, "wait, time is over", &[of(&word), private, 5, of(&soon)]);
    r.case(n::futex, "wake nobody", &[of(&word), 1 | private, 1]);
    r.case(n::futex, "unaligned", &[of(&word) + 1, private, 5, 0]);
    r.case(n::futex, "nowhere", &[NOWHERE, private, 5, 0]);
    r.case(n::futex, "operation", &[of(&word), 99, 5, 0]);
    let none: [i64; 2] = [0, -1];
    r.case(n::futex, "wait, time is none", &[of(&word), private, 5, of(&none)]);
    let (past, any) = ([0u64; 2], u64::from(u32::MAX));
    for (clock, what) in [(0, "wait until, monotonic"), (256, "wait until, wall clock")] {
        r.case(n::futex, what, &[of(&word), 9 | private | clock, 5, of(&past), 0, any]);
    }
    r.case(n::futex, "wait, no bits", &[of(&word), 9 | private, 5, 0, 0, 0]);
    r.case(n::futex, "wake, no bits", &[of(&word), 10 | private, 1, 0, 0, 0]);
    let other = AtomicU32::new(7);
    r.case(n::futex, "requeue nobody", &[of(&word), 3 | private, 1, 1, of(&other)]);
    r.case(n::futex, "requeue, changed", &[of(&word), 4 | private, 1, 1, of(&other), 4]);
    r.case(n::futex, "requeue, unaligned", &[of(&word), 3 | private, 1, 1, of(&other) + 1]);
    // the other word becomes 10, if nobody waits for that
    let add_3_if_7 = 1 << 28 | 3 << 12 | 7;
    r.case(n::futex, "wake and add", &[of(&word), 5 | private, 1, 1, of(&other), add_3_if_7]);
    r.case(n::futex, "wake and add, unaligned", &[of(&word), 5 | private, 1, 1, of(&other) + 1, add_3_if_7]);
    r.line(n::futex, "added", &other.load(Ordering::Relaxed).to_string());
}

/// One thread, as the compute node has room for: it is started, waits, is woken, ends, and is joined.
fn threads(r: &mut Report) {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(|| {
        let tid = call(n::gettid, &[]);
        while WORD.load(Ordering::Acquire) == 0 {
            call(n::futex, &[of(&WORD), 128, 0, 0]);
        }
        call(n::gettid, &[]) == tid && tid != call(n::getpid, &[])
    });
    let Ok(thread) = thread else { return r.line(n::clone, "thread", "none") };
    std::thread::sleep(std::time::Duration::from_millis(2));
    WORD.store(1, Ordering::Release);
    call(n::futex, &[of(&WORD), 129, 1]);
    r.line(n::clone3, "a thread of its own", &format!("{:?}", thread.join()));
    r.case(n::clone3, "size", &[NOWHERE, 8]);
    r.case(n::clone3, "nowhere", &[NOWHERE, 64]);
    // another thread, after the first has ended
    let again = std::thread::spawn(|| 42).join();
    r.line(n::clone, "another", &format!("{again:?}"));
}

fn programs(r: &mut Report) {
    file(c"text", b"no program");
    let missing = c"missing".as_ptr() as u64;
    let args: [u64; 2] = [c"x".as_ptr() as u64, 0];
    r.case(n::execve, "missing", &[missing, of(&args), 0]);
    r.case(n::execve, "not executable", &[c"text".as_ptr() as u64, of(&args), 0]);
    call(n::chmod, &[c"text".as_ptr() as u64, 0o755]);
    r.case(n::execve, "no program", &[c"text".as_ptr() as u64, of(&args), 0]);
    r.case(n::execve, "folder", &[c".".as_ptr() as u64, of(&args), 0]);
    r.case(n::execve, "nowhere", &[NOWHERE, of(&args), 0]);
    r.case(n::execve, "arguments nowhere", &[c"text".as_ptr() as u64, NOWHERE, 0]);
}

/// The last case: this program starts itself, which goes on in [`again`].
pub(crate) fn last(r: &mut Report) -> ExitCode {
    let Some(own) = std::env::args().next() else { return ExitCode::FAILURE };
    let own = [own.as_bytes(), b"\0"].concat();
    let word = [AGAIN.as_bytes(), b"\0"].concat();
    let args: [u64; 3] = [of(&own[..]), of(&word[..]), 0];
    let environment: [u64; 2] = [c"ONE=two".as_ptr() as u64, 0];
    r.case(n::execve, "itself", &[of(&own[..]), of(&args), of(&environment)]);
    ExitCode::FAILURE
}

/// The program, when it was started by itself: prints its arguments and environment, and ends.
pub(crate) fn again() -> ExitCode {
    let mut r = Report::new();
    let environment: Vec<_> = std::env::vars().filter(|(name, _)| !name.starts_with("COLONY")).collect();
    r.line(n::execve, "environment", &format!("{environment:?}"));
    r.line(n::exit_group, "ends with", "7");
    call(n::exit_group, &[7]);
    ExitCode::FAILURE
}
