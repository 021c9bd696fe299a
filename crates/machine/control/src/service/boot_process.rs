// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of the process that boots the nodes: all of its nodes die with it, and none of them is to blame.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest pause before nodes are started again.
const LONGEST: Duration = Duration::from_secs(60);
/// The pause after the second end in a row; the first has none, and each further one twice as much.
const SHORTEST: Duration = Duration::from_secs(1);

/// The ends of boot processes since all nodes were ready.
#[derive(Debug, Default)]
pub(super) struct BootProcesses {
    seen: BTreeSet<u32>,
    in_a_row: u32,
    last: Option<Instant>,
}

impl BootProcesses {
    /// The boot process of this number has ended. Returns `true` if its nodes may be started again by now: after several ends
    /// in a row, later and later.
    pub(super) fn may_start(&mut self, pid: u32, now: Instant) -> bool {
        if self.seen.insert(pid) {
            self.in_a_row += 1;
            self.last = Some(now);
        }
        let pause = match self.in_a_row {
            0 | 1 => Duration::ZERO,
            n => SHORTEST.saturating_mul(1 << (n - 2).min(10)).min(LONGEST),
        };
        self.last.is_none_or(|last| now.saturating_duration_since(last) >= pause)
    }

    /// All nodes are ready.
    pub(super) fn all_ready(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_started_again_at_once_and_then_later_and_later() {
        let (mut boots, began) = (BootProcesses::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(
            boots.may_start(1, began) && boots.may_start(1, began),
            "the first end, told by each of its nodes"
        );
        assert!(!boots.may_start(2, began) && !boots.may_start(1, began));
        assert!(boots.may_start(2, at(1)) && boots.may_start(1, at(1)));
        assert!(!boots.may_start(3, at(1)) && !boots.may_start(3, at(2)) && boots.may_start(3, at(3)));
        (4..40).for_each(|pid| assert!(!boots.may_start(pid, at(3)), "{pid}"));
        assert!(!boots.may_start(39, at(62)) && boots.may_start(39, at(63)), "a minute at most");
        boots.all_ready();
        assert!(boots.may_start(40, at(63)));
    }
}
