// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time and page faults of the timed part.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// Page faults, as `getrusage` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Served without reading from a device.
    pub minor: u64,
    /// Served from a device.
    pub major: u64,
}

impl Faults {
    /// Of this process so far; `None` where the kernel does not say.
    fn now() -> Option<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Some(Self { minor: count(usage.minor_page_faults()), major: count(usage.major_page_faults()) })
    }

    const fn since(self, before: Self) -> Self {
        Self {
            minor: self.minor.saturating_sub(before.minor),
            major: self.major.saturating_sub(before.major),
        }
    }
}

/// Time and page faults of the timed part.
pub(super) struct Timed {
    pub(super) seconds: f64,
    pub(super) faults: Option<Faults>,
    pub(super) faults_whole: Option<Faults>,
}

/// Runs from its creation to [`stop`](Self::stop).
pub(super) struct Timer {
    faults: Option<Faults>,
    start: Instant,
}

impl Timer {
    pub(super) fn start() -> Self {
        Self { faults: Faults::now(), start: Instant::now() }
    }

    pub(super) fn stop(self) -> Timed {
        let seconds = self.start.elapsed().as_secs_f64();
        let faults_whole = Faults::now();
        let faults = faults_whole.zip(self.faults).map(|(now, before)| now.since(before));
        Timed { seconds, faults, faults_whole }
    }
}
