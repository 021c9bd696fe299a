// SPDX-License-Identifier: MIT OR Apache-2.0
//! Confinement of the programs that serve a machine for all users: a few capabilities of root, no new privileges, and no system calls
//! that change the kernel, the mounts, the clock or other processes.
//!
//! The confinement is inherited: a program of root that starts another needs the capabilities of that program, too.

use std::io;

pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::geteuid;

use crate::privilege::processes_are_hidden;
use crate::{descriptor, seccomp};

/// System calls that no process of a machine makes. Those of the I/O nodes' virtual machines are none of the host.
const REFUSED: &[libc::c_long] = &[
    // the kernel and its modules
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    // mounts and namespaces
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    // clocks
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // parts of the kernel that many attacks go through
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_personality,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    // numbers that the x32 variants of some of these calls have beside the common ones: ptrace, kexec_load, process_vm_readv and
    // process_vm_writev
    521,
    528,
    539,
    540,
];

/// Flags of `clone` that make a namespace.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Capabilities have numbers below this one: a set of them has 64 bits.
const MOST_CAPABILITIES: u32 = 64;

/// Confines the calling thread and all that it starts, for good: call this at the start of a program, before it has other threads. Root
/// keeps these capabilities and no others, in its permitted, effective and bounding sets; where `/proc` hides processes, also the one to
/// see them (`CAP_SYS_PTRACE`). Other users keep what they have, which is
/// none as a rule. Both get no new privileges, and the system calls that no process of a machine makes fail with `EPERM`.
///
/// Returns a warning for each part that the kernel refuses, or does not have.
#[must_use]
pub fn confine(kept: &[Capability]) -> Vec<String> {
    let is_root = geteuid().is_root();
    if is_root {
        // this takes a capability that is dropped
        descriptor::raise_hard_limit();
    }
    let capabilities = if is_root { keep_only(kept) } else { Ok(()) };
    let refused =
        |what: &str, remedy: &str, done: io::Result<()>| done.err().map(|e| format!("{what}: {e}; {remedy}"));
    let parts = [
        refused(
            "capabilities are not dropped",
            "start the machine with all capabilities of root, or as another user",
            capabilities,
        ),
        refused(
            "new privileges are not forbidden",
            "a kernel of Linux 3.5 or newer can do it",
            set_no_new_privs().map_err(Into::into),
        ),
        refused(
            "system calls are not filtered",
            "a kernel with CONFIG_SECCOMP_FILTER can do it",
            seccomp::refuse(REFUSED.iter().copied(), libc::EPERM)
                .and_then(|()| seccomp::refuse_clone_flags(NAMESPACES)),
        ),
    ];
    parts.into_iter().flatten().collect()
}

/// Drops all capabilities except these, also those that this program does not know by name.
fn keep_only(kept: &[Capability]) -> io::Result<()> {
    let to_see = processes_are_hidden().then_some(Capability::CAP_SYS_PTRACE);
    let kept: CapsHashSet = kept.iter().copied().chain(to_see).collect();
    // the others can be dropped only as long as this process has CAP_SETPCAP
    bound(&kept)?;
    let permitted = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let kept = permitted.intersection(&kept).copied().collect();
    caps::clear(None, CapSet::Ambient).map_err(io::Error::other)?;
    for (set, values) in
        [(CapSet::Inheritable, &CapsHashSet::new()), (CapSet::Effective, &kept), (CapSet::Permitted, &kept)]
    {
        caps::set(None, set, values).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Removes all capabilities except these from the bounding set: no program that is executed gets another.
fn bound(kept: &CapsHashSet) -> io::Result<()> {
    let is_kept = |number: u32| kept.iter().any(|capability| u32::from(capability.index()) == number);
    for number in (0..MOST_CAPABILITIES).filter(|number| !is_kept(*number)) {
        // SAFETY: plain numbers
        let state = unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) };
        if state < 0 {
            // the kernel has no capability of this number, and none of a larger one
            break;
        }
        // SAFETY: plain numbers
        if state > 0 && unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a function in a thread that is confined.
    fn confined<T: Send + 'static>(kept: &'static [Capability], f: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(move || {
            assert_eq!(confine(kept), [""; 0], "no warnings");
            f()
        });
        thread.join().expect("it ends")
    }

    fn status(field: &str) -> String {
        let text = std::fs::read_to_string("/proc/thread-self/status").expect("there");
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
        line.expect("a field").to_owned()
    }

    #[test]
    fn root_keeps_the_named_capabilities_in_all_sets_and_others_none() {
        let sets = ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"];
        let before = sets.map(status);
        let after = confined(&[Capability::CAP_KILL, Capability::CAP_SETUID], move || {
            (sets.map(status), status("NoNewPrivs"), status("Seccomp"))
        });
        let (kept, none) = (format!("{:016x}", 1 << 5 | 1 << 7), format!("{:016x}", 0));
        let expected = [&kept, &kept, &kept, &none, &none].map(String::clone);
        let sets = if geteuid().is_root() { expected } else { before };
        assert_eq!(after, (sets, "1".to_owned(), "2".to_owned()));
    }

    #[test]
    fn calls_that_no_process_of_a_machine_makes_are_refused() {
        let refused = confined(&[], || {
            let error = |call: libc::c_long| {
                // SAFETY: the filter refuses the call, whatever its arguments
                let result = unsafe { libc::syscall(call, 0, 0, 0, 0, 0, 0) };
                (result < 0).then(io::Error::last_os_error)
            };
            let x32 = |call: &libc::c_long| *call | 0x4000_0000;
            let all = REFUSED.iter().copied().filter(|call| *call < 500).chain(REFUSED.iter().map(x32));
            let code = |call| error(call).and_then(|e: io::Error| e.raw_os_error());
            all.filter(|call| code(*call) != Some(libc::EPERM)).collect::<Vec<_>>()
        });
        assert_eq!(refused, [0; 0], "these are not refused");
    }

    #[test]
    fn programs_and_threads_start_and_namespaces_are_not_made() {
        let (has_ended, namespace, number) = confined(&[], || {
            let child = std::process::Command::new("true").status().expect("it is there");
            std::thread::spawn(|| ()).join().expect("a thread");
            let clone = |flags: i32| {
                // SAFETY: the filter refuses the call: no process is made
                let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
                (result < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten()
            };
            // SAFETY: the filter refuses the call
            let clone3 = unsafe { libc::syscall(libc::SYS_clone3, 0, 0) };
            let clone3 = (clone3 < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten();
            (child.success(), clone(libc::CLONE_NEWUSER | libc::SIGCHLD), clone3)
        });
        assert_eq!((has_ended, namespace, number), (true, Some(libc::EPERM), Some(libc::ENOSYS)));
    }
}
