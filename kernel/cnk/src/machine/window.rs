// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window: what the kernel shares with the daemon, and the memory of the user processes.
//!
//! The kernel reaches a user's memory here, never through the user's addresses. What may be reached is checked before
//! (`process/memory.rs`); here only that it is in the bank.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst, compiler_fence};

use cnk_logic::ensure;
use colony_fship::layout::{self, Header, JobBlock};
use colony_fship::ring::{Consumer, Producer, Ring};
use colony_fship::{Errno, Reply, Request};
use zerocopy::FromBytes;

use super::CPUS;
use super::fpu::{self, Xmm};
use spin::Mutex;

/// The kernel's address of the window.
pub(super) const WINDOW_VA: u64 = 0xffff_9000_0000_0000;

/// Memory that may be a window, since the kernel uses it for nothing else: only this module's neighbors make one.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub(super) physical: u64,
    pub(super) size: u64,
    /// Others see it, too.
    pub(super) shared: bool,
}

impl Memory {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// The window that is mapped: `paging::map_windows` makes it.
#[derive(Clone, Copy, Debug)]
pub struct Window(pub(super) Memory);

/// The node's ends of a channel's rings.
pub struct Channel {
    /// Requests to the daemon.
    pub requests: Mutex<Producer<'static, Request>>,
    /// The daemon's replies.
    pub replies: Mutex<Consumer<'static, Reply>>,
}

/// The address of an offset in the window.
pub(super) fn place<T>(offset: u64) -> *mut T {
    (WINDOW_VA + offset) as *mut T
}

/// A copy of what the daemon has written.
fn copy<T: FromBytes>(offset: u64) -> T {
    let mut value = T::new_zeroed();
    // SAFETY: the offsets of `layout` are in the control area and any bits are a `T`. The daemon does not write while
    // it waits for the kernel; if it did all the same, the copy would be bad, and it is checked.
    unsafe { core::ptr::copy_nonoverlapping(place::<T>(offset), &raw mut value, 1) };
    // nothing of it is read again instead
    compiler_fence(SeqCst);
    value
}

impl Window {
    pub(super) fn mapped(memory: Memory) -> Self {
        assert!(memory.size >= layout::LARGE_PAGE);
        Self(memory)
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Writes to a place that has no references: all but the rings and the words of signals.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let to = self.inside(at, bytes.len() as u64);
        // SAFETY: in the window; the kernel copies what is there and refers to nothing.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Fills such a place with zeroes.
    pub fn clear(&self, at: u64, length: u64) {
        let from = self.inside(at, length);
        // SAFETY: as of `put`.
        unsafe { core::ptr::write_bytes(from, 0, length as usize) };
    }

    fn inside(&self, at: u64, length: u64) -> *mut u8 {
        assert!(at.checked_add(length).is_some_and(|end| end <= self.size()), "beyond the window");
        place(at)
    }

    /// Copies crash records or words of the log.
    pub fn read_control(&self, at: u64, into: &mut [u8]) {
        assert!(at + into.len() as u64 <= layout::LARGE_PAGE);
        // SAFETY: in the control area.
        unsafe { core::ptr::copy_nonoverlapping(place(at), into.as_mut_ptr(), into.len()) };
    }

    /// See [`Header`].
    pub fn header(&self) -> Header {
        copy(layout::HEADER_AT)
    }

    /// See [`JobBlock`].
    pub fn job(&self) -> JobBlock {
        copy(layout::JOB_AT)
    }

    /// Process `n` of that block.
    pub fn process(&self, n: usize) -> layout::Process {
        assert!(n < layout::PROCESSES);
        let first = core::mem::offset_of!(JobBlock, processes);
        copy(layout::JOB_AT + (first + n * size_of::<layout::Process>()) as u64)
    }

    /// The name of the node in that block; ends with a zero.
    pub fn host(&self) -> [u8; 32] {
        copy(layout::JOB_AT + core::mem::offset_of!(JobBlock, personality.host) as u64)
    }

    /// The channels, one a CPU. There is one of each, so the second call panics.
    pub fn channels(&self) -> [Channel; CPUS] {
        static MADE: AtomicBool = AtomicBool::new(false);
        assert!(!MADE.swap(true, SeqCst), "the channels are there already");
        core::array::from_fn(|n| {
            let (requests, replies) = self.rings(n);
            // SAFETY: the kernel has one window and makes these once; the daemon has the other ends.
            let (requests, replies) = unsafe { (Producer::new(requests), Consumer::new(replies)) };
            Channel { requests: Mutex::new(requests), replies: Mutex::new(replies) }
        })
    }

    /// The daemon's ends of the rings of replies, in a window that no daemon sees: the kernel puts there what has come by
    /// frames. There is one of each, so the second call panics.
    pub fn reply_producers(&self) -> [Producer<'static, Reply>; CPUS] {
        static MADE: AtomicBool = AtomicBool::new(false);
        assert!(!self.0.shared, "the daemon puts its replies into a shared window itself");
        assert!(!MADE.swap(true, SeqCst), "the producers are there already");
        // SAFETY: the kernel has one window, nobody else sees it, and these are made once.
        core::array::from_fn(|n| unsafe { Producer::new(self.rings(n).1) })
    }

    fn rings(&self, channel: usize) -> (&'static Ring<Request>, &'static Ring<Reply>) {
        let at = layout::channel_at(channel);
        let (requests, replies) = (at + layout::REQUESTS_IN_CHANNEL, at + layout::REPLIES_IN_CHANNEL);
        // SAFETY: the channels are in the control area, aligned, and mapped for good.
        unsafe { (Ring::at(place(requests)), Ring::at(place(replies))) }
    }

    /// Signals for the process of a channel.
    pub fn signals(&self, channel: usize) -> &'static AtomicU64 {
        // SAFETY: as above.
        unsafe { &*place(layout::channel_at(channel) + layout::SIGNALS_IN_CHANNEL) }
    }

    /// The memory of process `n` of `count`.
    pub fn bank(&self, n: usize, count: usize) -> Bank {
        assert!(n < count);
        let size = self.size() / count as u64;
        Bank { first: n as u64 * size, size, physical: self.0.physical + n as u64 * size }
    }
}

/// The memory of a process, by the process's own addresses.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    first: u64,
    size: u64,
    physical: u64,
}

impl Bank {
    /// Of no process.
    pub const NONE: Self = Self { first: 0, size: 0, physical: 0 };

    /// Its first offset in the window.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Physical address of the process's address 0.
    pub(super) fn physical(&self) -> u64 {
        self.physical
    }

    fn at(&self, address: u64, length: u64) -> Result<*mut u8, Errno> {
        // the control area is nobody's
        let end = address.checked_add(length).ok_or(Errno::EFAULT)?;
        ensure(address >= layout::LARGE_PAGE && end <= self.size, Errno::EFAULT)?;
        Ok(place(self.first + address))
    }

    /// Copies from the process.
    ///
    /// # Errors
    /// `EFAULT` outside the bank.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let from = self.at(address, into.len() as u64)?;
        // SAFETY: in the bank, which is mapped and none of Rust's; a race with the user gives it what it deserves.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies to the process.
    ///
    /// # Errors
    /// `EFAULT` outside the bank.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        let to = self.at(address, from.len() as u64)?;
        // SAFETY: as of `read`.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    /// Fills with zeroes.
    ///
    /// # Errors
    /// `EFAULT` outside the bank.
    pub fn clear(&self, address: u64, length: u64) -> Result<(), Errno> {
        let to = self.at(address, length)?;
        // SAFETY: as of `read`.
        unsafe { core::ptr::write_bytes(to, 0, length as usize) };
        Ok(())
    }

    /// Copies within the process.
    ///
    /// # Errors
    /// `EFAULT` outside the bank.
    pub fn copy(&self, from: u64, length: u64, to: u64) -> Result<(), Errno> {
        let (from, to) = (self.at(from, length)?, self.at(to, length)?);
        // SAFETY: as of `read`.
        unsafe { core::ptr::copy(from, to, length as usize) };
        Ok(())
    }

    /// Writes to code what is there already.
    ///
    /// The daemon has put new code where another program's was. A processor sees that by itself; an emulator that
    /// translates code (QEMU's TCG) does not see what another process of its host writes, and would go on with what it
    /// has translated. It does see what its own processor writes.
    ///
    /// # Errors
    /// `EFAULT` outside the bank.
    pub fn renew_code(&self, address: u64, length: u64) -> Result<(), Errno> {
        let first = address & !7;
        let words = (address + length - first).div_ceil(8);
        let at = self.at(first, words * 8)?.cast::<u64>();
        for n in 0..words as usize {
            // SAFETY: in the bank, aligned; as of `read`.
            unsafe { at.add(n).write_volatile(at.add(n).read_volatile()) };
        }
        Ok(())
    }

    /// A word that the process's threads agree by.
    ///
    /// # Errors
    /// `EINVAL` for an address that is no word's, `EFAULT` outside the bank.
    pub fn word(&self, address: u64) -> Result<&'static AtomicU32, Errno> {
        ensure(address.is_multiple_of(4), Errno::EINVAL)?;
        // SAFETY: in the bank, aligned, mapped for good, and any bits are a word.
        Ok(unsafe { &*self.at(address, 4)?.cast::<AtomicU32>() })
    }

    /// Saves this CPU's extended state (see `fpu.rs`), whose header is empty.
    ///
    /// # Errors
    /// `EFAULT` outside the bank.
    pub fn save_state(&self, address: u64, xmm: &Xmm) -> Result<(), Errno> {
        let to = self.state(address)?;
        // SAFETY: aligned, and as of `read`.
        unsafe { fpu::save(to, xmm) };
        Ok(())
    }

    /// Restores a state that the process may have changed.
    ///
    /// # Errors
    /// `EFAULT` outside the bank, `EINVAL` for what the processor does not take.
    pub fn restore_state(&self, address: u64, xmm: &mut Xmm) -> Result<(), Errno> {
        let from = self.state(address)?;
        // SAFETY: aligned, and as of `read`.
        ensure(unsafe { fpu::restore(from, xmm) }, Errno::EINVAL)
    }

    fn state(&self, address: u64) -> Result<*mut u8, Errno> {
        ensure(address.is_multiple_of(64), Errno::EFAULT)?;
        self.at(address, fpu::size())
    }
}
