// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that copies of a program's segments may take.

use colony_node::memory::{Limit, limits_of};

/// Large pages leave this part of a limit free: a sixteenth.
const RESERVE: u64 = 16;

/// Bytes that must be left free of a limit.
pub(crate) const fn reserve(limit: &Limit) -> u64 {
    limit.bytes / RESERVE
}

/// Bytes as text.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// Memory that copies may take.
#[derive(Debug)]
pub(crate) struct Room {
    limits: Vec<Limit>,
    taken: u64,
}

impl Room {
    /// The room of process `pid` now.
    pub(crate) fn of(pid: i32) -> Self {
        Self { limits: limits_of(pid), taken: 0 }
    }

    /// Takes room for a copy.
    ///
    /// # Errors
    /// The limit that leaves no room for it.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), String> {
        let taken = self.taken.saturating_add(bytes);
        let is_short = |limit: &&Limit| limit.left().saturating_sub(reserve(limit)) < taken;
        if let Some(limit) = self.limits.iter().find(is_short) {
            let (left, all) = (mib(limit.left()), mib(limit.bytes));
            return Err(format!("{left} of {all} of memory are left ({})", limit.file.display()));
        }
        self.taken = taken;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn copies_leave_the_reserve_free() {
        let limit = Limit { file: "/group/limit".into(), bytes: 320 * MIB, used: 200 * MIB };
        let mut room = Room { limits: vec![limit], taken: 0 };
        assert_eq!(room.take(60 * MIB), Ok(()));
        assert_eq!(room.take(40 * MIB), Ok(()));
        let refused = room.take(MIB).expect_err("20 MiB are the reserve");
        assert_eq!(refused, "120.0 MiB of 320.0 MiB of memory are left (/group/limit)");
        assert!(Room { limits: Vec::new(), taken: 0 }.take(u64::MAX).is_ok(), "no limit is known");
    }
}
