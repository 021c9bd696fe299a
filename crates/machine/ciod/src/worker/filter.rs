// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls of a worker: those that the contract ships, and what it needs itself. The system refuses all others,
//! for good, so that a worker that is broken into can start no program, trace no process, and reach no other part of
//! the kernel than its programs can.

use std::io;

use colony_fship::calls::{CALLS, Class, number};
use colony_node::seccomp;

/// Calls that a worker or a proxy makes for itself: memory, time, waiting, exit.
const OWN: &[libc::c_long] = &[
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_futex,
    libc::SYS_getrlimit,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // what ends a process that finds itself broken
    libc::SYS_tgkill,
];

/// Calls that the worker makes to serve a shipped call.
const NEVER: &[u32] = &[number::execve];

/// Refuses everything else from now on, to this thread and what it starts.
pub(crate) fn enter() -> io::Result<()> {
    let shipped = CALLS.iter().filter(|call| call.class == Class::Shipped);
    let shipped = shipped.map(|call| u32::from(call.number)).filter(|number| !NEVER.contains(number));
    // as a kernel that has no such call, which libraries know how to do without
    seccomp::allow_only(shipped.map(i64::from).chain(OWN.iter().copied()), libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a call without arguments, in a thread that has the filter.
    fn refused(number: libc::c_long) -> Option<i32> {
        let thread = std::thread::spawn(move || {
            enter().expect("a filter");
            // SAFETY: no call that is tried here does anything without arguments
            let result = unsafe { libc::syscall(number, 0, 0, 0, 0, 0, 0) };
            (result < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten()
        });
        thread.join().expect("its end is allowed")
    }

    #[test]
    fn calls_that_no_program_may_make_are_refused_to_the_worker() {
        for call in [
            libc::SYS_execve,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_kill,
            libc::SYS_setuid,
            libc::SYS_unshare,
            libc::SYS_mount,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_io_uring_setup,
            libc::SYS_keyctl,
            libc::SYS_listen,
        ] {
            assert_eq!(refused(call), Some(libc::ENOSYS), "call {call}");
        }
        assert_eq!(refused(libc::SYS_getpid), None);
        assert_eq!(refused(libc::SYS_socket), Some(libc::EAFNOSUPPORT), "the system's own answer");
    }
}
