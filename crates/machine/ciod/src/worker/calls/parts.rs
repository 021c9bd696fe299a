// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a call where it lies in the process's memory, as the host's calls take it.

use colony_fship::Errno;
use colony_fship::spans::Span;

use crate::worker::process::Process;

/// The memory of a call's data, in parts.
pub(super) struct Parts(Vec<libc::iovec>);

impl Parts {
    /// Of spans that were checked.
    pub(super) fn new(process: &Process, spans: &[Span]) -> Result<Self, Errno> {
        let part = |s: &Span| {
            let place = process.bank.pointer(s.address, s.length)?;
            Ok(libc::iovec { iov_base: place.cast(), iov_len: s.length as usize })
        };
        spans.iter().map(part).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn len(&self) -> u64 {
        self.0.iter().map(|p| p.iov_len as u64).sum()
    }

    /// Without the first bytes, and no more than so many.
    pub(super) fn cut(&mut self, mut skip: u64, most: u64) {
        let mut left = most;
        self.0.retain_mut(|part| {
            let first = skip.min(part.iov_len as u64);
            skip -= first;
            part.iov_base = part.iov_base.wrapping_byte_add(first as usize);
            part.iov_len = (part.iov_len - first as usize).min(usize::try_from(left).unwrap_or(usize::MAX));
            left -= part.iov_len as u64;
            part.iov_len > 0
        });
    }

    pub(super) fn args(&self) -> (u64, u64) {
        (self.0.as_ptr() as u64, self.0.len() as u64)
    }

    /// A copy of the bytes.
    pub(super) fn copy(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for part in &self.0 {
            let at = all.len();
            all.resize(at + part.iov_len, 0);
            // SAFETY: checked when the parts were made; the window is no Rust object; so much room was made just now
            unsafe {
                part.iov_base.cast::<u8>().copy_to_nonoverlapping(all[at..].as_mut_ptr(), part.iov_len)
            };
        }
        all
    }
    /// A `msghdr` of the worker with this data, a name and control data. The caller keeps all three until the call.
    pub(super) fn message(&self, name: &[u8], control: &[u8]) -> libc::msghdr {
        let (place, count) = self.args();
        let or_null = |bytes: &[u8]| {
            if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_ptr().cast_mut().cast() }
        };
        // SAFETY: plain numbers and null pointers
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_name, message.msg_namelen) = (or_null(name), name.len() as u32);
        (message.msg_iov, message.msg_iovlen) = (place as *mut libc::iovec, count as usize);
        (message.msg_control, message.msg_controllen) = (or_null(control), control.len());
        message
    }
}
