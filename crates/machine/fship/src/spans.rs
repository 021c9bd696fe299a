// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the arguments of a call name.
//!
//! Both sides ask this for every shipped call: the kernel with the memory as it is mapped, the daemon with its own
//! copy of what is read here (a program may change an array of `iovec` while it is looked at; what was checked is
//! what must be used).

use crate::calls::{Arg, Call, Len};
use crate::{Errno, Request};

/// Bytes of a path with its zero, at most; also of a name.
pub const PATH: u64 = 4096;
/// Parts of one `readv` or `writev`, at most.
pub const IOVECS: u64 = 1024;
/// Bytes that one call moves, at most: as Linux has it.
pub const MOVED: u64 = 0x7fff_f000;

/// Use of a piece of memory by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The daemon reads it.
    Read,
    /// The daemon writes it.
    Write,
    /// Both.
    Both,
}

impl Use {
    /// Returns `true` if it is written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Both)
    }
}

/// A piece of the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub address: u64,
    /// Bytes; never more than [`MOVED`].
    pub length: u64,
    /// Its use.
    pub used: Use,
    /// A string up to its zero: `length` is only the most that it can have, and may reach beyond the memory.
    pub string: bool,
}

/// The memory of a process, as one side sees it.
pub trait Memory {
    /// Returns `true` if all of `length` bytes at `address` are the process's, and writable if `write`.
    fn holds(&self, address: u64, length: u64, write: bool) -> bool;

    /// Copies from `address`.
    ///
    /// # Errors
    /// `EFAULT` unless all of it is the process's.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno>;
}

/// What is shown each piece.
pub type See<'a> = &'a mut dyn FnMut(Span) -> Result<(), Errno>;

fn word<const N: usize>(memory: &impl Memory, address: u64) -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    memory.read(address, &mut bytes)?;
    Ok(bytes)
}

fn at(address: u64, offset: u64) -> Result<u64, Errno> {
    address.checked_add(offset).ok_or(Errno::EFAULT)
}

impl Len {
    /// Bytes, for these arguments; what is more than one call moves is cut, as Linux does.
    fn bytes(self, args: &[u64; 6]) -> u64 {
        let arg = |n: u8| args.get(usize::from(n)).copied().unwrap_or(0);
        match self {
            Self::Arg(n) => arg(n),
            Self::Bytes(n) => u64::from(n),
            // such counts are ints
            Self::Times(size, n) => u64::from(arg(n) as u32).saturating_mul(u64::from(size)),
            Self::Bits(n) => u64::from(arg(n) as u32).div_ceil(64).saturating_mul(8),
        }
        .min(MOVED)
    }
}

/// Bytes and use of the third argument of `ioctl`; `None` for what is not passed on.
pub const fn ioctl(request: u64) -> Option<(u64, Use)> {
    Some(match request as u32 {
        0x5401 => (36, Use::Write),         // TCGETS
        0x5413 => (8, Use::Write),          // TIOCGWINSZ
        0x540f => (4, Use::Write),          // TIOCGPGRP
        0x541b => (4, Use::Write),          // FIONREAD
        0x5421 => (4, Use::Read),           // FIONBIO
        0x5450 | 0x5451 => (0, Use::Read),  // FIONCLEX, FIOCLEX
        0x5402..=0x5404 => (36, Use::Read), // TCSETS, TCSETSW, TCSETSF
        _ => return None,
    })
}

/// Bytes and use of the third argument of `fcntl`, where it is an address.
pub const fn fcntl(command: u64) -> Option<(u64, Use)> {
    match command as u32 {
        5 | 36 => Some((32, Use::Both)),          // F_GETLK, F_OFD_GETLK
        6 | 7 | 37 | 38 => Some((32, Use::Read)), // F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
        _ => None,
    }
}

/// Shows each piece of memory that `request` names to `see`, in the order of the arguments.
///
/// # Errors
/// `EFAULT` where a piece is not the process's, `EINVAL` and `EMSGSIZE` for counts that Linux refuses, or what `see`
/// returns. Pieces seen before the error are right.
pub fn each(call: &Call, request: &Request, memory: &impl Memory, see: See<'_>) -> Result<(), Errno> {
    let args = &request.args;
    for (&arg, &value) in call.args.iter().zip(args) {
        let mut piece = |len: Len, used| span(memory, value, len.bytes(args), used, see);
        match arg {
            Arg::Val | Arg::Fd | Arg::DirFd => {}
            Arg::Path => string(memory, value, see)?,
            Arg::PathOrNull if value != 0 => string(memory, value, see)?,
            Arg::Strings if value != 0 => strings(memory, value, see)?,
            Arg::In(len) => piece(len, Use::Read)?,
            Arg::Out(len) => piece(len, Use::Write)?,
            Arg::InOut(len) => piece(len, Use::Both)?,
            Arg::InOrNull(len) if value != 0 => piece(len, Use::Read)?,
            Arg::OutOrNull(len) if value != 0 => piece(len, Use::Write)?,
            Arg::InOutOrNull(len) if value != 0 => piece(len, Use::Both)?,
            Arg::OutSized(n) if value != 0 => {
                let size = word(memory, args.get(usize::from(n)).copied().unwrap_or(0))?;
                span(memory, value, u64::from(u32::from_le_bytes(size)).min(MOVED), Use::Write, see)?;
            }
            Arg::IovIn(n) | Arg::IovOut(n) => {
                let count = args.get(usize::from(n)).copied().unwrap_or(0);
                let used = if matches!(arg, Arg::IovIn(_)) { Use::Read } else { Use::Write };
                iovecs(memory, value, count, used, Errno::EINVAL, see)?;
            }
            Arg::MsgIn => message(memory, value, Use::Read, see)?,
            Arg::MsgOut => message(memory, value, Use::Write, see)?,
            Arg::Ioctl => {
                if let Some((length, used)) = ioctl(args[1]) {
                    span(memory, value, length, used, see)?;
                }
            }
            Arg::Fcntl => {
                if let Some((length, used)) = fcntl(args[1]) {
                    span(memory, value, length, used, see)?;
                }
            }
            // null where it may be
            _ => {}
        }
    }
    Ok(())
}

fn span(memory: &impl Memory, address: u64, length: u64, used: Use, see: See<'_>) -> Result<(), Errno> {
    // Linux does not look at an address of which nothing is moved
    if length == 0 {
        return Ok(());
    }
    if !memory.holds(address, length, used.writes()) {
        return Err(Errno::EFAULT);
    }
    see(Span { address, length, used, string: false })
}

fn string(memory: &impl Memory, address: u64, see: See<'_>) -> Result<(), Errno> {
    if !memory.holds(address, 1, false) {
        return Err(Errno::EFAULT);
    }
    see(Span { address, length: PATH, used: Use::Read, string: true })
}

/// The most strings that `execve` takes: bounds the time both sides spend on it.
pub const STRINGS: u64 = 16_384;

fn strings(memory: &impl Memory, address: u64, see: See<'_>) -> Result<(), Errno> {
    for n in 0..STRINGS {
        let place = at(address, n * 8)?;
        let one = u64::from_le_bytes(word(memory, place)?);
        if one == 0 {
            return span(memory, address, (n + 1) * 8, Use::Read, see);
        }
        string(memory, one, see)?;
    }
    Err(Errno::E2BIG)
}

fn iovecs(
    memory: &impl Memory,
    address: u64,
    count: u64,
    used: Use,
    too_many: Errno,
    see: See<'_>,
) -> Result<(), Errno> {
    if count > IOVECS {
        return Err(too_many);
    }
    span(memory, address, count * 16, Use::Read, see)?;
    let mut left = MOVED;
    for n in 0..count {
        let pair: [u8; 16] = word(memory, at(address, n * 16)?)?;
        let half = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| pair[at + i]));
        let (base, length) = (half(0), half(8));
        if length > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let length = length.min(left);
        left -= length;
        span(memory, base, length, used, see)?;
    }
    Ok(())
}

/// `msghdr`: name 0, its length 8 (u32), parts 16, their count 24, control 32, its length 40, flags 48; 56 bytes.
fn message(memory: &impl Memory, address: u64, used: Use, see: See<'_>) -> Result<(), Errno> {
    span(memory, address, 56, if used.writes() { Use::Both } else { Use::Read }, see)?;
    let head: [u8; 56] = word(memory, address)?;
    let field = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| head[at + i]));
    if field(0) != 0 {
        span(memory, field(0), u64::from(field(8) as u32).min(MOVED), used, see)?;
    }
    iovecs(memory, field(16), field(24), used, Errno::EMSGSIZE, see)?;
    if field(32) != 0 {
        span(memory, field(32), field(40).min(MOVED), used, see)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calls::{CALLS, find, number};

    /// Memory from 0x1000, of which the first 0x100 bytes cannot be written.
    struct Flat(Vec<u8>);

    impl Memory for Flat {
        fn holds(&self, address: u64, length: u64, write: bool) -> bool {
            let first = if write { 0x1100 } else { 0x1000 };
            let end = address.checked_add(length);
            address >= first && end.is_some_and(|end| end <= 0x1000 + self.0.len() as u64)
        }

        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
            if !self.holds(address, into.len() as u64, false) {
                return Err(Errno::EFAULT);
            }
            let at = (address - 0x1000) as usize;
            into.copy_from_slice(&self.0[at..at + into.len()]);
            Ok(())
        }
    }

    fn seen(memory: &Flat, call: u32, args: [u64; 6]) -> Result<Vec<(u64, u64, Use)>, Errno> {
        let mut all = Vec::new();
        let request = Request { call, args, ..Request::default() };
        each(find(u64::from(call)).expect("a call"), &request, memory, &mut |s| {
            all.push((s.address, s.length, s.used));
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn buffers_are_checked_by_their_use() {
        let memory = Flat(vec![0; 0x1000]);
        assert_eq!(seen(&memory, number::write, [1, 0x1000, 16, 0, 0, 0]), Ok(vec![(0x1000, 16, Use::Read)]));
        assert_eq!(seen(&memory, number::read, [0, 0x1000, 16, 0, 0, 0]), Err(Errno::EFAULT), "not writable");
        assert_eq!(seen(&memory, number::read, [0, 0x1ff0, 17, 0, 0, 0]), Err(Errno::EFAULT), "one too many");
        assert_eq!(seen(&memory, number::read, [0, 1, 0, 0, 0, 0]), Ok(vec![]), "nothing is moved");
        assert_eq!(seen(&memory, number::write, [1, u64::MAX, 2, 0, 0, 0]), Err(Errno::EFAULT));
        assert_eq!(seen(&memory, number::utimensat, [0; 6]), Ok(vec![]), "null where it may be");
        assert_eq!(
            seen(&memory, number::stat, [0, 0x1200, 0, 0, 0, 0]),
            Err(Errno::EFAULT),
            "null is no path"
        );
    }

    #[test]
    fn parts_of_a_vector_are_seen_each() {
        let mut memory = Flat(vec![0; 0x1000]);
        for (n, word) in [0x1200u64, 5, 0, 0, 0x1300, 7].into_iter().enumerate() {
            memory.0[n * 8..n * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let vector = (0x1000, 48, Use::Read);
        let parts = [vector, (0x1200, 5, Use::Write), (0x1300, 7, Use::Write)];
        assert_eq!(seen(&memory, number::readv, [0, 0x1000, 3, 0, 0, 0]), Ok(parts.to_vec()));
        assert_eq!(seen(&memory, number::readv, [0, 0x1000, 1025, 0, 0, 0]), Err(Errno::EINVAL));
    }

    proptest! {
        /// Whatever a program asks for, every piece seen lies in its memory.
        #[test]
        fn nothing_outside_is_ever_seen(
            row in 0..CALLS.len(),
            args in prop::array::uniform6(prop_oneof![0..0x2200u64, any::<u64>()]),
            words in prop::collection::vec(prop_oneof![Just(0), 0..0x2200u64, any::<u64>()], 512),
        ) {
            let memory = Flat(words.iter().flat_map(|w: &u64| w.to_le_bytes()).collect());
            let call = &CALLS[row];
            let request = Request { call: call.number.into(), args, ..Request::default() };
            let mut bad = None;
            let _ = each(call, &request, &memory, &mut |s| {
                let length = if s.string { 1 } else { s.length };
                if !memory.holds(s.address, length, s.used.writes()) {
                    bad = Some(s);
                }
                Ok(())
            });
            prop_assert_eq!(bad, None);
        }
    }
}
