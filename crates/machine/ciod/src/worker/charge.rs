// SPDX-License-Identifier: MIT OR Apache-2.0
//! Account of the bytes that files in memory hold, which no limit of the operating system counts.

use std::cell::Cell;
use std::rc::Rc;

use colony_fship::Errno;

/// Bytes that an empty file is charged with.
const LEAST: u64 = 4096;

/// Bytes that the files of a job may still take. Clones are the same account.
#[derive(Clone, Debug)]
pub(crate) struct Account(Rc<Cell<u64>>);

impl Account {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }
}

/// Bytes that a file in memory is charged to its job's account. The last descriptor of the file gives them back.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Account,
    taken: Cell<u64>,
    sealable: bool,
    sent: Cell<bool>,
}

impl Charge {
    pub(crate) fn new(account: &Account, sealable: bool) -> Result<Self, Errno> {
        let left = account.0.get().checked_sub(LEAST).ok_or(Errno(libc::ENOMEM as u16))?;
        account.0.set(left);
        Ok(Self { account: account.clone(), taken: Cell::new(LEAST), sealable, sent: Cell::new(false) })
    }

    /// The file takes so many bytes now.
    pub(crate) fn set(&self, bytes: u64) {
        let bytes = bytes.max(LEAST);
        let left = &self.account.0;
        left.set((left.get() + self.taken.get()).saturating_sub(bytes));
        self.taken.set(bytes);
    }

    /// Bytes that the file takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.taken.get()
    }

    /// Bytes that the file may take at most.
    pub(crate) fn most(&self) -> u64 {
        self.taken.get().saturating_add(self.account.0.get())
    }

    /// Returns `true` if the program may add seals.
    pub(crate) fn is_sealable(&self) -> bool {
        self.sealable
    }

    /// The file was sent over a socket: it may outlive all descriptors of the job, and its bytes are never given back.
    pub(crate) fn set_sent(&self) {
        self.sent.set(true);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.sent.get() {
            let left = &self.account.0;
            left.set(left.get() + self.taken.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_gets_back_the_bytes_of_files_unless_they_were_sent() {
        let account = Account::new(10 * LEAST);
        let left = || account.0.get() / LEAST;
        let first = Charge::new(&account, false).expect("room");
        first.set(9 * LEAST);
        let second = Charge::new(&account, true).expect("room");
        assert_eq!(left(), 0);
        assert!(Charge::new(&account, false).is_err());
        first.set(2 * LEAST);
        assert_eq!(left(), 7);
        drop(first);
        assert_eq!(left(), 9);
        second.set(3 * LEAST);
        second.sent.set(true);
        drop(second);
        assert_eq!(left(), 7);
    }
}
