// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for descriptors.

use colony_fship::calls::number as n;

use crate::report::{NO_FD, NOWHERE, Report, call, close, mut_of, of};

pub(crate) fn try_all(r: &mut Report) {
    let mut ends = [0u32; 2];
    call(n::pipe, &[mut_of(&mut ends)]);
    let [out, into] = ends.map(u64::from);
    polls(r, out, into);
    selects(r, out, into);
    epolls(r, out, into);
    close(out);
    close(into);
}

fn polls(r: &mut Report, out: u64, into: u64) {
    // descriptor and events in, events out above
    let entry = |fd: u64, events: u64| fd | events << 32;
    let events = |e: u64| e >> 48;
    let mut set = [entry(out, 1), entry(into, 4), entry(NO_FD, 1)];
    r.case(n::poll, "one ready", &[mut_of(&mut set), 3, 1000]);
    r.line(n::poll, "events", &format!("{:?}", set.map(events)));
    let mut set = [entry(out, 1)];
    r.case(n::poll, "time is over", &[mut_of(&mut set), 1, 1]);
    r.case(n::poll, "nothing", &[0, 0, 1]);
    r.case(n::poll, "nowhere", &[NOWHERE, 1, 1]);
    let soon: [u64; 2] = [0, 1_000_000];
    r.case(n::ppoll, "time is over", &[mut_of(&mut set), 1, of(&soon), 0, 8]);
    call(n::write, &[into, of(b"x"), 1]);
    r.case(n::ppoll, "ready", &[mut_of(&mut set), 1, of(&soon), 0, 8]);
    r.line(n::ppoll, "events", &format!("{:?}", set.map(events)));
}

fn selects(r: &mut Report, out: u64, into: u64) {
    let mut time: [u64; 2] = [0, 1000];
    let mut read: [u64; 1] = [1 << out];
    let mut write: [u64; 1] = [1 << into];
    let max = out.max(into) + 1;
    r.case(n::select, "both", &[max, mut_of(&mut read), mut_of(&mut write), 0, mut_of(&mut time)]);
    r.line(n::select, "sets", &format!("{} {}", read[0] == 1 << out, write[0] == 1 << into));
    // Linux looks no further than its table of descriptors reaches, which has 64 places or, by what
    // the caller's parents had open, more: only below 64 is the answer the same everywhere.
    let mut closed: [u64; 1] = [1 << 63];
    r.case(n::select, "not open", &[64, mut_of(&mut closed), 0, 0, mut_of(&mut time)]);
    let mut byte = [0u8; 1];
    call(n::read, &[out, mut_of(&mut byte), 1]);
    let mut soon: [u64; 2] = [0, 1_000_000];
    r.case(n::pselect6, "time is over", &[max, mut_of(&mut read), 0, 0, mut_of(&mut soon), 0]);
    r.line(n::pselect6, "set", &read[0].to_string());
    r.case(n::select, "nothing", &[0, 0, 0, 0, mut_of(&mut time)]);
}

fn epolls(r: &mut Report, out: u64, into: u64) {
    let all = r.case(n::epoll_create1, "new", &[0]) as u64;
    let other = r.case(n::epoll_create, "new", &[1]) as u64;
    r.case(n::epoll_create, "size", &[0]);
    close(other);
    // events (u32), data (u64), packed
    let event = |events: u32, data: u64| -> [u8; 12] {
        let mut e = [0; 12];
        e[..4].copy_from_slice(&events.to_le_bytes());
        e[4..].copy_from_slice(&data.to_le_bytes());
        e
    };
    r.case(n::epoll_ctl, "add", &[all, 1, out, of(&event(1, 42))]);
    r.case(n::epoll_ctl, "again", &[all, 1, out, of(&event(1, 42))]);
    r.case(n::epoll_ctl, "not open", &[all, 1, NO_FD, of(&event(1, 42))]);
    let mut got = [0u8; 48];
    r.case(n::epoll_wait, "time is over", &[all, mut_of(&mut got), 4, 1]);
    call(n::write, &[into, of(b"x"), 1]);
    r.case(n::epoll_wait, "ready", &[all, mut_of(&mut got), 4, 1000]);
    r.line(n::epoll_wait, "event", &format!("{:?}", &got[..12]));
    r.case(n::epoll_pwait, "ready", &[all, mut_of(&mut got), 4, 1000, 0, 8]);
    r.case(n::epoll_wait, "room", &[all, mut_of(&mut got), 0, 0]);
    r.case(n::epoll_ctl, "delete", &[all, 2, out, 0]);
    r.case(n::epoll_ctl, "deleted", &[all, 2, out, 0]);
    close(all);
}
