// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sendmsg` and `recvmsg`: the `msghdr` and what comes beside the data.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use colony_fship::Errno;
use colony_fship::spans::{IOVECS, MOVED, Span, Use};

use super::memory::sent;
use super::paths::kind;
use crate::worker::process::{Descriptor, Kind, Process};

/// Bytes of a name at most (`sockaddr_storage`).
pub(super) const NAME: u64 = 128;
/// Bytes beside the data at most.
const CONTROL: u64 = 16 << 10;

/// A `msghdr`, copied once.
pub(super) struct Header {
    pub(super) name: u64,
    pub(super) name_len: u32,
    pub(super) parts: Vec<Span>,
    pub(super) control: u64,
    pub(super) control_len: u64,
}

impl Header {
    pub(super) fn read(process: &Process, at: u64, used: Use) -> Result<Self, Errno> {
        let head: [u64; 7] = process.bank.get(at)?;
        let [name, name_len, parts, count, control, control_len, _] = head;
        if count > IOVECS {
            return Err(Errno::EMSGSIZE);
        }
        let mut left = MOVED;
        let mut spans = Vec::new();
        for n in 0..count {
            let [address, length]: [u64; 2] =
                process.bank.get(parts.checked_add(n * 16).ok_or(Errno::EFAULT)?)?;
            if length > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            let length = length.min(left);
            left -= length;
            if length > 0 {
                spans.push(Span { address, length, used, string: false });
            }
        }
        if name_len as i32 > NAME as i32 && name != 0 && !used.writes() {
            return Err(Errno::EINVAL);
        }
        let control_len = if control == 0 { 0 } else { control_len.min(CONTROL) };
        Ok(Self { name, name_len: name_len as u32, parts: spans, control, control_len })
    }
}

/// Level, type and place of the data of each part beside the data.
fn parts(control: &[u8]) -> Vec<(i32, i32, std::ops::Range<usize>)> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(head) = control.get(at..at + 16) {
        let length = usize::from_le_bytes(std::array::from_fn(|i| head[i]));
        let word = |n: usize| i32::from_le_bytes(std::array::from_fn(|i| head[n + i]));
        let Some(end) = at.checked_add(length).filter(|&end| length >= 16 && end <= control.len()) else {
            break;
        };
        all.push((word(8), word(12), at + 16..end));
        at = end.next_multiple_of(8);
    }
    all
}

/// Copies what a program sends beside the data; its descriptors become the worker's.
pub(super) fn outgoing(process: &Process, header: &Header) -> Result<Vec<u8>, Errno> {
    let mut control = process.bank.bytes_or_none(header.control, header.control_len)?;
    for (level, kind, place) in parts(&control) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for fd in control[place].chunks_exact_mut(4) {
                    let number = i32::from_le_bytes([fd[0], fd[1], fd[2], fd[3]]);
                    let file = process.files.get(number as u32 as u64)?;
                    sent(file)?;
                    let host = file.fd.as_raw_fd();
                    fd.copy_from_slice(&host.to_le_bytes());
                }
            }
            // who it says it is would be who the worker is
            (libc::SOL_SOCKET, _) => return Err(Errno::EINVAL),
            _ => {}
        }
    }
    Ok(control)
}

/// Gives a program what came beside the data: descriptors become its own.
pub(super) fn incoming(process: &mut Process, control: &mut [u8], close_on_exec: bool) -> Result<(), Errno> {
    let mut failed = None;
    for (level, kind_of, place) in parts(control) {
        if (level, kind_of) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            continue;
        }
        for fd in control[place].chunks_exact_mut(4) {
            let number = i32::from_le_bytes([fd[0], fd[1], fd[2], fd[3]]);
            // SAFETY: the system made it for this message just now; all are taken, whatever becomes of them
            let host = unsafe { OwnedFd::from_raw_fd(number) };
            let kind = kind(&host).unwrap_or(Kind::Stream);
            let mut descriptor = Descriptor::new(host, kind, false, close_on_exec);
            if let Some(about) = std::rc::Rc::get_mut(&mut descriptor.about) {
                // who sent it has it too
                about.shared = kind != Kind::File;
            }
            match process.files.insert(0, descriptor) {
                Ok(number) => fd.copy_from_slice(&(number as u32).to_le_bytes()),
                Err(e) => failed = Some(e),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}
