// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets a program run from its first instruction, which is the dynamic linker's, to its entry point: its libraries are mapped
//! and relocated by then.
//!
//! A debug register of the process stops it there, so no byte of its memory changes. Signals are passed on. The linker runs
//! constructors of libraries too, which may do anything; a program that is not at its entry point in time is let go.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{CallError, Tracee, has_stopped, instruction, read_registers, request};

/// The longest time to the entry point.
const LONGEST: Duration = Duration::from_secs(1);
/// The first and the longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(5));

/// The place where a program has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// At its entry point.
    Entry,
    /// It has ended.
    End,
    /// Somewhere else, for this reason.
    Elsewhere(&'static str),
}

impl Tracee {
    /// Lets the program run to its entry point. It is stopped again afterwards, if it has not ended.
    pub(crate) fn run_to_entry(&mut self, entry: u64) -> Reached {
        if set_breakpoint(self.pid, Some(entry)).is_err() {
            return Reached::Elsewhere(
                "the processor or the kernel has no breakpoint for the program's entry point",
            );
        }
        let reached = self.let_run().and_then(|()| self.wait_for_entry(entry));
        let _ = set_breakpoint(self.pid, None);
        match reached.and_then(|reached| self.hold().map(|()| reached)) {
            Ok(reached) => reached,
            Err(CallError::Gone) => Reached::End,
            Err(CallError::Refused(_)) => {
                Reached::Elsewhere("the kernel did not let it run to its entry point")
            }
        }
    }

    fn let_run(&mut self) -> Result<(), CallError> {
        let (registers, mask) = (self.registers, self.mask);
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
        self.request(libc::PTRACE_SETOPTIONS, 0, options as usize)?;
        self.set_registers(&registers)?;
        self.request(libc::PTRACE_SETSIGMASK, size_of::<u64>(), &raw const mask as usize)?;
        let pending = std::mem::take(&mut self.pending);
        self.go_on(pending)
    }

    fn go_on(&mut self, signal: libc::c_int) -> Result<(), CallError> {
        self.request(libc::PTRACE_CONT, 0, usize::try_from(signal).unwrap_or(0))
    }

    fn wait_for_entry(&mut self, entry: u64) -> Result<Reached, CallError> {
        let program = Pid::from_raw(self.pid);
        let deadline = Instant::now() + LONGEST;
        let (mut pause, mut is_late) = (PAUSES.0, false);
        loop {
            let Some(status) = has_stopped(self.pid)? else {
                if !is_late && Instant::now() > deadline {
                    is_late = kill(program, Signal::SIGSTOP).is_ok();
                }
                sleep(pause);
                pause = (pause * 2).min(PAUSES.1);
                continue;
            };
            // an event of the tracer stands above the signal
            let (signal, event) = (status & 0xff, status >> 8);
            let reached = match signal {
                libc::SIGTRAP if event == libc::PTRACE_EVENT_EXEC => {
                    Reached::Elsewhere("it started another program before its entry point")
                }
                libc::SIGTRAP if event == 0 && instruction(&read_registers(self.pid)?) == entry => {
                    Reached::Entry
                }
                libc::SIGSTOP if is_late => {
                    return Ok(Reached::Elsewhere("it was not at its entry point within a second"));
                }
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                    self.pending = signal;
                    Reached::Elsewhere("a signal stopped it before its entry point")
                }
                other => {
                    self.go_on(other)?;
                    continue;
                }
            };
            if is_late {
                // removes the stop signal, which has not arrived
                let _ = kill(program, Signal::SIGCONT);
            }
            return Ok(reached);
        }
    }
}

/// Sets the breakpoint of the process, or clears it.
#[cfg(target_arch = "x86_64")]
fn set_breakpoint(pid: i32, address: Option<u64>) -> Result<(), CallError> {
    // register 7: the first breakpoint is on, for execution of one byte
    let first = std::mem::offset_of!(libc::user, u_debugreg);
    let control = first + 7 * size_of::<u64>();
    let word = |place, word: u64| request(libc::PTRACE_POKEUSER, pid, place, word as usize);
    match address {
        Some(address) => word(first, address).and_then(|()| word(control, 1)),
        None => word(control, 0),
    }
}

#[cfg(target_arch = "aarch64")]
fn set_breakpoint(_: i32, _: Option<u64>) -> Result<(), CallError> {
    Err(CallError::Refused(nix::errno::Errno::EOPNOTSUPP))
}
