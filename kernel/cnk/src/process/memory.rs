// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a process, checked: what system calls name is looked at here.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cnk_logic::access::Access;
use cnk_logic::ensure;
use cnk_logic::space::{Content, Piece};
use colony_fship::Errno;
use colony_fship::spans::Memory;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::machine::{area::area, window::Bank};

/// The memory of a process, and its rights to it.
#[derive(Clone)]
pub struct User {
    /// The memory.
    pub bank: Bank,
    /// The rights to it.
    pub access: Access,
}

impl User {
    /// Nobody's.
    pub const NONE: Self = Self { bank: Bank::NONE, access: Access::NONE };

    /// Copies a value from the process.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn get<T: FromBytes + IntoBytes>(&self, address: u64) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.read(address, value.as_mut_bytes())?;
        Ok(value)
    }

    /// As [`User::get`]; nothing is at the null address.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn get_unless_null<T: FromBytes + IntoBytes>(&self, address: u64) -> Result<Option<T>, Errno> {
        if address == 0 { Ok(None) } else { self.get(address).map(Some) }
    }

    /// Copies a value to the process.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn put<T: IntoBytes + Immutable>(&self, address: u64, value: &T) -> Result<(), Errno> {
        self.write(address, value.as_bytes())
    }

    /// As [`User::put`]; the null address is for callers that do not want the value.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn put_unless_null<T: IntoBytes + Immutable>(&self, address: u64, value: &T) -> Result<(), Errno> {
        if address == 0 { Ok(()) } else { self.put(address, value) }
    }

    /// A word that the process's threads agree by.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` for an address that is no word's.
    pub fn word(&self, address: u64, write: bool) -> Result<&'static AtomicU32, Errno> {
        ensure(self.holds(address, 4, write), Errno::EFAULT)?;
        self.bank.word(address)
    }

    /// Copies bytes to the process.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        ensure(self.holds(address, bytes.len() as u64, true), Errno::EFAULT)?;
        self.bank.write(address, bytes)
    }
}

impl Memory for User {
    fn holds(&self, address: u64, length: u64, write: bool) -> bool {
        self.access.holds(address, length, write)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        ensure(self.holds(address, into.len() as u64, false), Errno::EFAULT)?;
        self.bank.read(address, into)
    }
}

/// Clears and copies for the heap and mappings, all of which may be written.
impl Content for &Bank {
    fn clear(&mut self, piece: Piece) {
        for part in parts(piece) {
            let done = Bank::clear(self, part.first, part.length());
            debug_assert!(done.is_ok());
        }
    }

    fn copy(&mut self, from: Piece, to: u64) {
        for part in parts(from) {
            let done = Bank::copy(self, part.first, part.length(), to + (part.first - from.first));
            debug_assert!(done.is_ok());
        }
    }
}

/// The parts of a piece, between which the node shows that it does not hang.
fn parts(piece: Piece) -> impl Iterator<Item = Piece> {
    const PART: u64 = 16 << 20;
    (piece.first..piece.end).step_by(PART as usize).map(move |first| {
        area(0).pulses.fetch_add(1, Relaxed);
        Piece { first, end: piece.end.min(first + PART) }
    })
}
