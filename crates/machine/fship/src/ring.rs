// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring between one producer and one consumer who share memory and nothing else.
//!
//! Each side keeps its own place to itself and only publishes it: what the other side writes over it cannot lead it
//! astray. A consumer who is about to sleep says so first and looks again; a producer who has published looks whether
//! the consumer sleeps, and rings the bell if so. The two fences make sure that one of them sees the other
//! (store, fence, load on both sides), so no wake-up is lost and no bell is rung for a consumer who is awake.
//!
//! The tests run every interleaving of small cases (`RUSTFLAGS='--cfg loom' cargo test -p colony-fship --lib ring`).

use core::mem::size_of;

use zerocopy::{FromBytes, IntoBytes};

use self::sync::{AtomicU32, Cell, Ordering, fence};

#[cfg(not(loom))]
mod sync {
    pub(super) use core::sync::atomic::{AtomicU32, Ordering, fence};

    use super::Message;

    /// A value that the other side of the window may write at any time.
    #[repr(transparent)]
    pub(super) struct Cell<T>(core::cell::UnsafeCell<T>);

    impl<T: Message> Cell<T> {
        #[cfg(test)]
        pub(super) fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        pub(super) fn read(&self) -> T {
            // SAFETY: the pointer comes from a reference; volatile, since the other side may write meanwhile, and
            // any bytes are a value of a `Message`.
            unsafe { self.0.get().read_volatile() }
        }

        pub(super) fn write(&self, value: T) {
            // SAFETY: as above; only the producer writes, and there is one by the promise of `Producer::new`.
            unsafe { self.0.get().write_volatile(value) }
        }
    }
}

#[cfg(loom)]
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};

    use super::Message;

    pub(super) struct Cell<T>(loom::cell::UnsafeCell<T>);

    impl<T: Message> Cell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub(super) fn read(&self) -> T {
            // SAFETY: loom checks that nobody writes meanwhile.
            self.0.with(|p| unsafe { *p })
        }

        pub(super) fn write(&self, value: T) {
            // SAFETY: loom checks that nobody reads or writes meanwhile.
            self.0.with_mut(|p| unsafe { *p = value })
        }
    }
}

/// Types that a ring carries. Any bytes are a value (`FromBytes`), since the other side of the window may write anything
/// over a slot; no byte is padding (`IntoBytes`), so that no memory of the sender's leaks into the window.
pub trait Message: Copy + FromBytes + IntoBytes {}

impl<T: Copy + FromBytes + IntoBytes> Message for T {}

/// Messages that a ring holds: a request of each thread of a node, all on one channel, and what the kernel itself says.
#[cfg(not(loom))]
pub const SLOTS: usize = 512;
/// Messages that a ring holds: few, so that a model of it ends.
#[cfg(loom)]
pub const SLOTS: usize = 2;

/// Bytes of a ring of `T`.
pub const fn bytes<T>() -> u64 {
    (3 * 64 + SLOTS * size_of::<T>()) as u64
}

/// A word with a cache line of its own.
#[repr(C, align(64))]
struct Line(AtomicU32);

/// A ring as it lies in the window. All zeroes is an empty one.
#[repr(C)]
pub struct Ring<T> {
    /// Messages ever published, modulo 2³².
    tail: Line,
    /// Messages ever taken, modulo 2³².
    head: Line,
    /// Not zero while the consumer sleeps or is about to.
    sleeps: Line,
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

#[cfg(any(test, loom))]
impl<T: Message + Default> Default for Ring<T> {
    fn default() -> Self {
        let line = || Line(AtomicU32::new(0));
        let slots = core::array::from_fn(|_| Cell::new(T::default()));
        Self { tail: line(), head: line(), sleeps: line(), slots }
    }
}

/// The producer of a ring of the test's own, which makes one at a time.
#[cfg(test)]
fn producer<T: Message>(ring: &Ring<T>) -> Producer<'_, T> {
    // SAFETY: see above.
    unsafe { Producer::new(ring) }
}

/// The consumer of a ring of the test's own, which makes one at a time.
#[cfg(test)]
fn consumer<T: Message>(ring: &Ring<T>) -> Consumer<'_, T> {
    // SAFETY: see above.
    unsafe { Consumer::new(ring) }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// The doorbell: what is rung stays rung until it is heard.
    #[derive(Default)]
    struct Doorbell(Mutex<bool>, Condvar);

    impl Doorbell {
        fn ring(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn wait(&self) {
            let mut rung = self.0.lock().unwrap();
            while !*rung {
                rung = self.1.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    /// `count` messages arrive, each once and in order, and a consumer who sleeps is always woken: loom finds a
    /// lost wake-up as a deadlock, and a slot that is written while it is read.
    fn messages_arrive(count: u32, preemptions: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let shared = Arc::new((Ring::<u32>::default(), Doorbell::default()));
            let theirs = shared.clone();
            let producer = thread::spawn(move || {
                let mut ring = producer(&theirs.0);
                for n in 1..=count {
                    loop {
                        match ring.push(n) {
                            Ok(Bell::Ring) => break theirs.1.ring(),
                            Ok(Bell::Silent) => break,
                            Err(Refused::Full) => thread::yield_now(),
                            Err(Refused::Corrupt) => panic!("sound"),
                        }
                    }
                }
            });
            let mut ring = consumer(&shared.0);
            for n in 1..=count {
                let got = loop {
                    if let Some(got) = ring.pop().unwrap() {
                        break got;
                    }
                    if ring.may_sleep() {
                        shared.1.wait();
                        ring.wake();
                    }
                };
                assert_eq!(got, n);
            }
            assert_eq!(ring.pop(), Ok(None));
            producer.join().unwrap();
        });
    }

    #[test]
    fn a_message_arrives_and_wakes_a_sleeper() {
        messages_arrive(1, None);
    }

    #[test]
    fn messages_arrive_in_order() {
        messages_arrive(2, None);
    }

    #[test]
    fn a_full_ring_loses_nothing() {
        // all interleavings are too many here: those with up to two preemptions
        messages_arrive(SLOTS as u32 + 1, Some(2));
    }

    #[test]
    fn a_call_and_its_reply_do_not_miss_each_other() {
        loom::model(|| {
            let shared = Arc::new((
                Ring::<u32>::default(),
                Ring::<u32>::default(),
                Doorbell::default(),
                AtomicBool::new(false),
            ));
            let theirs = shared.clone();
            let daemon = thread::spawn(move || {
                let (mut requests, mut replies) = (consumer(&theirs.0), producer(&theirs.1));
                loop {
                    if let Some(n) = requests.pop().unwrap() {
                        assert_ne!(replies.push(n + 1), Err(Refused::Corrupt));
                        break;
                    }
                    if requests.may_sleep() {
                        theirs.2.wait();
                        requests.wake();
                    }
                }
            });
            let (mut requests, mut replies) = (producer(&shared.0), consumer(&shared.1));
            if requests.push(41) == Ok(Bell::Ring) {
                shared.2.ring();
            }
            let reply = loop {
                match replies.pop().unwrap() {
                    Some(n) => break n,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(reply, 42);
            daemon.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_queue(wishes in proptest::collection::vec(any::<Option<u64>>(), 0..200)) {
            let ring = Ring::<u64>::default();
            let (mut producer, mut consumer) = (producer(&ring), consumer(&ring));
            let mut model = std::collections::VecDeque::new();
            for wish in wishes {
                match wish {
                    Some(message) if model.len() < SLOTS => {
                        prop_assert_eq!(producer.push(message), Ok(Bell::Silent));
                        model.push_back(message);
                    }
                    Some(message) => prop_assert_eq!(producer.push(message), Err(Refused::Full)),
                    None => prop_assert_eq!(consumer.pop(), Ok(model.pop_front())),
                }
            }
        }

        /// Whatever the other side writes over the shared places, each side gets a message, nothing, or an error.
        #[test]
        fn a_damaged_ring_is_an_error_or_harmless(words in proptest::collection::vec((0..3usize, any::<u32>(), any::<bool>()), 0..100)) {
            let ring = Ring::<u64>::default();
            let (mut producer, mut consumer) = (producer(&ring), consumer(&ring));
            for (place, word, push) in words {
                [&ring.tail, &ring.head, &ring.sleeps][place].0.store(word, Ordering::Relaxed);
                if push {
                    let _ = producer.push(1);
                } else {
                    let _ = consumer.pop();
                }
            }
        }
    }

    #[test]
    fn a_sleeping_consumer_is_rung_for_and_one_with_a_message_does_not_sleep() {
        let ring = Ring::<u64>::default();
        let (mut producer, mut consumer) = (producer(&ring), consumer(&ring));
        assert!(consumer.may_sleep());
        assert!(producer.drained());
        assert_eq!(producer.push(1), Ok(Bell::Ring));
        assert!(!producer.drained());
        assert!(!consumer.may_sleep(), "there is a message");
        assert_eq!(producer.push(2), Ok(Bell::Silent), "the announcement was taken back");
        assert_eq!(
            (consumer.peek(), consumer.pop(), consumer.pop()),
            (Ok(Some(1)), Ok(Some(1)), Ok(Some(2)))
        );
    }

    #[test]
    fn a_ring_outlives_its_users() {
        let ring = Ring::<u64>::default();
        assert_eq!(producer(&ring).push(7), Ok(Bell::Silent));
        assert_eq!(consumer(&ring).pop(), Ok(Some(7)));
        assert_eq!(producer(&ring).push(8), Ok(Bell::Silent));
        assert_eq!(consumer(&ring).pop(), Ok(Some(8)));
    }
}
