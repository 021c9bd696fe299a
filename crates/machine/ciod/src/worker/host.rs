// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of the worker: the one place where arguments of a program meet the operating system.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use colony_fship::Errno;

/// Does calls, or pretends to.
pub(crate) enum Host {
    /// The operating system.
    Real,
    #[cfg(feature = "testing")]
    /// Looks at each call and its arguments, and answers in the system's place unless it says none: for fuzzing.
    Sandbox(Sandbox),
}

/// See [`Host::Sandbox`].
#[cfg(feature = "testing")]
pub(crate) type Sandbox = Box<dyn FnMut(i64, &[u64; 6]) -> Option<i64>>;

impl Host {
    /// Does call `number`: the result, or the error's number.
    ///
    /// Every pointer among `args` leads to memory of the worker, or of the process, for as many bytes as the call
    /// uses there; what the system writes is not referred to by Rust meanwhile.
    pub(crate) fn call(&mut self, number: i64, args: [u64; 6]) -> Result<u64, Errno> {
        #[cfg(feature = "testing")]
        if let Self::Sandbox(see) = self
            && let Some(answer) = see(number, &args)
        {
            return u64::try_from(answer).map_err(|_| Errno(answer.unsigned_abs() as u16));
        }
        let [a, b, c, d, e, f] = args;
        // SAFETY: the caller's promise above
        let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
        match u64::try_from(result) {
            Ok(result) => Ok(result),
            Err(_) => Err(last()),
        }
    }

    /// The same, for a call that makes a descriptor.
    pub(crate) fn open(&mut self, number: i64, args: [u64; 6]) -> Result<OwnedFd, Errno> {
        let fd = self.call(number, args)? as RawFd;
        // SAFETY: made just now, and nobody else has it
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn last() -> Errno {
    super::process::errno(&std::io::Error::last_os_error())
}
