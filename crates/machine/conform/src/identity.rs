// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity and place of a process, and the resources it may use.

use colony_fship::calls::number as n;

use crate::report::{NOWHERE, Report, call, mut_of, of, text};

pub(crate) fn try_all(r: &mut Report) {
    users(r);
    processes(r);
    machine(r);
    limits(r);
}

fn users(r: &mut Report) {
    for number in [n::getuid, n::geteuid, n::getgid, n::getegid] {
        r.case(number, "own", &[]);
    }
    let mut three = [0u32; 3];
    let [a, b, c] = three.each_mut().map(mut_of);
    r.case(n::getresuid, "own", &[a, b, c]);
    r.case(n::getresgid, "own", &[a, b, c]);
    r.case(n::getresuid, "nowhere", &[NOWHERE, b, c]);
    let (uid, gid) = (call(n::getuid, &[]) as u64, call(n::getgid, &[]) as u64);
    let same = u64::from(u32::MAX);
    r.case(n::setuid, "own", &[uid]);
    r.case(n::setgid, "own", &[gid]);
    r.case(n::setreuid, "same", &[same, same]);
    r.case(n::setregid, "same", &[same, same]);
    r.case(n::setresuid, "same", &[same, same, same]);
    r.case(n::setresgid, "same", &[same, same, same]);
    let groups = call(n::getgroups, &[0, 0]);
    let mut list = [0u32; 64];
    r.line(n::getgroups, "as many", &(call(n::getgroups, &[64, mut_of(&mut list)]) == groups).to_string());
    r.case(n::getgroups, "negative", &[u64::MAX, mut_of(&mut list)]);
}

fn processes(r: &mut Report) {
    let pid = call(n::getpid, &[]);
    r.line(n::getpid, "positive", &(pid > 0).to_string());
    r.line(n::gettid, "first thread", &(call(n::gettid, &[]) == pid).to_string());
    for number in [n::getppid, n::getpgrp] {
        r.line(number, "not negative", &(call(number, &[]) >= 0).to_string());
    }
    r.line(n::getpgid, "own", &(call(n::getpgid, &[0]) == call(n::getpgrp, &[])).to_string());
    r.done(n::getpgid, "own", &[0]);
    r.done(n::getsid, "own", &[0]);
    let mut word = 0u64;
    r.line(n::set_tid_address, "own", &(call(n::set_tid_address, &[mut_of(&mut word)]) == pid).to_string());
    call(n::set_tid_address, &[0]);
    let (mut head, mut length) = (0u64, 0u64);
    r.case(n::get_robust_list, "own", &[0, mut_of(&mut head), mut_of(&mut length)]);
    r.line(n::get_robust_list, "length", &length.to_string());
    r.case(n::set_robust_list, "same", &[head, 24]);
    r.case(n::set_robust_list, "length", &[head, 1]);
    r.case(n::sched_yield, "once", &[]);
    // 20 less what `nice` was given: who starts this program may have been
    let priority = call(n::getpriority, &[0, 0]);
    r.line(n::getpriority, "own", &(1..=40).contains(&priority).to_string());
    r.case(n::setpriority, "same", &[0, 0, (20 - priority) as u64]);
    r.case(n::getpriority, "which", &[9, 0]);
    let mut name = *b"seventeen letters\0";
    r.case(n::prctl, "PR_SET_NAME", &[15, of(&name)]);
    name.fill(0);
    r.case(n::prctl, "PR_GET_NAME", &[16, mut_of(&mut name)]);
    r.line(n::prctl, "name", &text(&name));
    r.case(n::prctl, "option", &[99_999]);
    let mut base = 0u64;
    r.case(n::arch_prctl, "ARCH_GET_FS", &[0x1003, mut_of(&mut base)]);
    r.line(n::arch_prctl, "own", &(base != 0).to_string());
    r.case(n::arch_prctl, "code", &[0x9999, 0]);
}

fn machine(r: &mut Report) {
    let mut names = [0u8; 390];
    r.case(n::uname, "own", &[mut_of(&mut names)]);
    r.line(n::uname, "machine", &text(&names[260..]));
    r.line(n::uname, "system", &text(&names));
    r.case(n::uname, "nowhere", &[NOWHERE]);
    let mut info = [0u64; 14];
    r.case(n::sysinfo, "own", &[mut_of(&mut info)]);
    r.line(n::sysinfo, "memory", &(info[4] > 1 << 20).to_string());
    let (mut cpu, mut node) = (99u32, 99u32);
    r.case(n::getcpu, "own", &[mut_of(&mut cpu), mut_of(&mut node), 0]);
    r.line(n::getcpu, "node", &(node != 99).to_string());
    let mut mask = [0u64; 16];
    r.line(
        n::sched_getaffinity,
        "some",
        &(call(n::sched_getaffinity, &[0, 128, mut_of(&mut mask)]) >= 8).to_string(),
    );
    r.case(n::sched_getaffinity, "room", &[0, 1, mut_of(&mut mask)]);
    r.case(n::sched_getaffinity, "nowhere", &[0, 128, NOWHERE]);
    r.case(n::sched_setaffinity, "same", &[0, 128, of(&mask)]);
    r.case(n::sched_setaffinity, "none", &[0, 128, of(&[0u64; 16])]);
    let mut random = [0u8; 32];
    r.case(n::getrandom, "some", &[mut_of(&mut random), 32, 0]);
    r.line(n::getrandom, "not zero", &(random != [0; 32]).to_string());
    let first = random;
    call(n::getrandom, &[mut_of(&mut random), 32, 0]);
    r.line(n::getrandom, "others", &(random != first).to_string());
    r.case(n::getrandom, "flags", &[mut_of(&mut random), 32, 77]);
    r.case(n::getrandom, "nowhere", &[NOWHERE, 32, 0]);
}

fn limits(r: &mut Report) {
    let mut limit = [0u64; 2];
    r.case(n::getrlimit, "stack", &[libc::RLIMIT_STACK as u64, mut_of(&mut limit)]);
    r.line(n::getrlimit, "stack", &(limit[0] >= 1 << 20).to_string());
    r.case(n::setrlimit, "same", &[libc::RLIMIT_STACK as u64, of(&limit)]);
    r.case(n::getrlimit, "which", &[99, mut_of(&mut limit)]);
    r.case(n::prlimit64, "files", &[0, libc::RLIMIT_NOFILE as u64, 0, mut_of(&mut limit)]);
    r.line(n::prlimit64, "files", &(limit[0] >= 64).to_string());
    r.case(n::prlimit64, "which", &[0, 99, 0, mut_of(&mut limit)]);
    let backwards: [u64; 2] = [2, 1];
    r.case(n::setrlimit, "backwards", &[libc::RLIMIT_NOFILE as u64, of(&backwards)]);
}
