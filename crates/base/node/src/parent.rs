// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that end with their parent (`PR_SET_PDEATHSIG`, prctl(2)).
//!
//! The setting alone leaves a gap: a parent that ends between the fork and the setting sends no signal, and its child runs
//! on for good. So the number of the parent is noted before the fork, and the child compares it with its parent after the
//! setting. The kernel gives an orphan another parent before any process can get the number of the parent that ended.
//!
//! Three properties of the kernel's setting are the caller's concern:
//!
//! * It belongs to the *thread* that forks. If that thread ends, the signal is sent, although the process lives on. Start
//!   such a process from a thread that lives as long as the process may.
//! * A change of user or group clears it, and so does a program that is set-user-ID or has capabilities. A child that changes
//!   its user makes the setting afterwards.
//! * Children do not inherit it; `execve` keeps it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

/// Makes the process of `command` end with this process: the kernel sends it `signal` when the thread that starts it ends, and
/// it does not start if that has ended by then.
///
/// If another `pre_exec` of the command changes the user, call [`follow`] at its end instead.
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = getpid();
    // SAFETY: between fork and exec, the closure makes two system calls; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || follow(parent, signal)) };
}

/// Makes the kernel send `signal` to the calling process when its parent ends. `parent` is the number of the parent, noted
/// before the fork, or handed down by the parent. Makes system calls only, so it may be called between fork and exec.
///
/// # Errors
/// `ESRCH` if the parent has ended already: no signal will come. `EINVAL` for an impossible signal.
pub fn follow(parent: Pid, signal: Signal) -> io::Result<()> {
    set_pdeathsig(signal)?;
    if getppid() != parent {
        // a number, since a child reports its error to the parent by number
        return Err(Errno::ESRCH.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    use nix::sys::signal::kill;

    /// Set in the process that is the parent of a test.
    const IS_PARENT: &str = "COLONY_TEST_IS_PARENT";

    /// This test again, in a process that is to be the parent.
    fn parent(test: &str) -> Command {
        let mut parent = Command::new("/proc/self/exe");
        parent.args(["--exact", test, "--nocapture"]).env(IS_PARENT, "1").stdin(Stdio::null());
        parent
    }

    /// Kills the parent, and waits until the kernel has given this process another one.
    fn lose_parent() -> io::Result<()> {
        let parent = getppid();
        kill(parent, Signal::SIGKILL)?;
        while getppid() == parent {}
        Ok(())
    }

    #[test]
    fn a_child_whose_parent_has_ended_before_the_setting_does_not_start() {
        if std::env::var_os(IS_PARENT).is_some() {
            let mut child = Command::new("echo");
            child.arg("started all the same");
            // SAFETY: system calls only.
            unsafe { child.pre_exec(lose_parent) };
            end_with_parent(&mut child, Signal::SIGKILL);
            let _ = child.spawn();
            return;
        }
        let test = "parent::tests::a_child_whose_parent_has_ended_before_the_setting_does_not_start";
        // output ends when the last process that holds the pipe has ended, the child among them
        let out = parent(test).output().expect("itself");
        assert_eq!(out.status.signal(), Some(Signal::SIGKILL as i32), "{out:?}");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(!said.contains("started all the same"), "{said}");
    }

    #[test]
    fn a_child_ends_when_its_parent_is_killed() {
        if std::env::var_os(IS_PARENT).is_some() {
            let mut child = Command::new("sleep");
            child.arg("600");
            end_with_parent(&mut child, Signal::SIGKILL);
            let mut child = child.spawn().expect("sleep");
            kill(getpid(), Signal::SIGKILL).expect("this process");
            let _ = child.wait();
        }
        // output ends before the 600 s only if the child ends with its parent
        let out = parent("parent::tests::a_child_ends_when_its_parent_is_killed").output().expect("itself");
        assert_eq!(out.status.signal(), Some(Signal::SIGKILL as i32), "{out:?}");
    }

    #[test]
    fn a_process_of_another_parent_is_told() {
        let mut child = Command::new("true");
        let stranger = Pid::from_raw(i32::MAX);
        // SAFETY: system calls only.
        unsafe { child.pre_exec(move || follow(stranger, Signal::SIGKILL)) };
        assert_eq!(child.spawn().expect_err("another parent").raw_os_error(), Some(Errno::ESRCH as i32));
    }
}
