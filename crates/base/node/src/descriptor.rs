// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of this process: how many it may have, and which of them a program that it starts inherits.

use std::io;
use std::os::fd::RawFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that a process of ours asks for at most: those of all processes on 128 compute nodes.
pub const MOST: u64 = 300_000;

/// Raises the soft limit of descriptors to the hard one, up to [`MOST`], and returns what holds now. The usual soft
/// limit of 1024 is for programs that wait by `select`.
pub fn raise_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let wanted = soft.max(hard.min(MOST));
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}

/// Raises the hard limit of descriptors to [`MOST`], for this process and those that it starts. This takes `CAP_SYS_RESOURCE`: without it,
/// the limit stays as it is.
pub fn raise_hard_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if hard < MOST {
        // a container may not have the capability
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, MOST);
    }
}

/// Closes every descriptor from `first` on at the next `exec`, those of libraries included. Makes system calls only, so that it
/// may be called between `fork` and `exec`.
///
/// # Errors
/// If the system refuses it.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    let from = first.max(0).unsigned_abs();
    // SAFETY: plain numbers
    let done = unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return Ok(());
    }
    // before Linux 5.11: one at a time
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    for fd in first..RawFd::try_from(soft).unwrap_or(RawFd::MAX) {
        // SAFETY: plain numbers; a descriptor that is not open is refused
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_inherits_no_descriptor_that_it_is_not_given() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        // SAFETY: a descriptor of this test
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        let seen = |closes: bool| {
            let mut command = Command::new("ls");
            command.arg("/proc/self/fd");
            if closes {
                // SAFETY: system calls only
                unsafe { command.pre_exec(|| close_on_exec_from(3)) };
            }
            let out = command.output().expect("ls is there");
            let numbers = String::from_utf8(out.stdout).expect("numbers");
            let own = file.as_raw_fd().to_string();
            numbers.lines().any(|n| n == own)
        };
        assert!(seen(false), "the descriptor is inherited without it");
        // `ls` itself opens the directory as the lowest free number, so that only larger ones tell
        assert!(file.as_raw_fd() == 3 || !seen(true));
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = raise_limit();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
        assert_eq!(limit, soft);
        assert!(soft == hard || soft >= MOST);
    }
}
