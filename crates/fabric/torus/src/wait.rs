// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for another rank: look often, then let others run, then sleep for moments; not for ever.

use std::time::{Duration, Instant};

use crate::Error;
use crate::environment::WaitLimits;
use crate::layout::state;
use crate::links::Links;

/// Looks with the CPU offered to others in between, before the first sleep.
const YIELDS: u32 = 1000;
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// One wait, from the first look that found nothing.
pub(crate) struct Wait<'a> {
    links: &'a Links,
    wait_limits: WaitLimits,
    turns: u32,
    sleep: Duration,
    since: Option<Instant>,
    /// A rank that was seen to have left: the next look that finds nothing is the last.
    left: Option<usize>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(links: &'a Links, wait_limits: WaitLimits) -> Self {
        Self { links, wait_limits, turns: 0, sleep: SHORTEST_SLEEP, since: None, left: None }
    }

    /// Something came: the next wait begins anew.
    pub(crate) fn progress(&mut self) {
        *self = Self::new(self.links, self.wait_limits);
    }

    /// Waits a moment for `rank`.
    #[inline]
    pub(crate) fn once(&mut self, rank: usize) -> Result<(), Error> {
        self.turns = self.turns.saturating_add(1);
        if self.turns <= self.wait_limits.spins {
            std::hint::spin_loop();
            return Ok(());
        }
        self.longer(rank)
    }

    #[cold]
    fn longer(&mut self, rank: usize) -> Result<(), Error> {
        let window = self.links.window();
        window.check_abort()?;
        // a packet of another rank that is not complete may be before the last words of this one
        if self.left == Some(rank) && self.links.nothing_comes() {
            return Err(Error::Left { rank });
        }
        // what it wrote before it left may have come after the last look: look once more
        self.left = (window.state(rank) == state::LEFT).then_some(rank);
        self.links.drain()?;
        if self.turns - self.wait_limits.spins <= YIELDS {
            std::thread::yield_now();
            return Ok(());
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited > self.wait_limits.timeout {
            return Err(Error::Timeout { rank, seconds: waited.as_secs_f64() });
        }
        std::thread::sleep(self.sleep);
        self.sleep = (2 * self.sleep).min(LONGEST_SLEEP);
        Ok(())
    }
}
