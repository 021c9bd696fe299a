// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to evacuate or readmit the PEs of a process: by an administrator's signals (`SIGUSR1`, `SIGUSR2`), and by
//! [warnings](crate::health) about the host.
//!
//! All are values of one atomic, so that a PE looks at one word. A warning never replaces an administrator's evacuation,
//! and its end undoes only the evacuation that it has caused.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use signal_hook::consts::{SIGUSR1, SIGUSR2};

static LAST: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
/// The reason of the last warning.
static REASON: Mutex<String> = Mutex::new(String::new());

/// The administrator's requests.
const EVACUATE: usize = 1;
const READMIT: usize = 2;
/// A warning, and its end.
const WARNED: usize = 3;
const HEALTHY: usize = 4;

/// What the last request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    /// There was no request.
    #[default]
    Nothing,
    Evacuate,
    Readmit,
}

impl Asked {
    /// The last request.
    #[inline]
    pub(crate) fn now() -> Self {
        match LAST.get().map_or(0, |last| last.load(Ordering::Relaxed)) {
            0 => Self::Nothing,
            EVACUATE | WARNED => Self::Evacuate,
            _ => Self::Readmit,
        }
    }
}

/// Handles the two signals from now on, for the life of the process.
pub(crate) fn listen() -> io::Result<()> {
    let last = LAST.get_or_init(Arc::default);
    for (signal, value) in [(SIGUSR1, EVACUATE), (SIGUSR2, READMIT)] {
        signal_hook::flag::register_usize(signal, Arc::clone(last), value)?;
    }
    Ok(())
}

/// Evacuates the PEs because of a warning, unless an administrator has.
pub(crate) fn warn(reason: &str) {
    reason.clone_into(&mut REASON.lock().unwrap_or_else(PoisonError::into_inner));
    begin(LAST.get_or_init(Arc::default));
}

/// Readmits the PEs at the end of a warning, unless an administrator's request has replaced it.
pub(crate) fn end_warning() {
    end(LAST.get_or_init(Arc::default));
}

/// Returns `true` if the last request is an administrator's to evacuate.
pub(crate) fn is_evacuated_by_signal() -> bool {
    is(EVACUATE)
}

/// Returns `true` if the last request is that of a warning.
pub(crate) fn is_warned() -> bool {
    is(WARNED)
}

fn is(request: usize) -> bool {
    LAST.get().is_some_and(|last| last.load(Ordering::Relaxed) == request)
}

fn begin(last: &AtomicUsize) {
    let may = |now| (now != EVACUATE).then_some(WARNED);
    // refused: the administrator's request stays
    let _ = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may);
}

fn end(last: &AtomicUsize) {
    let _ = last.compare_exchange(WARNED, HEALTHY, Ordering::Relaxed, Ordering::Relaxed);
}

/// The reason of the warning by which the PEs are evacuated. `None` if they are not, or by an administrator.
pub(crate) fn reason() -> Option<String> {
    is_warned().then(|| REASON.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last request after these, one after another.
    fn after(requests: &[usize]) -> usize {
        let last = AtomicUsize::new(0);
        for &request in requests {
            match request {
                WARNED => begin(&last),
                HEALTHY => end(&last),
                signal => last.store(signal, Ordering::Relaxed),
            }
        }
        last.into_inner()
    }

    #[test]
    fn the_end_of_a_warning_undoes_only_its_own_evacuation() {
        for (requests, expected) in [
            (&[WARNED][..], WARNED),
            (&[WARNED, HEALTHY], HEALTHY),
            (&[WARNED, HEALTHY, WARNED], WARNED),
            // a file that has always been healthy asks for nothing
            (&[HEALTHY], 0),
            // an administrator's evacuation stays, before and after a warning and within it
            (&[EVACUATE, WARNED, HEALTHY], EVACUATE),
            (&[WARNED, EVACUATE, HEALTHY], EVACUATE),
            (&[EVACUATE, WARNED, HEALTHY, READMIT], READMIT),
            // an administrator's readmission holds until the next warning
            (&[WARNED, READMIT, HEALTHY], READMIT),
            (&[WARNED, READMIT, HEALTHY, WARNED], WARNED),
        ] {
            assert_eq!(after(requests), expected, "{requests:?}");
        }
    }
}
