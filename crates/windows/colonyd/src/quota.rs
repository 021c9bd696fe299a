// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quotas of each user: lines of the daemon's log, open files and the documents kept for them.
//!
//! Every quota holds for each user and, since a user may own thousands of ids (subuid(5)), for all users together.
//! Root has none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lines a user may cause at once, and the time after which it may cause one more.
const USER: Rate = Rate { burst: 10, every: Duration::from_secs(6) };
/// The same for all users together.
const ALL: Rate = Rate { burst: 100, every: Duration::from_secs(1) };
/// Users whose lines are counted apart. Beyond, the user that was quiet for the longest is forgotten.
const USERS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    every: Duration,
}

/// Lines that may be logged now.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    /// The instant at which `left` was counted.
    at: Instant,
}

impl Bucket {
    const fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let gained = now.saturating_duration_since(self.at).as_nanos() / rate.every.as_nanos().max(1);
        let gained = u32::try_from(gained).unwrap_or(u32::MAX);
        if gained >= rate.burst - self.left {
            *self = Self::full(rate, now);
        } else {
            self.left += gained;
            self.at += rate.every * gained;
        }
    }
}

/// The numbers of lines that users may still cause in the log.
#[derive(Debug)]
pub(super) struct LogQuota {
    all: Bucket,
    users: BTreeMap<u32, Bucket>,
    /// Lines left out since the last one that was allowed.
    left_out: u64,
}

impl LogQuota {
    pub(super) fn new(now: Instant) -> Self {
        Self { all: Bucket::full(ALL, now), users: BTreeMap::new(), left_out: 0 }
    }

    /// Takes a line from the quota of user `uid` at `now`. Returns the number of lines that were left out before it, or `None` if
    /// the quota is used up.
    pub(super) fn take(&mut self, uid: u32, now: Instant) -> Option<u64> {
        if uid != 0 && !self.has_room(uid, now) {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }

    fn has_room(&mut self, uid: u32, now: Instant) -> bool {
        if self.users.len() >= USERS && !self.users.contains_key(&uid) {
            let quiet = self.users.iter().min_by_key(|(_, b)| b.at).map(|(&uid, _)| uid);
            quiet.and_then(|uid| self.users.remove(&uid));
        }
        let user = self.users.entry(uid).or_insert(Bucket::full(USER, now));
        user.refill(USER, now);
        self.all.refill(ALL, now);
        if user.left == 0 || self.all.left == 0 {
            return false;
        }
        user.left -= 1;
        self.all.left -= 1;
        true
    }
}

/// Open files of a user, and bytes of documents kept for them.
const USER_OPENS: Opens = Opens { files: 1024, bytes: 1 << 20 };
/// The same for all users together.
const ALL_OPENS: Opens = Opens { files: 16 * 1024, bytes: 16 << 20 };

/// Open files, and bytes of documents kept for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Opens {
    files: usize,
    bytes: usize,
}

/// The open files of users.
#[derive(Debug, Default)]
pub(super) struct OpenQuota {
    all: Opens,
    users: BTreeMap<u32, Opens>,
}

impl OpenQuota {
    /// Counts one more open file of `uid`; `false` where that is one too many.
    pub(super) fn open(&mut self, uid: u32) -> bool {
        let user = self.users.get(&uid).copied().unwrap_or_default();
        if uid != 0 && (user.files >= USER_OPENS.files || self.all.files >= ALL_OPENS.files) {
            return false;
        }
        self.change(uid, |o| o.files += 1);
        true
    }

    /// Counts a document of `new` bytes instead of one of `old`; `false` where the user keeps too much already.
    pub(super) fn keep(&mut self, uid: u32, old: usize, new: usize) -> bool {
        let user = self.users.get(&uid).copied().unwrap_or_default();
        let over = |now: Opens, most: Opens| now.bytes.saturating_sub(old) >= most.bytes;
        if uid != 0 && new > old && (over(user, USER_OPENS) || over(self.all, ALL_OPENS)) {
            return false;
        }
        self.change(uid, |o| o.bytes = (o.bytes + new).saturating_sub(old));
        true
    }

    /// Counts an open file of `uid` as closed, with the document of `bytes` kept for it.
    pub(super) fn close(&mut self, uid: u32, bytes: usize) {
        self.change(uid, |o| {
            o.files = o.files.saturating_sub(1);
            o.bytes = o.bytes.saturating_sub(bytes);
        });
    }

    /// Root's files count for nobody, so that they take nothing from the others.
    fn change(&mut self, uid: u32, change: impl Fn(&mut Opens)) {
        if uid == 0 {
            return;
        }
        change(&mut self.all);
        let user = self.users.entry(uid).or_default();
        change(user);
        if *user == Opens::default() {
            self.users.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_user_that_floods_the_log_is_cut_off_and_the_others_are_not() {
        let start = Instant::now();
        let mut quota = LogQuota::new(start);
        let mut logged = |uid, now| (0..20_000).filter(|_| quota.take(uid, now).is_some()).count();
        assert_eq!(logged(7, start), 10);
        assert_eq!(logged(8, start), 10, "each user has its own");
        assert_eq!(logged(0, start), 20_000, "root is not limited");
        assert_eq!(logged(7, start + Duration::from_secs(13)), 2, "a line each 6 s");
        assert_eq!(logged(7, start + Duration::from_secs(3600)), 10, "no more than the burst");
    }

    #[test]
    fn lines_left_out_are_counted_with_the_next_line() {
        let start = Instant::now();
        let mut quota = LogQuota::new(start);
        for _ in 0..110 {
            let _ = quota.take(7, start);
        }
        assert_eq!(quota.take(7, start + USER.every), Some(100));
        assert_eq!(quota.take(0, start + USER.every), Some(0));
    }

    #[test]
    fn many_ids_cause_no_more_lines_than_all_users_may_and_no_memory_without_end() {
        let start = Instant::now();
        let mut quota = LogQuota::new(start);
        let logged = (1..=65_536).filter(|&uid| quota.take(uid, start).is_some()).count();
        assert_eq!((logged, quota.users.len()), (ALL.burst as usize, USERS));
    }

    #[test]
    fn opens_and_documents_of_a_user_are_bounded_and_roots_are_not() {
        let mut quota = OpenQuota::default();
        assert_eq!((0..20_000).filter(|_| quota.open(7)).count(), USER_OPENS.files);
        assert!(quota.open(8) && (0..20_000).all(|_| quota.open(0)), "others go on");
        assert_eq!((0..20_000).filter(|_| quota.keep(7, 0, 4096)).count(), USER_OPENS.bytes / 4096);
        assert!(quota.keep(7, 4096, 4096), "a document may be made anew");
        assert!(quota.keep(8, 0, 4096));
        quota.close(7, 4096);
        assert!(quota.open(7) && !quota.open(7));
        assert!(quota.keep(7, 0, 4096));
    }

    proptest! {
        #[test]
        fn nothing_is_counted_once_all_files_are_closed(opens in prop::collection::vec((0u32..4, 0usize..100_000), 0..200)) {
            let mut quota = OpenQuota::default();
            let mut open = Vec::new();
            for (uid, bytes) in opens {
                if quota.open(uid) {
                    open.push((uid, if quota.keep(uid, 0, bytes) { bytes } else { 0 }));
                }
            }
            for (uid, bytes) in open {
                quota.close(uid, bytes);
            }
            prop_assert_eq!(quota.all, Opens::default());
            prop_assert!(quota.users.is_empty());
        }
    }
}
