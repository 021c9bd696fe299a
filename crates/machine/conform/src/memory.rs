// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory.

use colony_fship::calls::number as n;

use crate::report::{NO_FD, NOWHERE, Report, call, close, file, open};

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
