// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that are meant for the program: held back from this process, read one by one, passed on.
//!
//! A resource manager, a shell or a user sends a signal to the process it has started, which is this one. Without it, the
//! program would be that process, so the program gets every signal. Left out are the signals that tell this process of its own
//! faults, and those that the program has already.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::Pid;

use crate::SchedError;

/// Signals that are about this process: its faults, and a pipe that its reader has closed.
const OWN: [libc::c_int; 7] =
    [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS, libc::SIGPIPE];

/// Signals that stop a process unless it handles them, beside `SIGSTOP`, which cannot be held back.
const STOPS: [libc::c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The largest number of a signal.
const LARGEST: libc::c_int = 64;

/// Signals held back from this thread, to be read one by one; let through again at the end.
pub(super) struct Signals {
    fd: SignalFd,
    before: ProgramSignals,
}

/// An event that ends a wait.
pub(super) enum Event {
    /// A child of this process may have changed.
    Child,
    /// A signal has arrived.
    Signal(Received),
    /// Neither, within the timeout.
    Timeout,
}

impl Signals {
    pub(super) fn block() -> Result<Self, SchedError> {
        let failed = SchedError::system("taking signals for the program");
        let set = taken();
        let mask = SigSet::thread_get_mask().map_err(&failed)?;
        set.thread_block().map_err(&failed)?;
        let fd =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(&failed)?;
        // A parent may have had this process ignore the ends of children: then nobody could wait for the program.
        // SAFETY: the default action is no handler.
        let children = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.map_err(&failed)?;
        let ignores_children = matches!(children, SigHandler::SigIgn);
        Ok(Self { fd, before: ProgramSignals { mask, ignores_children } })
    }

    /// The settings that the program is to start with: those of this process before.
    pub(super) const fn of_program(&self) -> ProgramSignals {
        self.before
    }

    /// Waits for an event, until the timeout at most.
    pub(super) fn next(&self, timeout: Option<Duration>) -> Result<Event, SchedError> {
        let failed = SchedError::system("reading signals for the program");
        // a part of a millisecond is waited for as a whole one
        let timeout = timeout.and_then(|t| PollTimeout::try_from(t + Duration::from_micros(999)).ok());
        let mut readable = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut readable, timeout) {
            Ok(0) => return Ok(Event::Timeout),
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Event::Child),
            Err(e) => return Err(failed(e)),
        }
        match self.fd.read_signal() {
            Ok(Some(info)) if info.ssi_signo == libc::SIGCHLD as u32 => Ok(Event::Child),
            Ok(Some(info)) => Ok(Event::Signal(Received::new(&info))),
            Ok(None) | Err(Errno::EINTR) => Ok(Event::Child),
            Err(e) => Err(failed(e)),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that arrives after the program's end has no receiver: it must not kill this process on the way out.
        while let Ok(Some(_)) = self.fd.read_signal() {}
        let _ = self.before.restore();
    }
}

/// The signals that are held back: those that are passed on, and `SIGCHLD`.
fn taken() -> SigSet {
    // SAFETY: a set of signals is plain integers, for which zero is a value, and the calls write into this one alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        // real-time signals too, but for those of the C library
        libc::sigfillset(&raw mut set);
        for number in OWN {
            libc::sigdelset(&raw mut set, number);
        }
        SigSet::from_sigset_t_unchecked(set)
    }
}

/// Settings of signals that a program inherits.
#[derive(Clone, Copy)]
pub(super) struct ProgramSignals {
    mask: SigSet,
    /// True if the ends of children are ignored.
    ignores_children: bool,
}

impl ProgramSignals {
    /// Makes the settings in the calling thread. System calls only.
    pub(super) fn restore(&self) -> io::Result<()> {
        if self.ignores_children {
            // SAFETY: to ignore a signal is no handler.
            unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        }
        Ok(self.mask.thread_set_mask()?)
    }

    /// The mask: bit n-1 for signal n.
    pub(super) fn mask_bits(&self) -> u64 {
        let is_blocked = |&number: &libc::c_int| {
            // SAFETY: the set is initialized, and the call only reads it.
            unsafe { libc::sigismember(self.mask.as_ref(), number) == 1 }
        };
        (1..=LARGEST).filter(is_blocked).fold(0, |bits, number| bits | 1 << (number - 1))
    }
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    number: libc::c_int,
    /// The way in which it was sent (`si_code`).
    code: libc::c_int,
    /// The process that sent it; 0 if that was the kernel, or a process outside of this PID namespace.
    sender: libc::pid_t,
    /// The value that the sender gave it (`sigqueue(3)`).
    value: usize,
}

impl Received {
    fn new(info: &siginfo) -> Self {
        Self {
            number: info.ssi_signo.cast_signed(),
            code: info.ssi_code,
            sender: info.ssi_pid.cast_signed(),
            value: info.ssi_ptr as usize,
        }
    }

    /// Returns `true` if the signal was sent to this process alone, as far as its origin tells. A terminal's signals come from
    /// the kernel and go to the whole process group, so the program has them already; so do signals about limits and
    /// timers, except for `SIGALRM`: an alarm that was set before this program was started is meant for the program.
    const fn is_addressed(self) -> bool {
        self.code <= 0 || self.number == libc::SIGALRM
    }

    /// The process that sent it, if the kernel tells.
    pub(super) fn sender(self) -> Option<Pid> {
        (self.code <= 0 && self.sender > 0).then(|| Pid::from_raw(self.sender))
    }

    /// Sends it to the program, with the value that its sender gave it, unless the program has it already.
    pub(super) fn pass_on(self, program: Pid) {
        if !self.is_addressed() {
            return;
        }
        // an error: the program may have ended just now
        if self.code == libc::SI_QUEUE {
            let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(self.value) };
            // SAFETY: the value is handed on as a number; nothing here follows it.
            unsafe { libc::sigqueue(program.as_raw(), self.number, value) };
        } else {
            // SAFETY: the call takes numbers only.
            unsafe { libc::kill(program.as_raw(), self.number) };
        }
    }
}

/// Stops this process with its program, so that a shell shows the job as stopped and can continue it.
///
/// This process follows only after it was told to stop itself, by the terminal or by a process. If a debugger or a checkpointing tool
/// stops the program alone, it continues the program alone, and nobody would continue this process.
#[derive(Debug, Default)]
pub(super) struct Suspension {
    was_told: bool,
    /// The signal that stopped the program.
    stopped_by: Option<libc::c_int>,
}

impl Suspension {
    /// Notes a signal to this process.
    pub(super) fn note_signal(&mut self, received: Received) {
        match received.number {
            libc::SIGCONT => *self = Self::default(),
            number if STOPS.contains(&number) => self.was_told = true,
            _ => {}
        }
    }

    /// Notes that the program has been stopped.
    pub(super) const fn note_stop(&mut self, signal: libc::c_int) {
        self.stopped_by = Some(signal);
    }

    /// Notes that the program goes on.
    pub(super) const fn note_continuation(&mut self) {
        self.stopped_by = None;
    }

    /// The signal by which this process is to stop now, once for each stop of the program.
    fn take_stop(&mut self) -> Option<libc::c_int> {
        let signal = self.stopped_by.filter(|_| self.was_told)?;
        *self = Self::default();
        Some(signal)
    }

    /// Stops this process if it is time. Returns when it has been continued.
    pub(super) fn follow(&mut self) {
        if let Some(signal) = self.take_stop() {
            stop(signal);
        }
    }
}

/// Stops this process by the default action of a signal. The kernel ignores such a signal, except for `SIGSTOP`, in a process group
/// that no shell can continue.
fn stop(number: libc::c_int) {
    // SAFETY: the set is initialized before it is used, and the calls keep no pointer.
    unsafe {
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut only, number);
        libc::raise(number);
        // the signal is held back until here
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const only, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(number: libc::c_int, code: libc::c_int) -> Received {
        Received { number, code, sender: 7, value: 0 }
    }

    /// What the kernel says of a signal of a terminal, a timer or a limit.
    const SI_KERNEL: libc::c_int = 0x80;

    #[test]
    fn every_signal_is_taken_that_is_not_about_a_fault_of_this_process() {
        let set = taken();
        let taken = |number| {
            // SAFETY: the set is initialized.
            unsafe { libc::sigismember(set.as_ref(), number) == 1 }
        };
        for signal in Signal::iterator() {
            let number = signal as libc::c_int;
            assert_eq!(taken(number), !OWN.contains(&number), "{signal}");
        }
        for number in libc::SIGRTMIN()..=libc::SIGRTMAX() {
            assert!(taken(number), "{number}");
        }
    }

    #[test]
    fn signals_of_a_terminal_reach_the_program_without_help() {
        for number in
            [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH, libc::SIGHUP, libc::SIGXCPU]
        {
            assert!(!received(number, SI_KERNEL).is_addressed(), "{number}");
            assert!(received(number, libc::SI_USER).is_addressed(), "{number}");
        }
        assert!(received(libc::SIGUSR1, libc::SI_QUEUE).is_addressed());
        assert!(received(libc::SIGALRM, SI_KERNEL).is_addressed(), "an alarm of before `exec`");
        assert_eq!(received(libc::SIGINT, SI_KERNEL).sender(), None);
        assert_eq!(received(libc::SIGINT, libc::SI_USER).sender(), Some(Pid::from_raw(7)));
    }

    #[test]
    fn this_process_stops_with_its_program_only_if_it_was_told_to() {
        let stop = received(libc::SIGTSTP, SI_KERNEL);
        let mut one = Suspension::default();
        one.note_stop(libc::SIGSTOP);
        assert_eq!(one.take_stop(), None, "a debugger has stopped the program");
        one.note_signal(stop);
        assert_eq!(one.take_stop(), Some(libc::SIGSTOP));
        assert_eq!(one.take_stop(), None, "once");
        // in the other order
        one.note_signal(stop);
        assert_eq!(one.take_stop(), None, "the program may handle it");
        one.note_stop(libc::SIGTSTP);
        assert_eq!(one.take_stop(), Some(libc::SIGTSTP));
        // continued before
        let ways: [fn(&mut Suspension); 2] =
            [|s| s.note_signal(received(libc::SIGCONT, libc::SI_USER)), |s| s.note_continuation()];
        for continue_program in ways {
            one.note_stop(libc::SIGTSTP);
            continue_program(&mut one);
            one.note_signal(stop);
            assert_eq!(one.take_stop(), None);
            one = Suspension::default();
        }
    }

    #[test]
    fn a_mask_has_a_bit_for_each_signal_real_time_signals_among_them() {
        let mask = std::thread::spawn(|| {
            taken().thread_block().expect("a mask");
            ProgramSignals { mask: SigSet::thread_get_mask().expect("a mask"), ignores_children: false }
        });
        let bits = mask.join().expect("no panic").mask_bits();
        for number in [libc::SIGUSR1, libc::SIGRTMIN(), libc::SIGRTMAX()] {
            assert!(bits & (1 << (number - 1)) != 0, "{number}");
        }
        assert!(bits & (1 << (libc::SIGSEGV - 1)) == 0);
    }
}
