// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user of its own for each process that root confines: processes of one user may signal, trace and read each other.
//!
//! The process with number N runs as user and group [`FIRST`] + N. The kernel gives no number to two living processes, so no two of them
//! share a user, and nothing has to be kept about which users are taken. No account has such a number: distributions end their ranges
//! at 60,000, systemd's containers end below [`FIRST`], and its range for foreign images begins above the last one.

use std::fs;

/// The user of process 0, which there is not: 1,879,048,192.
pub const FIRST: u32 = 0x7000_0000;

/// Users in the range: the kernel's largest process number and one (`PID_MAX_LIMIT` in `include/linux/threads.h`).
const COUNT: u32 = 1 << 22;

/// The user without rights where the range is not there: nobody, whom all such processes share.
const NOBODY: u32 = 65534;

/// The users that confined processes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessUser {
    /// Each its own.
    Own,
    /// All are nobody: this user namespace (a container's) does not have the range.
    Nobody,
}

impl ProcessUser {
    /// The users that the user namespace of the caller has. A kernel that does not say so has no user namespaces, and so all users.
    #[must_use]
    pub fn here() -> Self {
        let has_range = |map: &str| fs::read_to_string(map).map_or(true, |map| covers_range(&map));
        match ["/proc/self/uid_map", "/proc/self/gid_map"].into_iter().all(has_range) {
            true => Self::Own,
            false => Self::Nobody,
        }
    }

    /// The number of user and group of the process with number `pid`.
    #[must_use]
    pub fn of(self, pid: u32) -> u32 {
        match self {
            Self::Own => FIRST + pid % COUNT,
            Self::Nobody => NOBODY,
        }
    }
}

/// Returns `true` if a line of this map (`inside outside count`) has all users of the range.
fn covers_range(map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
        let (inside, _, count) = (numbers.next().flatten(), numbers.next(), numbers.next().flatten());
        inside.zip(count).is_some_and(|(inside, count)| {
            inside <= FIRST.into() && u64::from(FIRST) + u64::from(COUNT) <= inside.saturating_add(count)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_processes_have_one_user() {
        let user = |pid| ProcessUser::Own.of(pid);
        assert_eq!((user(1), user(2), user(COUNT - 1)), (1_879_048_193, 1_879_048_194, 1_883_242_495));
        assert_eq!([ProcessUser::Nobody.of(1), ProcessUser::Nobody.of(2)], [65534; 2]);
    }

    #[test]
    fn a_container_without_the_range_has_nobody() {
        assert!(covers_range("         0          0 4294967295\n"));
        assert!(!covers_range("0 524288 65536\n") && !covers_range("") && !covers_range("what\n"));
        assert!(covers_range("0 0 1\n1 100000 4000000000\n"));
        assert!(!covers_range("0 0 1879048193\n"), "one of them is not the range");
    }
}
