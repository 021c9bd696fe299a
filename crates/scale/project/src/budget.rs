// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bound on the time that a computation may take.

use std::time::{Duration, Instant};

/// Time that a computation may take. A computation that reaches the end of its budget returns what it has, and reports
/// that it stopped.
#[derive(Clone, Copy, Debug)]
pub struct Budget(Option<Instant>);

impl Budget {
    /// A computation that may take as long as it needs.
    pub const UNLIMITED: Self = Self(None);

    /// A budget that begins now.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        // a budget that ends after the clock does has no end
        Self(Instant::now().checked_add(time))
    }

    /// A budget of half of the time that is left.
    #[must_use]
    pub fn half(&self) -> Self {
        let now = Instant::now();
        Self(self.0.map(|end| now + end.saturating_duration_since(now) / 2))
    }

    /// Returns `true` if no time is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}
