// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a user program.

use super::fpu::Xmm;
use super::tables::{USER_CS, USER_SS};

/// Flags that a program starts with: interrupts are on.
pub const START_FLAGS: u64 = 0x202;

/// Registers as the entry code saves and restores them (`entry.s`).
#[derive(Clone, Copy, Debug, zerocopy::FromBytes)]
#[repr(C, align(16))]
pub struct Context {
    /// xmm0–15.
    pub xmm: Xmm,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// System call or vector.
    pub number: u64,
    /// Error code of an exception.
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl Context {
    /// Of nothing: all zero.
    pub const NONE: Self = zerocopy::transmute!([0u8; size_of::<Self>()]);

    /// Of a program at its first instruction.
    pub fn start(rip: u64, rsp: u64) -> Self {
        Self { rip, rsp, cs: USER_CS, ss: USER_SS, rflags: START_FLAGS, ..Self::NONE }
    }

    /// Returns `true` if the CPU was in user mode.
    pub fn is_user(&self) -> bool {
        self.cs & 3 == 3
    }

    /// Arguments of a system call.
    pub fn args(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// rax rbx rcx rdx rsi rdi rbp rsp r8–r15, as crash records have them.
    pub fn registers(&self) -> [u64; 16] {
        [
            self.rax, self.rbx, self.rcx, self.rdx, self.rsi, self.rdi, self.rbp, self.rsp, self.r8, self.r9,
            self.r10, self.r11, self.r12, self.r13, self.r14, self.r15,
        ]
    }
}

unsafe extern "C" {
    fn enter_user(context: *const Context) -> !;
    fn leave_process(cpu: usize) -> !;
}

/// Goes to user mode with these registers.
///
/// Whatever they are, the user harms only itself: privilege comes from `cs`, `ss` and the flags, which are set here.
pub fn enter(context: &Context) -> ! {
    let context = Context { cs: USER_CS, ss: USER_SS, rflags: safe_flags(context.rflags), ..*context };
    // SAFETY: the selectors are the user's and the flags give no rights.
    unsafe { enter_user(&context) }
}

/// Flags that a user may have, of those it wants: status, direction, trap, alignment check; interrupts stay on.
pub const fn safe_flags(wanted: u64) -> u64 {
    wanted & 0x0025_0dd5 | START_FLAGS
}

/// Forgets the process on this CPU and goes back to the loop that waits for the next.
///
/// The content of the stack is forgotten: nothing there may need to be dropped, locks above all.
pub fn leave(cpu: usize) -> ! {
    // SAFETY: this CPU's own stack begins anew; no code runs on that needed it.
    unsafe { leave_process(cpu) }
}
