// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops a program that runs, between two instructions, for system calls on our behalf.
//!
//! One thread of the program is stopped, and only one that is running: a thread that sleeps in a system call would see that call
//! interrupted. The stop takes microseconds, and nothing traces the program afterwards.

use std::ops::Range;

use super::{ALL, CallError, Tracee, instruction, release_thread, request, stopped};

/// `PTRACE_GET_RSEQ_CONFIGURATION` of Linux 5.13.
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
/// The event of a stop that was asked for, and of a stop of the whole process (`PTRACE_EVENT_STOP`).
const EVENT_STOP: i32 = 128;
/// Place of the pointer to the present sequence in a thread's `struct rseq`.
const SEQUENCE: u64 = 8;

/// The reason for which a running program was not stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotStopped {
    /// None of its threads can be stopped now: they sleep, are stopped, or must not be disturbed where they are.
    Later,
    /// It has ended.
    Gone,
    /// The kernel or the program does not allow it.
    Refused(String),
}

impl From<CallError> for NotStopped {
    fn from(e: CallError) -> Self {
        match e {
            CallError::Gone => Self::Gone,
            CallError::Refused(e) => Self::Refused(e.to_string()),
        }
    }
}

/// A thread's restartable sequences, as the kernel describes them.
#[derive(Default)]
#[repr(C)]
struct RseqConfiguration {
    /// Address of the thread's `struct rseq`; 0 without one.
    area: u64,
    bytes: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}

impl Tracee {
    /// Stops a running thread of process `pid`. The caller must be the only thread of this process that waits for `pid` meanwhile:
    /// a wait elsewhere could take the stop.
    ///
    /// # Errors
    /// [`NotStopped`]; the program runs as before.
    pub(crate) fn interrupt(pid: i32) -> Result<Self, NotStopped> {
        let tid = running_thread(pid).ok_or(NotStopped::Later)?;
        // a program must not go on with registers of ours, should this process be killed
        request(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_EXITKILL as usize)?;
        let detach = || request(libc::PTRACE_DETACH, tid, 0, 0);
        let mask = stop_thread(tid).inspect_err(|e| {
            let _ = detach();
            if *e == NotStopped::Gone {
                release_thread(pid, tid);
            }
        })?;
        let mut tracee = Self::of_stopped(pid, tid, mask).map_err(|reason| {
            let _ = detach();
            NotStopped::Refused(reason)
        })?;
        let all = ALL;
        tracee.request(libc::PTRACE_SETSIGMASK, size_of::<u64>(), &raw const all as usize)?;
        // dropped, it runs on
        if tracee.is_in_sequence() { Err(NotStopped::Later) } else { Ok(tracee) }
    }

    /// Returns `true` if the thread is inside a restartable sequence (rseq(2)). The kernel restarts it if the thread goes on from elsewhere, and
    /// forgets that it has to once the thread has run another instruction. Kernels before 5.13 do not tell of sequences.
    fn is_in_sequence(&self) -> bool {
        let mut rseq = RseqConfiguration::default();
        let bytes = size_of::<RseqConfiguration>();
        let told = request(GET_RSEQ_CONFIGURATION, self.pid, bytes, &raw mut rseq as usize);
        if told.is_err() || rseq.area == 0 {
            return false;
        }
        let Some(at) = self.word(rseq.area.wrapping_add(SEQUENCE)).filter(|&at| at != 0) else {
            return false;
        };
        self.sequence(at).is_some_and(|addresses| addresses.contains(&instruction(&self.registers)))
    }

    /// The addresses of a sequence: version and flags, the first address, the length.
    fn sequence(&self, at: u64) -> Option<Range<u64>> {
        let start = self.word(at.checked_add(8)?)?;
        Some(start..start.checked_add(self.word(at.checked_add(16)?)?)?)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

/// Stops a thread that is traced, and returns its signal mask. Signals that arrive before are passed on.
fn stop_thread(tid: i32) -> Result<u64, NotStopped> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)?;
    loop {
        let status = stopped(tid, 0)?.unwrap_or(0);
        let (signal, event) = (status & 0xff, status >> 8);
        match event {
            EVENT_STOP if signal == libc::SIGTRAP => break,
            // all of the process is stopped, as by SIGSTOP
            EVENT_STOP => return Err(NotStopped::Later),
            _ => request(libc::PTRACE_CONT, tid, 0, usize::try_from(signal).unwrap_or(0))?,
        }
    }
    let mut mask = 0u64;
    request(libc::PTRACE_GETSIGMASK, tid, size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

/// A thread of the process that is running or about to run.
fn running_thread(pid: i32) -> Option<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let numbers = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|tid: &i32| {
        let stat = std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        state(&String::from_utf8_lossy(&stat)) == Some('R')
    })
}

/// The state letter in the text of `stat`. The name before it may hold anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_state_stands_behind_the_name() {
        assert_eq!(state("7 (a) R (b)) S 1 7"), Some('S'));
        assert_eq!(state("7 (a) R 1"), Some('R'));
        assert_eq!(state("7"), None);
    }

    #[test]
    fn this_thread_runs() {
        let me = std::process::id().cast_signed();
        assert!(running_thread(me).is_some());
        assert_eq!(running_thread(i32::MAX), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = state(&text);
        }
    }
}
