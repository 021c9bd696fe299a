// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error numbers, as Linux has them on x86-64: the kernel has no libc to take them from.

use core::fmt;

/// A Linux error number, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($value);)*

            /// Its name, such as `EFAULT`; `None` for one that this crate does not use.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input or output error";
    E2BIG = 7, "Argument list too long";
    ENOEXEC = 8, "Not an executable of this kind";
    EBADF = 9, "Bad file descriptor";
    ECHILD = 10, "No child processes";
    EAGAIN = 11, "Try again";
    ENOMEM = 12, "Out of memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Not a terminal";
    ESPIPE = 29, "Illegal seek";
    EPIPE = 32, "Broken pipe";
    ERANGE = 34, "Result not representable";
    ENAMETOOLONG = 36, "Name too long";
    ENOSYS = 38, "No such system call";
    ENOTSOCK = 88, "Not a socket";
    EMSGSIZE = 90, "Message too long";
    EOPNOTSUPP = 95, "Operation not supported";
    EAFNOSUPPORT = 97, "Address family not supported";
    ETIMEDOUT = 110, "Timed out";
}

impl Errno {
    /// The result of a system call that fails with it.
    pub const fn result(self) -> i64 {
        -(self.0 as i64)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
