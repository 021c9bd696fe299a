// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every interleaving of the two sides of a small ring.

use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::Message;
use queue::{Bell, Refused, Ring, consumer, producer};

/// The same code as of the ring in the window.
#[allow(clippy::duplicate_mod, reason = "the other one has the atomics of `core`")]
#[allow(dead_code, unreachable_pub, reason = "the models use a part of the ring, and are private")]
#[path = "queue.rs"]
mod queue;

/// Messages that a ring holds: few, so that a model of it ends.
const SLOTS: usize = 2;

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

/// The doorbell: what is rung stays rung until it is heard.
#[derive(Default)]
struct Doorbell(Mutex<bool>, Condvar);

impl Doorbell {
    fn ring(&self) {
        *self.0.lock().expect("no thread panics") = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().expect("no thread panics");
        while !*rung {
            rung = self.1.wait(rung).expect("no thread panics");
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
                if let Some(got) = ring.pop().expect("sound") {
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
        producer.join().expect("no thread panics");
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
                if let Some(n) = requests.pop().expect("sound") {
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
            match replies.pop().expect("sound") {
                Some(n) => break n,
                None => thread::yield_now(),
            }
        };
        assert_eq!(reply, 42);
        daemon.join().expect("no thread panics");
    });
}
