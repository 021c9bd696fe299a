// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time.

use colony_fship::calls::number as n;

use crate::report::{NOWHERE, Report, call, mut_of, of};

pub(crate) fn try_all(r: &mut Report) {
    clocks(r);
    sleeps(r);
    timers(r);
    used(r);
}

fn clocks(r: &mut Report) {
    let mut time: [u64; 2] = [0; 2];
    let mut now = |clock: u64| {
        call(n::clock_gettime, &[clock, mut_of(&mut time)]);
        time[0] * 1_000_000_000 + time[1]
    };
    for (clock, what) in
        [(0, "realtime"), (1, "monotonic"), (4, "raw"), (7, "boottime"), (2, "process"), (3, "thread")]
    {
        let (first, second) = (now(clock), now(clock));
        r.line(
            n::clock_gettime,
            what,
            &format!("forward {}", second >= first && second - first < 10_000_000_000),
        );
    }
    let mut time: [u64; 2] = [0; 2];
    r.case(n::clock_gettime, "clock", &[99, mut_of(&mut time)]);
    r.case(n::clock_gettime, "nowhere", &[0, NOWHERE]);
    r.case(n::clock_getres, "monotonic", &[1, mut_of(&mut time)]);
    r.line(n::clock_getres, "monotonic", &format!("{time:?}"));
    r.case(n::clock_getres, "clock", &[99, mut_of(&mut time)]);
    r.case(n::gettimeofday, "time", &[mut_of(&mut time), 0]);
    let seconds = time[0];
    r.line(n::gettimeofday, "after 2020", &(seconds > 1_577_836_800).to_string());
    r.line(n::time, "same", &((call(n::time, &[0]) as u64).abs_diff(seconds) < 5).to_string());
    r.case(n::time, "nowhere", &[NOWHERE]);
    r.case(n::gettimeofday, "nowhere", &[NOWHERE, 0]);
    call(n::time, &[0]);
}

/// Nanoseconds that `f` takes by the monotonic clock.
fn taken(f: impl FnOnce()) -> u64 {
    let mut time: [u64; 2] = [0; 2];
    let mut now = || {
        call(n::clock_gettime, &[1, mut_of(&mut time)]);
        time[0] * 1_000_000_000 + time[1]
    };
    let start = now();
    f();
    now() - start
}

fn sleeps(r: &mut Report) {
    let short: [u64; 2] = [0, 2_000_000];
    let bad: [u64; 2] = [0, 2_000_000_000];
    let ns = taken(|| {
        r.case(n::nanosleep, "short", &[of(&short), 0]);
    });
    r.line(n::nanosleep, "long enough", &(ns >= 2_000_000).to_string());
    r.case(n::nanosleep, "nanoseconds", &[of(&bad), 0]);
    r.case(n::nanosleep, "nowhere", &[NOWHERE, 0]);
    let ns = taken(|| {
        r.case(n::clock_nanosleep, "short", &[1, 0, of(&short), 0]);
    });
    r.line(n::clock_nanosleep, "long enough", &(ns >= 2_000_000).to_string());
    r.case(n::clock_nanosleep, "past", &[1, 1, of(&short), 0]);
    r.case(n::clock_nanosleep, "clock", &[99, 0, of(&short), 0]);
}

fn timers(r: &mut Report) {
    let mut timer: [u64; 4] = [0, 0, 1000, 0];
    r.case(n::setitimer, "far", &[0, of(&timer), 0]);
    r.case(n::getitimer, "far", &[0, mut_of(&mut timer)]);
    // a machine that is busy with others may take seconds from one line to the next
    let most = |seconds: u64, of: u64| (of / 2..=of).contains(&seconds).to_string();
    r.line(n::getitimer, "most is left", &most(timer[2], 1000));
    let off: [u64; 4] = [0; 4];
    r.case(n::setitimer, "off", &[0, of(&off), mut_of(&mut timer)]);
    r.case(n::setitimer, "which", &[9, of(&off), 0]);
    r.case(n::getitimer, "which", &[9, mut_of(&mut timer)]);
    r.case(n::alarm, "none before", &[100]);
    r.line(n::alarm, "off", &most(call(n::alarm, &[0]) as u64, 100));
    r.case(n::alarm, "off already", &[0]);
}

fn used(r: &mut Report) {
    let mut usage = [0u64; 18];
    r.case(n::getrusage, "self", &[0, mut_of(&mut usage)]);
    r.case(n::getrusage, "who", &[99, mut_of(&mut usage)]);
    r.case(n::getrusage, "nowhere", &[0, NOWHERE]);
    let mut times = [0u64; 4];
    r.done(n::times, "self", &[mut_of(&mut times)]);
    r.line(n::times, "of children", &format!("{:?}", &times[2..]));
    r.case(n::times, "nowhere", &[NOWHERE]);
}
