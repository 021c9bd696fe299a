// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's lock, on the threads of Linux.

#[path = "../src/machine/lock.rs"]
mod lock;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::MutexGuard;

use lock::{Guard, Lock, Once};

/// A question about a type.
struct Of<T>(PhantomData<T>);

impl<T: Sync> Of<T> {
    fn is_sync(&self) -> bool {
        true
    }
}

/// The answer where the bound of the method above does not hold.
trait Otherwise {
    fn is_sync(&self) -> bool {
        false
    }
}

impl<T> Otherwise for Of<T> {}

macro_rules! is_sync {
    ($type:ty) => {
        Of::<$type>(PhantomData).is_sync()
    };
}

#[test]
fn a_guard_is_shared_between_cpus_only_if_its_value_may_be() {
    assert!(is_sync!(Guard<u32>) && is_sync!(MutexGuard<u32>));
    // a guard gives out shared references to the value: with a `Cell`, two CPUs would write at the same time
    assert!(!is_sync!(MutexGuard<Cell<u32>>), "the standard library's rule");
    assert!(!is_sync!(Guard<Cell<u32>>));
}

#[test]
fn a_lock_needs_send_and_a_once_needs_send_and_sync() {
    assert!(is_sync!(Lock<Cell<u32>>) && !is_sync!(Lock<std::rc::Rc<u32>>));
    assert!(is_sync!(Once<u32>) && !is_sync!(Once<Cell<u32>>));
}

#[test]
fn one_thread_at_a_time_has_the_value() {
    const TIMES: u64 = 10_000;
    let lock = Lock::new([0_u64; 2]);
    let count = || {
        for _ in 0..TIMES {
            let mut both = lock.lock();
            assert_eq!(both[0], both[1]);
            both[0] += 1;
            both[1] += 1;
        }
    };
    std::thread::scope(|s| (0..3).for_each(|_| drop(s.spawn(count))));
    assert_eq!(*lock.lock(), [3 * TIMES; 2]);
}

#[test]
fn a_value_is_set_once() {
    let once = Once::new();
    assert_eq!(once.get(), None);
    once.set(1);
    once.set(2);
    assert_eq!(once.get(), Some(&1));
}
