// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring between one producer and one consumer who share memory and nothing else.
//!
//! Each side keeps its own place to itself and only publishes it: what the other side writes over it cannot lead it
//! astray. A consumer who is about to sleep says so first and looks again; a producer who has published looks whether
//! the consumer sleeps, and rings the bell if so. The two fences make sure that one of them sees the other
//! (store, fence, load on both sides), so no wake-up is lost and no bell is rung for a consumer who is awake.
//!
//! The tests run every interleaving of small cases: they compile the same `queue.rs` a second time, with loom's atomics.

mod queue;

use zerocopy::{FromBytes, IntoBytes};

pub use self::queue::{Bell, Consumer, Corrupt, Producer, Refused, Ring, bytes};

/// The atomics and the slots of [`queue`].
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

/// Types that a ring carries. Any bytes are a value (`FromBytes`), since the other side of the window may write anything
/// over a slot; no byte is padding (`IntoBytes`), so that no memory of the sender's leaks into the window.
pub trait Message: Copy + FromBytes + IntoBytes {}

impl<T: Copy + FromBytes + IntoBytes> Message for T {}

/// Messages that a ring holds: a request of each thread of a node, all on one channel, and what the kernel itself says.
pub const SLOTS: usize = 512;

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::queue::{consumer, producer};
    use super::sync::Ordering;
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
