// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that are made as the program asks for them.

use std::ffi::CString;

use colony_fship::Errno;
use colony_fship::calls::Arg;

use super::context::CallContext;
use super::{Made, World, done};
use crate::worker::process::Process;

/// The arguments of a call for the operating system, and the copies that they point to.
pub(super) struct Host {
    pub(super) args: [u64; 6],
    /// Copies of the paths, by argument.
    pub(super) paths: [Option<CString>; 6],
}

/// Translates the arguments of a call. What is an address leads to as many bytes of the process's as the call uses.
pub(super) fn translate(cx: &CallContext<'_>) -> Result<Host, Errno> {
    cx.check_memory()?;
    let process = &*cx.process;
    let mut host = Host { args: [0; 6], paths: Default::default() };
    for (n, (&arg, &value)) in cx.call.args.iter().zip(cx.args()).enumerate() {
        host.args[n] = match arg {
            Arg::Val => value,
            Arg::Fd => process.files.host(value)? as u64,
            Arg::DirFd if value as i32 == libc::AT_FDCWD => value,
            // an absolute path needs no directory: the system says EBADF where it does
            Arg::DirFd => process.files.host(value).map_or(u64::MAX, |fd| fd as u64),
            Arg::PathOrNull if value == 0 => 0,
            Arg::Path | Arg::PathOrNull => {
                let path = process.bank.path(value)?;
                // the bytes of a `CString` stay where they are when it is moved
                let place = path.as_ptr() as u64;
                host.paths[n] = Some(path);
                place
            }
            Arg::In(_) | Arg::Out(_) | Arg::InOut(_) => place(process, value),
            Arg::InOrNull(_) | Arg::OutOrNull(_) | Arg::InOutOrNull(_) if value == 0 => 0,
            Arg::InOrNull(_) | Arg::OutOrNull(_) | Arg::InOutOrNull(_) => place(process, value),
            // these lead to lengths or addresses that the program could change meanwhile: own code
            Arg::OutSized(_)
            | Arg::IovIn(_)
            | Arg::IovOut(_)
            | Arg::MsgIn
            | Arg::MsgOut
            | Arg::Strings
            | Arg::Ioctl
            | Arg::Fcntl => return Err(Errno::ENOSYS),
        };
    }
    Ok(host)
}

/// An address that was checked; where nothing is moved, it may lead nowhere.
fn place(process: &Process, address: u64) -> u64 {
    process.bank.pointer(address, 0).map_or(0, |p| p as u64)
}

impl World {
    /// Makes a call as it is.
    pub(super) fn replay(&mut self, cx: &CallContext<'_>) -> Made {
        let mut host = translate(cx)?;
        let _kept = self.lead(cx, &mut host)?;
        done(self.host.call(i64::from(cx.call.number), host.args)?)
    }
}
