// SPDX-License-Identifier: MIT OR Apache-2.0
//! A count of the last hour.

use std::time::Duration;

/// A count of the last hour, to the minute.
#[derive(Debug)]
pub(super) struct Hour {
    minutes: [u64; 60],
    /// The minute of the last addition.
    last: u64,
}

impl Default for Hour {
    fn default() -> Self {
        Self { minutes: [0; 60], last: 0 }
    }
}

impl Hour {
    /// Adds `count` at `now`, a time since any fixed moment, and returns the count of the last hour.
    pub(super) fn add(&mut self, now: Duration, count: u64) -> u64 {
        let minute = now.as_secs() / 60;
        for passed in 1..=minute.saturating_sub(self.last).min(60) {
            self.minutes[((self.last + passed) % 60) as usize] = 0;
        }
        self.last = self.last.max(minute);
        let place = &mut self.minutes[(self.last % 60) as usize];
        *place = place.saturating_add(count);
        self.minutes.iter().fold(0, |sum, &minute| sum.saturating_add(minute))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_count_is_forgotten_after_an_hour() {
        let mut hour = Hour::default();
        let minutes = |m: u64| Duration::from_secs(60 * m);
        assert_eq!(hour.add(minutes(5), 2), 2);
        assert_eq!(hour.add(minutes(64), 3), 5);
        assert_eq!(hour.add(minutes(65), 0), 3);
        assert_eq!(hour.add(minutes(1000), 0), 0);
        assert_eq!(hour.add(minutes(1000), u64::MAX), u64::MAX);
        assert_eq!(hour.add(minutes(1001), 1), u64::MAX, "no overflow");
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_last_sixty_minutes(steps in prop::collection::vec((0u64..2000, 0u64..10), 1..100)) {
            let (mut hour, mut now, mut all) = (Hour::default(), 0, Vec::new());
            for (pause, count) in steps {
                now += pause;
                all.push((now / 60, count));
                let expected: u64 = all.iter().filter(|(m, _)| m + 60 > now / 60).map(|(_, c)| c).sum();
                prop_assert_eq!(hour.add(Duration::from_secs(now), count), expected);
            }
        }
    }
}
