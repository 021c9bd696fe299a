// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals by which an administrator evacuates (`SIGUSR1`) or readmits (`SIGUSR2`) the PEs of a process.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGUSR1, SIGUSR2};

static LAST: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// What the last signal requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    /// No signal has arrived.
    #[default]
    Nothing,
    Evacuate,
    Readmit,
}

impl Asked {
    /// The request of the last signal.
    #[inline]
    pub(crate) fn now() -> Self {
        match LAST.get().map_or(0, |last| last.load(Ordering::Relaxed)) {
            0 => Self::Nothing,
            1 => Self::Evacuate,
            _ => Self::Readmit,
        }
    }
}

/// Handles the two signals from now on, for the life of the process.
pub(crate) fn listen() -> io::Result<()> {
    let last = LAST.get_or_init(Arc::default);
    for (signal, value) in [(SIGUSR1, 1), (SIGUSR2, 2)] {
        signal_hook::flag::register_usize(signal, Arc::clone(last), value)?;
    }
    Ok(())
}
