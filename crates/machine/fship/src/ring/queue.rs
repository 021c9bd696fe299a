// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring's code, for the atomics, the slots and the number of slots of the module above.

use core::mem::size_of;

use super::sync::{AtomicU32, Cell, Ordering, fence};
use super::{Message, SLOTS};

/// Bytes of a ring of `T`.
pub const fn bytes<T>() -> u64 {
    (3 * 64 + SLOTS * size_of::<T>()) as u64
}

/// A word with a cache line of its own.
#[repr(C, align(64))]
pub(super) struct Line(pub(super) AtomicU32);

/// A ring as it lies in the window. All zeroes is an empty one.
#[repr(C)]
pub struct Ring<T> {
    /// Messages ever published, modulo 2³².
    pub(super) tail: Line,
    /// Messages ever taken, modulo 2³².
    pub(super) head: Line,
    /// Not zero while the consumer sleeps or is about to.
    pub(super) sleeps: Line,
    slots: [Cell<T>; SLOTS],
}

// SAFETY: the places are atomics. A slot is written by the one producer only, and read by the one consumer only after
// the producer has published it and before the consumer has given it back.
unsafe impl<T: Send> Sync for Ring<T> {}

/// The other side has published a place that no ring can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl core::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the other side of the window has damaged a ring")
    }
}

impl core::error::Error for Corrupt {}

/// The reason why nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The consumer has not taken the last [`SLOTS`] messages yet.
    Full,
    /// See [`Corrupt`].
    Corrupt,
}

/// The doorbell: rung if the consumer must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Bell {
    /// It sleeps: ring.
    Ring,
    /// It is awake and will look.
    Silent,
}

impl<T> Ring<T> {
    /// The ring at `place`.
    ///
    /// # Safety
    /// `place` is aligned to 64 bytes, [`bytes`] of it stay readable and writable for `'a`, and everybody else who
    /// reaches them goes through a `Ring` too, or is on the other side of the window.
    pub unsafe fn at<'a>(place: *mut u8) -> &'a Self {
        // SAFETY: the caller's promise; every field may be shared and may have any bits.
        unsafe { &*place.cast::<Self>() }
    }
}

/// The side that publishes. A ring has one at most.
pub struct Producer<'a, T> {
    ring: &'a Ring<T>,
    tail: u32,
}

impl<'a, T: Message> Producer<'a, T> {
    /// Continues where the last producer of this ring stopped.
    ///
    /// # Safety
    /// As long as the value lives it is the only producer of the ring: no other `Producer` of it exists, neither through
    /// this reference nor through another [`Ring::at`] of the same memory. Two would write one slot at once.
    pub unsafe fn new(ring: &'a Ring<T>) -> Self {
        Self { ring, tail: ring.tail.0.load(Ordering::Relaxed) }
    }

    /// Publishes `message`.
    ///
    /// # Errors
    /// [`Refused`], and then nothing was published.
    pub fn push(&mut self, message: T) -> Result<Bell, Refused> {
        let head = self.ring.head.0.load(Ordering::Acquire);
        match self.tail.wrapping_sub(head) as usize {
            held if held < SLOTS => {}
            SLOTS => return Err(Refused::Full),
            _ => return Err(Refused::Corrupt),
        }
        self.ring.slots[self.tail as usize % SLOTS].write(message);
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.0.store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
        Ok(self.bell())
    }
}

impl<T> Producer<'_, T> {
    /// [`Bell::Ring`] if the consumer sleeps, or is about to. [`Producer::push`] has asked this already. Where a fence of the
    /// processor orders nothing (an emulator of one CPU), ask again after something that does.
    pub fn bell(&self) -> Bell {
        if self.ring.sleeps.0.load(Ordering::Relaxed) != 0 { Bell::Ring } else { Bell::Silent }
    }

    /// Returns `true` if the consumer has taken all that was published.
    pub fn drained(&self) -> bool {
        self.ring.head.0.load(Ordering::Acquire) == self.tail
    }
}

/// The side that takes. A ring has one at most.
pub struct Consumer<'a, T> {
    ring: &'a Ring<T>,
    head: u32,
}

impl<'a, T: Message> Consumer<'a, T> {
    /// Continues where the last consumer of this ring stopped.
    ///
    /// # Safety
    /// As long as the value lives it is the only consumer of the ring: no other `Consumer` of it exists, neither through
    /// this reference nor through another [`Ring::at`] of the same memory. One of two would give a slot back to the
    /// producer, who writes it, while the other reads it.
    pub unsafe fn new(ring: &'a Ring<T>) -> Self {
        Self { ring, head: ring.head.0.load(Ordering::Relaxed) }
    }

    /// The oldest message, if there is one; it stays.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn peek(&self) -> Result<Option<T>, Corrupt> {
        let tail = self.ring.tail.0.load(Ordering::Acquire);
        match tail.wrapping_sub(self.head) as usize {
            0 => Ok(None),
            held if held <= SLOTS => Ok(Some(self.ring.slots[self.head as usize % SLOTS].read())),
            _ => Err(Corrupt),
        }
    }

    /// Takes the oldest message, if there is one.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn pop(&mut self) -> Result<Option<T>, Corrupt> {
        let message = self.peek()?;
        if message.is_some() {
            self.head = self.head.wrapping_add(1);
            self.ring.head.0.store(self.head, Ordering::Release);
        }
        Ok(message)
    }

    /// Returns `true` if there is a message (or damage that [`Consumer::pop`] reports).
    pub fn waiting(&self) -> bool {
        self.ring.tail.0.load(Ordering::Acquire) != self.head
    }

    /// Announces sleep; `true` if there is still nothing to take, so that the bell will be rung for the next message.
    /// With `false` the announcement is taken back. Call [`Consumer::wake`] after sleeping.
    pub fn may_sleep(&self) -> bool {
        self.ring.sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let empty = self.ring.tail.0.load(Ordering::Relaxed) == self.head;
        if !empty {
            self.wake();
        }
        empty
    }

    /// Takes the announcement back.
    pub fn wake(&self) {
        self.ring.sleeps.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl<T: Message + Default> Default for Ring<T> {
    fn default() -> Self {
        let line = || Line(AtomicU32::new(0));
        let slots = core::array::from_fn(|_| Cell::new(T::default()));
        Self { tail: line(), head: line(), sleeps: line(), slots }
    }
}

/// The producer of a ring of the test's own, which makes one at a time.
#[cfg(test)]
pub(super) fn producer<T: Message>(ring: &Ring<T>) -> Producer<'_, T> {
    // SAFETY: see above.
    unsafe { Producer::new(ring) }
}

/// The consumer of a ring of the test's own, which makes one at a time.
#[cfg(test)]
pub(super) fn consumer<T: Message>(ring: &Ring<T>) -> Consumer<'_, T> {
    // SAFETY: see above.
    unsafe { Consumer::new(ring) }
}
