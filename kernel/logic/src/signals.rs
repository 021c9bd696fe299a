// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: actions, masks, pending signals, and the thread that takes each.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Signals there are: 1 to 64.
pub const SIGNALS: usize = 64;

pub use linux_raw_sys::general::{SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSTOP, SIGTRAP};

/// Flags of an action that the kernel looks at.
#[allow(missing_docs, reason = "names of flags")]
pub mod flag {
    use linux_raw_sys::general as linux;

    pub const ONSTACK: u64 = linux::SA_ONSTACK as u64;
    pub const RESTART: u64 = linux::SA_RESTART as u64;
    pub const NODEFER: u64 = linux::SA_NODEFER as u64;
    pub const RESETHAND: u64 = linux::SA_RESETHAND as u64;
}

/// The bit of a signal in a set; none for what is no signal.
pub const fn bit(signal: u32) -> u64 {
    if signal >= 1 && signal <= SIGNALS as u32 { 1 << (signal - 1) } else { 0 }
}

/// The signals of a set.
pub fn signals(set: u64) -> impl Iterator<Item = u32> {
    (1..=SIGNALS as u32).filter(move |&signal| set & bit(signal) != 0)
}

/// Signals that nobody can block or handle.
pub const ALWAYS: u64 = bit(SIGKILL) | bit(SIGSTOP);
/// Signals that a process ignores unless it says otherwise: SIGCHLD, SIGCONT, SIGURG, SIGWINCH; and those that would
/// stop it, for there is nobody to continue it: SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
const IGNORED: u64 = bit(17) | bit(18) | bit(23) | bit(28) | bit(19) | bit(20) | bit(21) | bit(22);
/// Signals of what a thread does itself: first of all.
const SYNCHRONOUS: u64 = bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGFPE);

/// The action of a process for a signal, as `rt_sigaction` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Action {
    /// Address of the handler; 0 for the default, 1 for nothing.
    pub handler: u64,
    /// See [`flag`].
    pub flags: u64,
    /// Address of what a handler returns to.
    pub restorer: u64,
    /// Blocked while the handler runs.
    pub mask: u64,
}

/// The cause of a signal, for `siginfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// `si_code`.
    pub code: i32,
    /// The next fields: the sender (process and user), or the address of a fault.
    pub about: u64,
}

impl Info {
    /// From a process, by `kill` and the like (`SI_USER`), or to one thread (`SI_TKILL`).
    pub const fn from(pid: u32, uid: u32, thread: bool) -> Self {
        Self { code: if thread { -6 } else { 0 }, about: pid as u64 | (uid as u64) << 32 }
    }

    /// From the kernel itself.
    pub const KERNEL: Self = Self { code: 0x80, about: 0 };

    /// A `siginfo`.
    pub fn encode(self, signal: u32) -> [u64; 16] {
        let mut words = [0; 16];
        words[0] = u64::from(signal);
        words[1] = u64::from(self.code as u32);
        words[2] = self.about;
        words
    }
}

/// The stack of handlers that want one, as `sigaltstack` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Stack {
    /// First address.
    pub address: u64,
    /// [`Stack::OFF`]; the upper half is not used.
    pub flags: u64,
    /// Bytes.
    pub size: u64,
}

impl Stack {
    /// There is none.
    pub const OFF: u64 = 2;
    /// A handler is on it.
    pub const IN_USE: u64 = 1;
    /// None.
    pub const NONE: Self = Self { address: 0, flags: Self::OFF, size: 0 };

    /// Returns `true` if `sp` is on it.
    pub fn has(&self, sp: u64) -> bool {
        self.flags & Self::OFF == 0 && sp > self.address && sp - self.address <= self.size
    }
}

/// Signal state of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Blocked.
    pub mask: u64,
    /// The mask to come back to, while a call waits with another.
    pub saved: Option<u64>,
    /// Sent to this thread.
    pub pending: u64,
    /// Waited for by `rt_sigtimedwait`.
    pub wanted: u64,
    /// It is the one that takes the signals of the whole process: each is told to one thread that does not block it.
    pub told: bool,
    /// See [`Stack`].
    pub stack: Stack,
}

impl Thread {
    /// Of a new process.
    pub const NEW: Self =
        Self { mask: 0, saved: None, pending: 0, wanted: 0, told: true, stack: Stack::NONE };

    /// All zero: of no thread.
    pub const ZERO: Self = Self { told: false, stack: Stack { address: 0, flags: 0, size: 0 }, ..Self::NEW };

    /// Signals that are kept although they are ignored: it may come to take them.
    pub fn keeps(&self) -> u64 {
        self.mask | self.wanted
    }
}

/// The next action for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Call the handler.
    Handle(u32, Info, Action),
    /// End the process.
    Kill(u32),
}

/// Signal state that all threads of a process share.
pub struct Signals {
    actions: [Action; SIGNALS],
    infos: [Info; SIGNALS],
    pending: u64,
}

impl Signals {
    /// Of a new process.
    pub const NEW: Self = Self {
        actions: [Action { handler: 0, flags: 0, restorer: 0, mask: 0 }; SIGNALS],
        infos: [Info { code: 0, about: 0 }; SIGNALS],
        pending: 0,
    };

    /// The action of a signal from 1 to 64.
    pub fn action(&self, signal: u32) -> Option<Action> {
        self.actions.get(signal.checked_sub(1)? as usize).copied()
    }

    /// Changes it; what is pending and ignored from now on is forgotten.
    pub fn set_action(&mut self, signal: u32, action: Action) {
        if let Some(place) = signal.checked_sub(1).and_then(|n| self.actions.get_mut(n as usize)) {
            *place = Action { mask: action.mask & !ALWAYS, ..action };
            if self.ignores(signal) {
                self.pending &= !bit(signal);
            }
        }
    }

    /// Another program takes the place of this one: there are no handlers any more.
    pub fn forget_handlers(&mut self) {
        for action in &mut self.actions {
            if action.handler > 1 {
                *action = Action::default();
            }
        }
    }

    fn ignores(&self, signal: u32) -> bool {
        match self.action(signal).map_or(0, |a| a.handler) {
            0 => IGNORED & bit(signal) != 0,
            1 => true,
            _ => false,
        }
    }

    /// Pending for the process.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// A signal has come, for the process or one of its threads. What is ignored is dropped unless it is blocked.
    pub fn post(&mut self, signal: u32, info: Info, thread: Option<&mut Thread>, blocked: u64) {
        if bit(signal) == 0 || (self.ignores(signal) && blocked & bit(signal) == 0) {
            return;
        }
        let pending = thread.map_or(&mut self.pending, |t| &mut t.pending);
        if *pending & bit(signal) == 0 {
            *pending |= bit(signal);
            self.infos[signal as usize - 1] = info;
        }
    }

    /// Signals that are for `thread`.
    fn of(&self, thread: &Thread) -> u64 {
        thread.pending | if thread.told { self.pending } else { 0 }
    }

    /// Returns `true` if `thread` has a signal that it does not block, and that is not ignored.
    pub fn waits(&self, thread: &Thread) -> bool {
        let open = self.of(thread) & !thread.mask;
        signals(open).any(|signal| !self.ignores(signal))
    }

    /// Takes the first pending signal of `set`.
    pub fn take(&mut self, thread: &mut Thread, set: u64) -> Option<(u32, Info)> {
        let open = (self.pending | thread.pending) & set;
        let first = if open & SYNCHRONOUS != 0 { open & SYNCHRONOUS } else { open };
        let signal = first.trailing_zeros() + 1;
        if bit(signal) == 0 {
            return None;
        }
        let pending = if thread.pending & bit(signal) != 0 { &mut thread.pending } else { &mut self.pending };
        *pending &= !bit(signal);
        Some((signal, self.infos[signal as usize - 1]))
    }

    /// The next delivery for `thread`.
    pub fn next(&mut self, thread: &mut Thread) -> Option<Delivery> {
        while let Some((signal, info)) = self.take(thread, self.of(thread) & !thread.mask) {
            let action = self.action(signal).unwrap_or_default();
            match action.handler {
                _ if self.ignores(signal) => {}
                0 => return Some(Delivery::Kill(signal)),
                _ => {
                    if action.flags & flag::RESETHAND != 0 {
                        self.actions[signal as usize - 1] = Action::default();
                    }
                    return Some(Delivery::Handle(signal, info, action));
                }
            }
        }
        None
    }

    /// An exception of `thread`: it comes now, or ends the process if it is blocked or ignored.
    pub fn force(&mut self, thread: &mut Thread, signal: u32, info: Info) {
        if thread.mask & bit(signal) != 0 || self.action(signal).is_some_and(|a| a.handler == 1) {
            self.actions[signal as usize - 1] = Action::default();
            thread.mask &= !bit(signal);
        }
        thread.pending |= bit(signal);
        self.infos[signal as usize - 1] = info;
    }
}

/// The mask while a handler runs.
pub fn handler_mask(mask: u64, signal: u32, action: &Action) -> u64 {
    let own = if action.flags & flag::NODEFER == 0 { bit(signal) } else { 0 };
    (mask | action.mask | own) & !ALWAYS
}

/// Returns `true` if Linux restarts a call after a handler with `SA_RESTART` (signal(7)); it does not restart calls that wait
/// for time.
pub fn restarts(call: u64) -> bool {
    use colony_fship::calls::number::*;
    const POLLS: [u32; 6] = [poll, ppoll, select, pselect6, epoll_wait, epoll_pwait];
    const WAITS: [u32; 6] = [pause, nanosleep, clock_nanosleep, rt_sigsuspend, rt_sigtimedwait, rt_sigreturn];
    !POLLS.iter().chain(&WAITS).any(|&n| u64::from(n) == call)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLER: Action = Action { handler: 0x40_1000, flags: 0, restorer: 0, mask: 0 };

    fn posted(signals: &mut Signals, thread: &Thread, signal: u32) {
        signals.post(signal, Info::from(1, 2, false), None, thread.mask | thread.wanted);
    }

    #[test]
    fn signals_are_handled_killed_by_or_ignored() {
        let (mut signals, mut thread) = (Signals::NEW, Thread::NEW);
        signals.set_action(10, HANDLER);
        for signal in [17, 10, 15] {
            posted(&mut signals, &thread, signal);
        }
        assert!(signals.waits(&thread));
        assert_eq!(signals.next(&mut thread), Some(Delivery::Handle(10, Info::from(1, 2, false), HANDLER)));
        assert_eq!(signals.next(&mut thread), Some(Delivery::Kill(15)));
        assert_eq!((signals.next(&mut thread), signals.waits(&thread)), (None, false), "SIGCHLD is ignored");
    }

    #[test]
    fn a_blocked_signal_waits_and_counts_once() {
        let (mut signals, mut thread) = (Signals::NEW, Thread { mask: bit(10) | bit(17), ..Thread::NEW });
        signals.set_action(10, HANDLER);
        posted(&mut signals, &thread, 10);
        posted(&mut signals, &thread, 10);
        posted(&mut signals, &thread, 17);
        assert_eq!((signals.waits(&thread), signals.next(&mut thread)), (false, None));
        assert_eq!(
            signals.take(&mut thread, bit(17)).map(|t| t.0),
            Some(17),
            "to wait for it, though ignored"
        );
        thread.mask = 0;
        assert!(matches!(signals.next(&mut thread), Some(Delivery::Handle(10, ..))));
        assert_eq!(signals.next(&mut thread), None);
    }

    #[test]
    fn a_signal_of_the_process_is_for_the_thread_that_is_told() {
        let mut signals = Signals::NEW;
        let (mut other, mut told) = (Thread { told: false, ..Thread::NEW }, Thread::NEW);
        posted(&mut signals, &told, 15);
        assert!(!signals.waits(&other) && signals.next(&mut other).is_none());
        assert!(signals.waits(&told));
        assert_eq!(signals.next(&mut told), Some(Delivery::Kill(15)));
        posted(&mut signals, &told, 10);
        assert_eq!(signals.take(&mut other, bit(10)).map(|t| t.0), Some(10), "who waits for it takes it");
    }

    #[test]
    fn an_exception_cannot_be_blocked_or_ignored() {
        for (mask, handler) in [(bit(SIGSEGV), 0x40_1000), (0, 1), (0, 0)] {
            let (mut signals, mut thread) = (Signals::NEW, Thread { mask, ..Thread::NEW });
            signals.set_action(SIGSEGV, Action { handler, ..HANDLER });
            signals.force(&mut thread, SIGSEGV, Info::KERNEL);
            assert_eq!(signals.next(&mut thread), Some(Delivery::Kill(SIGSEGV)));
        }
        let (mut signals, mut thread) = (Signals::NEW, Thread::NEW);
        signals.set_action(SIGSEGV, HANDLER);
        posted(&mut signals, &thread, 1);
        signals.force(&mut thread, SIGSEGV, Info::KERNEL);
        assert_eq!(
            signals.next(&mut thread),
            Some(Delivery::Handle(SIGSEGV, Info::KERNEL, HANDLER)),
            "comes first"
        );
    }

    #[test]
    fn one_shot_handlers_and_masks() {
        let (mut signals, mut thread) = (Signals::NEW, Thread::NEW);
        let once = Action { flags: flag::RESETHAND, mask: bit(12) | bit(SIGKILL), ..HANDLER };
        signals.set_action(10, once);
        posted(&mut signals, &thread, 10);
        let Some(Delivery::Handle(10, _, action)) = signals.next(&mut thread) else { panic!("handled") };
        assert_eq!(handler_mask(bit(1), 10, &action), bit(1) | bit(10) | bit(12), "never SIGKILL");
        assert_eq!(signals.action(10), Some(Action::default()));
        posted(&mut signals, &thread, 10);
        assert_eq!(signals.next(&mut thread), Some(Delivery::Kill(10)));
    }

    #[test]
    fn invalid_signal_numbers_are_ignored() {
        let (mut signals, thread) = (Signals::NEW, Thread::NEW);
        for signal in [0, 65, u32::MAX] {
            posted(&mut signals, &thread, signal);
            assert_eq!(signals.action(signal), None);
            signals.set_action(signal, HANDLER);
        }
        assert_eq!(signals.pending(), 0);
    }

    #[test]
    fn a_new_program_has_no_handlers_but_keeps_ignored_signals() {
        let mut signals = Signals::NEW;
        signals.set_action(10, HANDLER);
        signals.set_action(12, Action { handler: 1, ..Action::default() });
        signals.forget_handlers();
        assert_eq!([10, 12].map(|s| signals.action(s).map(|a| a.handler)), [Some(0), Some(1)]);
    }
}
