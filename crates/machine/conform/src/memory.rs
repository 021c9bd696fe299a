// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory.

use colony_fship::calls::number as n;

use crate::report::{NO_FD, NOWHERE, Report, call, close, file, mut_of, open};

const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const RW: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const NONE: u64 = u64::MAX;

/// The byte at an address that a call has given us.
fn peek(address: i64) -> u8 {
    // SAFETY: the cases look only at memory that was mapped just before.
    unsafe { std::ptr::with_exposed_provenance::<u8>(address as usize).read_volatile() }
}

fn poke(address: i64, byte: u8) {
    // SAFETY: as above.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address as usize).write_volatile(byte) }
}

pub(crate) fn try_all(r: &mut Report) {
    maps(r);
    heap(r);
    advice(r);
    reservations(r);
}

fn maps(r: &mut Report) {
    let size = 1 << 20;
    let a = r.done(n::mmap, "anonymous", &[0, size, RW, ANONYMOUS, NONE, 0]);
    r.line(n::mmap, "page", &(a % 4096).to_string());
    r.line(n::mmap, "zero", &format!("{} {}", peek(a), peek(a + size as i64 - 1)));
    poke(a, 7);
    poke(a + size as i64 - 1, 9);
    r.case(n::mmap, "no length", &[0, 0, RW, ANONYMOUS, NONE, 0]);
    r.case(n::mmap, "too much", &[0, 1 << 46, RW, ANONYMOUS, NONE, 0]);
    r.case(n::mmap, "neither shared nor private", &[0, size, RW, libc::MAP_ANONYMOUS as u64, NONE, 0]);
    r.case(n::mmap, "not open", &[0, size, RW, libc::MAP_PRIVATE as u64, NO_FD, 0]);
    let b = call(n::mremap, &[a as u64, size, size * 2, 1]);
    r.line(
        n::mremap,
        "grown",
        &if b > 0 { format!("{} {}", peek(b), peek(b + size as i64 - 1)) } else { "no".into() },
    );
    let a = if b > 0 { b } else { a };
    r.case(n::mremap, "unaligned", &[a as u64 + 1, size, size, 0]);
    r.case(n::mprotect, "read only", &[a as u64, 4096, libc::PROT_READ as u64]);
    r.case(n::mprotect, "unaligned", &[a as u64 + 1, 4096, RW]);
    r.case(n::mprotect, "back", &[a as u64, 4096, RW]);
    r.line(n::mprotect, "kept", &peek(a).to_string());
    r.case(n::munmap, "all", &[a as u64, size * 2]);
    r.case(n::munmap, "unaligned", &[a as u64 + 1, size]);
    r.case(n::munmap, "no length", &[a as u64, 0]);
    let c = r.done(n::mmap, "again", &[0, size * 2, RW, ANONYMOUS, NONE, 0]);
    r.line(n::mmap, "clean again", &format!("{} {}", peek(c), peek(c + size as i64 - 1)));
    poke(c, 5);
    let fixed = ANONYMOUS | libc::MAP_FIXED as u64;
    let d = call(n::mmap, &[c as u64, 4096, RW, fixed, NONE, 0]);
    r.line(n::mmap, "fixed", &format!("{} {}", d == c, peek(c)));
    call(n::munmap, &[c as u64, size * 2]);
}

fn heap(r: &mut Report) {
    let end = call(n::brk, &[0]);
    r.line(n::brk, "grows", &(call(n::brk, &[end as u64 + 10_000]) == end + 10_000).to_string());
    r.line(n::brk, "zero", &peek(end + 9_999).to_string());
    poke(end + 9_999, 1);
    r.line(n::brk, "shrinks", &(call(n::brk, &[end as u64]) == end).to_string());
    call(n::brk, &[end as u64 + 10_000]);
    r.line(n::brk, "zero again", &peek(end + 9_999).to_string());
    r.line(n::brk, "too much", &(call(n::brk, &[1 << 46]) == end + 10_000).to_string());
    call(n::brk, &[end as u64]);
    call(n::brk, &[end as u64]);
}

fn advice(r: &mut Report) {
    let a = call(n::mmap, &[0, 8192, RW, ANONYMOUS, NONE, 0]);
    poke(a, 3);
    r.case(n::madvise, "willneed", &[a as u64, 8192, libc::MADV_WILLNEED as u64]);
    r.case(n::madvise, "dontneed", &[a as u64, 8192, libc::MADV_DONTNEED as u64]);
    r.line(n::madvise, "zero", &peek(a).to_string());
    r.case(n::madvise, "unaligned", &[a as u64 + 1, 8192, libc::MADV_WILLNEED as u64]);
    r.case(n::madvise, "advice", &[a as u64, 8192, 9999]);
    poke(a, 3);
    let mut there = [0u8; 2];
    r.case(n::mincore, "memory", &[a as u64, 8192, mut_of(&mut there)]);
    r.line(n::mincore, "was written", &(there[0] & 1).to_string());
    r.case(n::mincore, "unaligned", &[a as u64 + 1, 8192, mut_of(&mut there)]);
    r.case(n::mincore, "nowhere", &[a as u64, 8192, NOWHERE]);
    r.case(n::msync, "memory", &[a as u64, 8192, libc::MS_SYNC as u64]);
    r.case(n::msync, "flags", &[a as u64, 8192, 77]);
    r.case(n::mlock, "some", &[a as u64, 4096]);
    r.case(n::mlock2, "some", &[a as u64, 4096, 0]);
    r.case(n::munlock, "some", &[a as u64, 4096]);
    r.case(n::mlockall, "flags", &[0]);
    r.case(n::munlockall, "all", &[]);
    r.case(n::membarrier, "query", &[NOWHERE, 77, 0]);
    file(c"mapped", b"x");
    let fd = open(c"mapped", libc::O_RDONLY);
    close(fd);
    call(n::munmap, &[a as u64, 8192]);
    call(n::brk, &[0]);
}

/// Addresses without memory, of which parts are used, given up and used again.
fn reservations(r: &mut Report) {
    const ALL: u64 = 8 << 20;
    const PART: u64 = 64 << 10;
    let fixed = ANONYMOUS | libc::MAP_FIXED as u64;
    let nothing = libc::PROT_NONE as u64;
    let a = r.done(n::mmap, "reserve", &[0, ALL, nothing, ANONYMOUS, NONE, 0]);
    let at = |offset: u64| a as u64 + offset;
    r.case(n::mprotect, "use a part", &[at(PART), PART, RW]);
    r.line(n::mprotect, "zero", &format!("{} {}", peek(a + PART as i64), peek(a + 2 * PART as i64 - 1)));
    poke(a + PART as i64, 6);
    r.case(n::mprotect, "lock it", &[at(PART), PART, nothing]);
    r.case(n::mprotect, "use it again", &[at(PART), PART, RW]);
    r.line(n::mprotect, "kept", &peek(a + PART as i64).to_string());
    for round in ["first", "second"] {
        let b = call(n::mmap, &[at(PART), PART, RW, fixed, NONE, 0]);
        r.line(n::mmap, &format!("{round} over it"), &format!("{} {}", b == a + PART as i64, peek(b)));
        poke(b, 8);
    }
    r.case(n::madvise, "dontneed reserved", &[at(PART), PART, libc::MADV_DONTNEED as u64]);
    r.line(n::madvise, "zero reserved", &peek(a + PART as i64).to_string());
    poke(a + PART as i64, 9);
    let given_up = call(n::mmap, &[at(0), ALL, nothing, fixed, NONE, 0]);
    r.line(n::mmap, "give all up", &(given_up == a).to_string());
    r.case(n::mprotect, "use all", &[at(0), ALL, RW]);
    r.line(n::mprotect, "zero after all", &peek(a + PART as i64).to_string());
    r.case(n::munmap, "ends of it", &[at(0), PART]);
    r.case(n::munmap, "the rest", &[at(PART), ALL - PART]);
    let lazy = ANONYMOUS | libc::MAP_NORESERVE as u64;
    let b = r.done(n::mmap, "without reserve", &[0, ALL, RW, lazy, NONE, 0]);
    r.line(n::mmap, "zero without reserve", &format!("{} {}", peek(b), peek(b + ALL as i64 - 1)));
    poke(b, 1);
    call(n::munmap, &[b as u64, ALL]);
}
