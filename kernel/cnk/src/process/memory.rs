//! The memory of a process, checked: what system calls name is looked at here.

use cnk_logic::access::Access;
use cnk_logic::space::{Content, Piece};
use colony_fship::spans::{self, Memory, Span};
use colony_fship::{Call, Errno, Request};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::machine::window::Bank;

/// What a process has, and what it may do with it.
#[derive(Clone, Copy)]
pub struct User {
    /// The memory.
    pub bank: Bank,
    /// What may be done with it.
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

    /// Copies a value to the process.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn put<T: IntoBytes + Immutable>(&self, address: u64, value: &T) -> Result<(), Errno> {
        self.write(address, value.as_bytes())
    }

    /// As [`spans::each`]; the code of it is here once.
    ///
    /// # Errors
    /// Those of [`spans::each`].
    pub fn each_span(
        &self,
        call: &Call,
        request: &Request,
        see: &mut dyn FnMut(Span) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        spans::each(call, request, self, &mut |span| see(span))
    }

    /// Copies bytes to the process.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.access.holds(address, bytes.len() as u64, true) {
            return Err(Errno::EFAULT);
        }
        self.bank.write(address, bytes)
    }
}

impl Memory for User {
    fn holds(&self, address: u64, length: u64, write: bool) -> bool {
        self.access.holds(address, length, write)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        if !self.access.holds(address, into.len() as u64, false) {
            return Err(Errno::EFAULT);
        }
        self.bank.read(address, into)
    }
}

/// Clears and copies for the heap and mappings, all of which may be written.
impl Content for &Bank {
    fn clear(&mut self, piece: Piece) {
        let done = Bank::clear(self, piece.first, piece.length());
        debug_assert!(done.is_ok());
    }

    fn copy(&mut self, from: Piece, to: u64) {
        let done = Bank::copy(self, from.first, from.length(), to);
        debug_assert!(done.is_ok());
    }
}
