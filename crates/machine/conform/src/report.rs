// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running and reporting of cases.

use colony_fship::Errno;
use colony_fship::calls::CALLS;

/// An address that no program has: below the first mapping, and not null.
pub(crate) const NOWHERE: u64 = 8;
/// A descriptor that is never open.
pub(crate) const NO_FD: u64 = 77;
/// `AT_FDCWD`.
pub(crate) const HERE: u64 = libc::AT_FDCWD as u64;

/// Does a system call; negative error number or result.
pub(crate) fn call(number: u32, args: &[u64]) -> i64 {
    let arg = |n: usize| args.get(n).copied().unwrap_or(0);
    // SAFETY: the cases pass memory of their own, or addresses that the system must refuse.
    let result = unsafe { libc::syscall(i64::from(number), arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)) };
    if result == -1 {
        // libc's wrapper takes the number apart; put it together again
        return -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    result
}

/// The address of a value.
pub(crate) fn of<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>() as u64
}

/// The address of a value that is written.
pub(crate) fn mut_of<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>() as u64
}

/// The lines.
pub(crate) struct Report(());

impl Report {
    pub(crate) fn new() -> Self {
        Self(())
    }

    /// Tries a call and tells its result.
    pub(crate) fn case(&mut self, number: u32, what: &str, args: &[u64]) -> i64 {
        let result = call(number, args);
        self.line(number, what, &shown(result));
        result
    }

    /// Tries a call whose result differs from run to run: tells only whether it was done.
    pub(crate) fn done(&mut self, number: u32, what: &str, args: &[u64]) -> i64 {
        let result = call(number, args);
        self.line(number, what, &if result < 0 { shown(result) } else { "done".to_owned() });
        result
    }

    /// Tells something that a call left.
    pub(crate) fn line(&mut self, number: u32, what: &str, text: &str) {
        let row = CALLS.iter().find(|c| u32::from(c.number) == number);
        println!("{} {what}: {text}", row.map_or("?", |c| c.name));
    }
}

/// A result for a line.
pub(crate) fn shown(result: i64) -> String {
    match u16::try_from(-result) {
        Ok(n @ 1..) => format!("{:?}", Errno(n)),
        _ => result.to_string(),
    }
}

/// A string for a line: what comes before the first zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Opens a file of our folder with `flags`; the descriptor.
pub(crate) fn open(path: &std::ffi::CStr, flags: i32) -> u64 {
    let fd = call(colony_fship::calls::number::openat, &[HERE, path.as_ptr() as u64, flags as u64, 0o644]);
    u64::try_from(fd).unwrap_or(NO_FD)
}

/// Closes.
pub(crate) fn close(fd: u64) {
    call(colony_fship::calls::number::close, &[fd]);
}

/// Makes a file with these contents.
pub(crate) fn file(path: &std::ffi::CStr, contents: &[u8]) {
    let fd = open(path, libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY);
    call(colony_fship::calls::number::write, &[fd, of(contents), contents.len() as u64]);
    close(fd);
}
