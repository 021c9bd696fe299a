// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watch over the ranks of a job that exchange messages through the shared window.
//!
//! A rank that has ended without leaving the window sends nothing more, and the ranks that wait for it cannot see that.
//! Programs that do not join the window are not affected.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use colony_torus::{RankState, Window};

/// The time that ranks have to end by themselves after one has failed.
const GRACE: Duration = Duration::from_millis(800);

/// The window of a job.
#[derive(Debug)]
pub(crate) struct TorusWatch {
    window: Window,
    failed: Mutex<Failed>,
}

/// Whether a rank has failed.
#[derive(Debug)]
enum Failed {
    No,
    Since(Instant),
    /// The other ranks were killed.
    Over,
}

impl TorusWatch {
    pub(crate) fn new(window: Window) -> Self {
        Self { window, failed: Mutex::new(Failed::No) }
    }

    /// Ends the exchange of messages if one of the `ended` ranks cannot take part any more (each with whether it ended with
    /// code 0). Returns the ranks to kill: those that have had their time to end and still run.
    pub(crate) fn check(&self, ended: &[(u32, bool)]) -> Vec<u32> {
        let state = |rank: u32| self.window.rank_state(rank as usize);
        let mut has_failed = self.window.check_abort().is_err();
        for &(rank, success) in ended {
            let is_missing = match state(rank) {
                RankState::Absent => !success,
                RankState::Joined => true,
                // a rank that leaves too early tells the others itself
                RankState::Left => false,
            };
            if is_missing {
                self.window.abort();
                has_failed |= !success;
            }
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match *failed {
            Failed::No if has_failed => *failed = Failed::Since(Instant::now()),
            Failed::Since(since) if since.elapsed() >= GRACE => {
                *failed = Failed::Over;
                let ranks = 0..self.window.layout().dims().ranks() as u32;
                let runs = |&rank: &u32| {
                    state(rank) == RankState::Joined && ended.iter().all(|(other, _)| *other != rank)
                };
                return ranks.filter(runs).collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use colony_torus::{Dims, Torus};

    use super::*;

    /// A window of `ranks` ranks for this watch, and for ranks.
    fn windows(ranks: usize) -> (TorusWatch, Arc<Window>) {
        let file = colony_vm::qemu::memory_file("colony-test").expect("a file in memory");
        let dims = Dims::new([ranks, 1, 1]).expect("a torus");
        let watch = TorusWatch::new(Window::create_in(&file, dims).expect("made"));
        (watch, Arc::new(Window::create_in(&file, dims).expect("made")))
    }

    #[test]
    fn ranks_that_leave_and_programs_without_messages_end_nothing() {
        let (watch, window) = windows(3);
        assert_eq!(watch.check(&[(0, true)]), [0; 0]);
        drop(Torus::attach(window.clone(), 1).expect("joins"));
        assert_eq!(watch.check(&[(0, true), (1, false)]), [0; 0]);
        assert!(window.check_abort().is_ok());
    }

    #[test]
    fn a_rank_that_ends_without_leaving_ends_the_exchange() {
        let (watch, window) = windows(3);
        let joined = Torus::attach(window.clone(), 1).expect("joins");
        assert_eq!(watch.check(&[]), [0; 0]);
        assert!(window.check_abort().is_ok());
        watch.check(&[(1, true)]);
        assert!(window.check_abort().is_err());
        drop(joined);
    }

    #[test]
    fn the_ranks_that_do_not_end_after_a_failure_are_killed_once() {
        let (watch, window) = windows(4);
        let ranks = [0, 1, 2].map(|rank| Torus::attach(window.clone(), rank).expect("joins"));
        let ended = [(1, false)];
        watch.check(&ended);
        *watch.failed.lock().expect("no panic") = Failed::Since(Instant::now() - GRACE);
        // rank 3 exchanges no messages
        assert_eq!(watch.check(&ended), [0, 2]);
        assert_eq!(watch.check(&ended), [0; 0]);
        drop(ranks);
    }
}
