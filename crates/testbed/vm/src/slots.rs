// SPDX-License-Identifier: MIT OR Apache-2.0
//! As many virtual CPUs at a time as the machine has real ones: machines of all programs of a user share slots,
//! so that programs in parallel measure as if they were alone, and leave the rest of the system its share.
//!
//! Most machines wait most of the time. Where nobody measures, the variable [`COUNT`] gives another number of slots.

use std::cell::Cell;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::VmError;
use crate::cache::{self, Lock};

/// The environment variable with the number of slots, instead of the number of CPUs: 1 to 1024.
pub const COUNT: &str = "COLONY_VM_SLOTS";

/// Slots held; free again when dropped, or when this process dies.
#[derive(Debug)]
pub struct Slots {
    held: Vec<Lock>,
}

impl Slots {
    /// Waits until `cpus` slots are free, or all of them where `cpus` is more than there are.
    ///
    /// # Errors
    /// A cache folder that cannot be used.
    pub fn take(cpus: usize) -> Result<Self, VmError> {
        Self::take_telling(cpus, |text| tracing::info!("{text}"))
    }

    /// As [`Slots::take`]; tells through `notice` that it waits, once.
    ///
    /// # Errors
    /// As [`Slots::take`].
    pub fn take_telling(cpus: usize, notice: impl Fn(&str)) -> Result<Self, VmError> {
        take_of(&cache::folder("slots")?, cpus, count(std::env::var_os(COUNT).as_deref())?, notice)
    }

    /// Number of slots held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }
}

/// The number of slots, by the value of [`COUNT`] if that is set.
fn count(variable: Option<&OsStr>) -> Result<usize, VmError> {
    let Some(value) = variable else {
        return Ok(std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    };
    let count = value.to_str().and_then(|text| text.parse().ok()).filter(|count| (1..=1024).contains(count));
    count
        .ok_or_else(|| VmError::Wrong(format!("{COUNT} is {}: give 1 to 1024, or unset it", value.display())))
}

fn take_of(folder: &Path, cpus: usize, all: usize, notice: impl Fn(&str)) -> Result<Slots, VmError> {
    let announced = Cell::new(false);
    let waiting = || {
        if !announced.replace(true) {
            notice("waiting for other virtual machines to end");
        }
    };
    // one at a time collects slots, so that two that need several cannot wait for each other
    let _turn = Lock::wait(&folder.join("turn"), waiting)?;
    let wanted = cpus.clamp(1, all);
    let mut held: Vec<Option<Lock>> = (0..all).map(|_| None).collect();
    loop {
        for (slot, place) in held.iter_mut().enumerate() {
            if place.is_none() {
                *place = Lock::now(&folder.join(slot.to_string()))?;
            }
        }
        if held.iter().flatten().count() >= wanted {
            return Ok(Slots { held: held.into_iter().flatten().take(wanted).collect() });
        }
        waiting();
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_number_of_slots_is_that_of_the_variable_or_an_error() {
        assert_eq!(count(Some(OsStr::new("7"))).expect("a number"), 7);
        assert!(count(None).expect("CPUs") >= 1);
        for wrong in ["0", "many", "", "-1", "1025"] {
            assert!(count(Some(OsStr::new(wrong))).is_err_and(|e| e.to_string().contains(COUNT)), "{wrong}");
        }
    }

    #[test]
    fn slots_are_limited_and_waiters_get_freed_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for cpus in [1, 2, 9, 1, 2, 1] {
                let (now, most, folder) = (&now, &most, folder.path());
                scope.spawn(move || {
                    let slots = take_of(folder, cpus, 2, |_| {}).expect("slots");
                    assert_eq!(slots.count(), cpus.min(2));
                    let holders = now.fetch_add(slots.count(), Ordering::SeqCst) + slots.count();
                    most.fetch_max(holders, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    now.fetch_sub(slots.count(), Ordering::SeqCst);
                });
            }
        });
        assert!(most.into_inner() <= 2);
    }
}
