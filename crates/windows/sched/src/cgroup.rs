// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups, as this node has them mounted.

use std::path::PathBuf;

/// The files (`cgroup.threads`) through which a thread enters a group and returns to the group above.
///
/// A thread must be in the job's group to run on CPUs that the kernel keeps everything else away from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadEntry {
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
}

impl ThreadEntry {
    /// Puts the calling thread into the group.
    pub(crate) fn enter(&self) -> std::io::Result<()> {
        std::fs::write(&self.inside, "0")
    }

    /// Puts the calling thread into the group above.
    pub(crate) fn leave(&self) -> std::io::Result<()> {
        std::fs::write(&self.outside, "0")
    }
}

/// The mount point of the tree of version 2; `None` without one.
pub(crate) fn root() -> Option<PathBuf> {
    mount_point("cgroup2", None)
}

/// The first mount of a kind of file system that has an option.
pub(crate) fn mount_point(kind: &str, option: Option<&str>) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let fits = |line: &&str| {
        let mut words = line.split(' ').skip(2);
        words.next() == Some(kind)
            && option.is_none_or(|o| words.next().is_some_and(|all| all.split(',').any(|w| w == o)))
    };
    mounts.lines().find(fits)?.split(' ').nth(1).map(Into::into)
}
