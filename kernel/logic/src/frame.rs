// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame on the stack while a handler runs, as Linux has it (`struct rt_sigframe` on x86-64), from low to high:
//! return address, `ucontext`, `siginfo`; above them, aligned to 64, the extended state.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::signals::Stack;

/// The general registers in a `ucontext`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Registers {
    /// r8–r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags.
    pub all: [u64; 18],
    /// cs, gs, fs, ss: 16 bits each.
    pub segments: u64,
    /// Error code of the exception.
    pub error: u64,
    /// Its vector.
    pub vector: u64,
    /// Mask; as in the `ucontext`.
    pub old_mask: u64,
    /// Address of a page fault.
    pub fault_address: u64,
    /// Address of the extended state; 0 for none.
    pub state: u64,
    /// Zero.
    pub unused: [u64; 8],
}

/// The frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Frame {
    /// Return address of the handler: code that calls `rt_sigreturn`.
    pub restorer: u64,
    /// [`FLAGS`], and 1 for an extended state of more than 512 bytes.
    pub flags: u64,
    /// Zero.
    pub link: u64,
    /// The stack for handlers.
    pub stack: Stack,
    /// The registers.
    pub registers: Registers,
    /// Mask to come back to.
    pub mask: u64,
    /// `siginfo`.
    pub info: [u64; 16],
}

/// The stack segment is told, and is to be restored.
pub const FLAGS: u64 = 6;
/// Offset of the `ucontext` in the frame.
pub const UCONTEXT: u64 = 8;
/// Offset of the `siginfo` in the frame.
pub const INFO: u64 = 312;
/// Below its stack pointer a program may use so much without moving it.
const RED_ZONE: u64 = 128;

const _: () = {
    assert!(size_of::<Registers>() == 256);
    assert!(size_of::<Frame>() == 440);
    assert!(core::mem::offset_of!(Frame, info) == INFO as usize);
};

/// Place of a frame on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The frame; the handler's stack pointer.
    pub frame: u64,
    /// The extended state.
    pub state: u64,
}

/// The place below `top` (or on `stack`, if the handler wants it and is not there yet) for a state of so many bytes.
pub fn place(sp: u64, stack: Option<&Stack>, state_len: u64) -> Option<Place> {
    let top = match stack {
        Some(stack) if stack.flags & Stack::OFF == 0 && !stack.has(sp) => {
            stack.address.checked_add(stack.size)?
        }
        _ => sp.checked_sub(RED_ZONE)?,
    };
    let state = top.checked_sub(state_len)? & !63;
    // as after a call: 8 less than a multiple of 16
    let frame = (state.checked_sub(size_of::<Frame>() as u64)? & !15).checked_sub(8)?;
    Some(Place { frame, state })
}

/// In the bytes of the extended state that the processor leaves to software, at 464: what is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct StateInfo {
    /// [`MAGIC`].
    pub magic: u32,
    /// Bytes with the word behind the state.
    pub extended_len: u32,
    /// As XCR0 has them.
    pub features: u64,
    /// Bytes.
    pub len: u32,
    /// Zero.
    pub unused: [u32; 7],
}

/// Offset of [`StateInfo`] in the state.
pub const STATE_INFO: u64 = 464;
/// First word of [`StateInfo`].
pub const MAGIC: u32 = 0x4650_5853;
/// The word behind the state.
pub const MAGIC_BEHIND: u32 = 0x4650_5845;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The C library's own idea of what lies there.
    #[test]
    fn the_frame_is_as_programs_see_it() {
        use core::mem::offset_of;
        assert_eq!(offset_of!(Frame, flags) as u64, UCONTEXT);
        let in_ucontext = |offset: usize| offset - UCONTEXT as usize;
        assert_eq!(in_ucontext(offset_of!(Frame, stack)), offset_of!(libc::ucontext_t, uc_stack));
        assert_eq!(in_ucontext(offset_of!(Frame, registers)), offset_of!(libc::ucontext_t, uc_mcontext));
        assert_eq!(in_ucontext(offset_of!(Frame, mask)), offset_of!(libc::ucontext_t, uc_sigmask));
        let register = |n: libc::c_int| offset_of!(Registers, all) + 8 * n as usize;
        assert_eq!(register(libc::REG_EFL), 17 * 8);
        assert_eq!(register(libc::REG_CSGSFS), offset_of!(Registers, segments));
        assert_eq!(register(libc::REG_CR2), offset_of!(Registers, fault_address));
        assert_eq!(size_of::<libc::siginfo_t>(), 128);
    }

    proptest! {
        /// Wherever the stack pointer is: below the red zone, aligned as the processor and the C calling convention
        /// have it, nothing over another.
        #[test]
        fn places_are_free_and_aligned(sp in 8192u64..1 << 46, len in 512u64..2700, alt in any::<bool>()) {
            let stack = Stack { address: 1 << 46, flags: 0, size: 1 << 14 };
            let place = place(sp, alt.then_some(&stack), len).expect("room");
            prop_assert_eq!((place.state % 64, (place.frame + 8) % 16), (0, 0));
            let top = if alt { stack.address + stack.size } else { sp - 128 };
            prop_assert!(place.state + len <= top);
            prop_assert!(place.frame + size_of::<Frame>() as u64 <= place.state);
            prop_assert!(top - place.frame < len + 600);
        }
    }

    #[test]
    fn a_handler_on_its_stack_stays_there() {
        let stack = Stack { address: 0x10_0000, flags: 0, size: 0x4000 };
        let inside = place(0x10_2000, Some(&stack), 512).expect("room");
        assert!(inside.frame < 0x10_2000 && inside.frame > 0x10_1000);
        assert_eq!(place(0x80_0000, Some(&Stack::NONE), 512), place(0x80_0000, None, 512));
        assert_eq!(place(100, None, 512), None);
    }
}
