// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a node as the worker sees it: mapped, shared with a machine that may write it at any time.
//!
//! Nothing here makes a reference to the shared memory, but for the rings, whose fields are made for it: bytes are
//! copied, or their place is handed to the operating system, which copies them itself.

use std::ffi::CString;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use colony_fship::layout::{self, LARGE_PAGE, PROCESSES};
use colony_fship::ring::Ring;
use colony_fship::spans::{self, Memory};
use colony_fship::{Errno, Reply, Request};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A window; it stays mapped as long as the worker lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    base: NonNull<u8>,
    length: u64,
    /// Bytes of it that are the memory of processes; what is beyond they can reserve.
    memory: u64,
}

impl Window {
    /// Maps all of a window's file.
    pub(crate) fn map(file: impl AsFd, length: u64) -> io::Result<Self> {
        let bytes = Self::size(length)?;
        let (rights, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE);
        // SAFETY: a new mapping, at a place that the system chooses; the file cannot shrink (sealed).
        let base = unsafe { mmap(None, bytes, rights, flags, file, 0) }?;
        Ok(Self { base: base.cast(), length, memory: length })
    }

    /// Memory that no file has, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn anonymous(length: u64) -> io::Result<Self> {
        let bytes = Self::size(length)?;
        let (rights, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE);
        // SAFETY: a new mapping, at a place that the system chooses.
        let base = unsafe { nix::sys::mman::mmap_anonymous(None, bytes, rights, flags) }?;
        Ok(Self { base: base.cast(), length, memory: length })
    }

    fn size(length: u64) -> io::Result<NonZeroUsize> {
        if !layout::WINDOW_SIZES.contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no size of a window"));
        }
        usize::try_from(length)
            .ok()
            .and_then(NonZeroUsize::new)
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// The same with so much memory of processes, at most all of it.
    pub(crate) fn with_memory(self, memory: u64) -> Self {
        Self { memory: memory.min(self.length), ..self }
    }

    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The memory of process `n` of as many as `banks`.
    pub(crate) fn bank(&self, n: usize, banks: usize) -> Bank {
        debug_assert!(n < banks && banks <= PROCESSES);
        let length = self.length / banks as u64;
        // SAFETY: within the mapping, since n < banks
        let base = unsafe { self.base.add(n * length as usize) };
        Bank { base, length, memory: self.memory / banks as u64 }
    }

    /// A part of the control area; `at` is one of `layout`'s places, which all lie in it.
    fn control(&self, at: u64, bytes: usize) -> *mut u8 {
        debug_assert!(at + bytes as u64 <= LARGE_PAGE);
        // SAFETY: within the mapping, which is larger than the control area
        unsafe { self.base.as_ptr().add(at as usize) }
    }

    /// Copies a value out of the control area.
    pub(crate) fn get<T: FromBytes + IntoBytes>(&self, at: u64) -> T {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        // SAFETY: both are as long, and `value` is no part of the window; any bytes are a value
        unsafe { self.control(at, bytes.len()).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        value
    }

    /// Copies a value into the control area.
    pub(crate) fn put<T: IntoBytes + Immutable>(&self, at: u64, value: &T) {
        let bytes = value.as_bytes();
        // SAFETY: both are as long, and `value` is no part of the window
        unsafe { self.control(at, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The requests of channel `n`.
    pub(crate) fn requests(&self, n: usize) -> &'static Ring<Request> {
        let at = layout::channel_at(n) + layout::REQUESTS_IN_CHANNEL;
        // SAFETY: aligned by the layout; the mapping stays; the other side of the window is a node
        unsafe { Ring::at(self.control(at, 0)) }
    }

    /// The replies of channel `n`.
    pub(crate) fn replies(&self, n: usize) -> &'static Ring<Reply> {
        let at = layout::channel_at(n) + layout::REPLIES_IN_CHANNEL;
        // SAFETY: as above
        unsafe { Ring::at(self.control(at, 0)) }
    }

    /// The word of signals of channel `n`.
    pub(crate) fn signals(&self, n: usize) -> &'static AtomicU64 {
        let at = layout::channel_at(n) + layout::SIGNALS_IN_CHANNEL;
        // SAFETY: aligned by the layout; the mapping stays; both sides use it as an atomic
        unsafe { AtomicU64::from_ptr(self.control(at, 8).cast()) }
    }
}

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bank {
    base: NonNull<u8>,
    length: u64,
    memory: u64,
}

impl Bank {
    /// Bytes of the process's addresses, with the first 2 MiB, which are not the process's.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of memory of the process, with the first 2 MiB. It can reserve the addresses behind.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Pointer to `length` bytes at `address`, for the operating system.
    pub(crate) fn pointer(&self, address: u64, length: u64) -> Result<*mut u8, Errno> {
        if !self.holds(address, length, false) {
            return Err(Errno::EFAULT);
        }
        // SAFETY: within the mapping: checked just now
        Ok(unsafe { self.base.as_ptr().add(address as usize) })
    }

    /// Copies to `address`.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let place = self.pointer(address, bytes.len() as u64)?;
        // SAFETY: so many bytes are the process's, and `bytes` is no part of the window
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies a value from `address`.
    pub(crate) fn get<T: FromBytes + IntoBytes>(&self, address: u64) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.read(address, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Copies so many bytes from `address`.
    pub(crate) fn bytes(&self, address: u64, length: u64) -> Result<Vec<u8>, Errno> {
        self.pointer(address, length)?;
        let mut bytes = vec![0; length as usize];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The same; none at all need no place.
    pub(crate) fn bytes_or_none(&self, address: u64, length: u64) -> Result<Vec<u8>, Errno> {
        if length == 0 { Ok(Vec::new()) } else { self.bytes(address, length) }
    }

    /// Copies a string that ends with a zero and has at most `most` bytes with it.
    pub(crate) fn string(&self, address: u64, most: u64, too_long: Errno) -> Result<CString, Errno> {
        const STEP: u64 = 256;
        let mut string = Vec::new();
        let mut at = address;
        while (string.len() as u64) < most {
            // not beyond the memory, and never more than needed
            let left = self.length.saturating_sub(at).min(most - string.len() as u64);
            let piece = self.bytes(at, left.clamp(1, STEP))?;
            if let Some(end) = piece.iter().position(|&b| b == 0) {
                string.extend_from_slice(&piece[..end]);
                return CString::new(string).map_err(|_| Errno::EFAULT);
            }
            at += piece.len() as u64;
            string.extend(piece);
        }
        Err(too_long)
    }

    /// Copies a path.
    pub(crate) fn path(&self, address: u64) -> Result<CString, Errno> {
        self.string(address, spans::PATH, Errno::ENAMETOOLONG)
    }

    /// Makes all of it zero and gives it back to the system.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let length = (self.length - LARGE_PAGE) as usize;
        // SAFETY: within the mapping; nothing there is referred to
        unsafe {
            let place = self.base.add(LARGE_PAGE as usize).cast();
            Ok(madvise(place, length, MmapAdvise::MADV_REMOVE)?)
        }
    }
}

impl Memory for Bank {
    fn holds(&self, address: u64, length: u64, _write: bool) -> bool {
        // what is read-only is so for the program's own good: its kernel sees to it
        address >= LARGE_PAGE && address.checked_add(length).is_some_and(|end| end <= self.length)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let place = self.pointer(address, into.len() as u64)?;
        // SAFETY: so many bytes are the process's, and `into` is no part of the window
        unsafe { place.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_bank_and_nothing_else() {
        let window = Window::anonymous(16 << 20).expect("memory");
        let bank = window.bank(1, 2);
        assert_eq!(bank.length(), 8 << 20);
        bank.write(LARGE_PAGE, b"mine").expect("its own");
        assert_eq!(bank.bytes(LARGE_PAGE, 4).expect("its own"), b"mine");
        assert_eq!(window.bank(0, 1).bytes((8 << 20) + LARGE_PAGE, 4).expect("all"), b"mine");
        for (address, length) in
            [(0, 1), (LARGE_PAGE - 1, 1), ((8 << 20) - 3, 4), (u64::MAX, 2), (8 << 20, 1)]
        {
            assert_eq!(bank.pointer(address, length), Err(Errno::EFAULT), "{address:#x}");
        }
    }

    #[test]
    fn strings_end_with_a_zero_or_not_at_all() {
        let bank = Window::anonymous(16 << 20).expect("memory").bank(0, 1);
        bank.write(LARGE_PAGE, b"path\0more").expect("write");
        assert_eq!(bank.path(LARGE_PAGE).as_deref(), Ok(c"path"));
        let last = bank.length() - 3;
        bank.write(last, b"end").expect("write");
        assert_eq!(bank.path(last), Err(Errno::EFAULT), "the memory ends before it does");
        bank.write(LARGE_PAGE, &[b'a'; 5000]).expect("write");
        assert_eq!(bank.path(LARGE_PAGE), Err(Errno::ENAMETOOLONG));
        bank.clear().expect("cleared");
        assert_eq!(bank.path(last).as_deref(), Ok(c""));
    }
}
