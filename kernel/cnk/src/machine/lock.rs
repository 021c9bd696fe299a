// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sharing between the CPUs: a lock that spins, and a value that is set once.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A value for one CPU at a time.
///
/// Interrupts are masked wherever the kernel runs, so no one is interrupted with a lock; nobody waits for anything but
/// locks while holding one, and who needs two takes them in the order of their declaration.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the CPU that has taken the lock reaches the value, so the value moves from one CPU to another: `Send`.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Free.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until it is free.
    pub fn lock(&self) -> Guard<'_, T> {
        while self.taken.swap(true, Ordering::Acquire) {
            while self.taken.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        }
        Guard { lock: self, value: PhantomData }
    }
}

/// The right to a value.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    // CPUs may share a guard where they may share its value, as they may a `&mut T`. The reference above asks for less
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}

/// A value that is set while the kernel starts, and only read after.
pub struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only the CPU that moves the state from 0 writes the value (`Send`), and CPUs share it in state 2 only (`Sync`).
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Not set yet.
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(0), value: UnsafeCell::new(None) }
    }

    /// Sets it; the second time is without effect.
    pub fn set(&self, value: T) {
        if self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: only one gets here, and nobody reads before the state is 2.
            unsafe { *self.value.get() = Some(value) };
            self.state.store(2, Ordering::Release);
        }
    }

    /// The value.
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != 2 {
            return None;
        }
        // SAFETY: in state 2 nobody writes.
        unsafe { (*self.value.get()).as_ref() }
    }
}
