// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a process may have, and how much of it is left.

use std::path::{Path, PathBuf};

/// Where the trees of cgroups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// The memory of the node.
const NODE: &str = "/proc/meminfo";
/// Limits of version 1 from here on mean none: the kernel writes the largest multiple of a page.
const NONE: u64 = 1 << 60;

/// The files of a version of cgroups.
#[derive(Debug)]
struct Version {
    /// The limit that the kernel enforces by killing.
    limit: &'static str,
    /// The limit that the kernel enforces by holding processes up.
    soft_limit: Option<&'static str>,
    used: &'static str,
    /// Beginning of the names in `memory.stat` that count the groups below too.
    prefix: &'static str,
}

const VERSION_1: Version = Version {
    limit: "memory.limit_in_bytes",
    soft_limit: None,
    used: "memory.usage_in_bytes",
    prefix: "total_",
};

const VERSION_2: Version =
    Version { limit: "memory.max", soft_limit: Some("memory.high"), used: "memory.current", prefix: "" };

/// Memory of files in `memory.stat`, which the kernel takes back before it kills.
const RECLAIMABLE: [&str; 2] = ["active_file", "inactive_file"];

/// A limit of memory, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The file that states the limit.
    pub file: PathBuf,
    /// The limit in bytes.
    pub bytes: u64,
    /// Bytes in use, without memory of files that the kernel can take back.
    pub used: u64,
}

impl Limit {
    /// Bytes that are left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }
}

/// Bytes of memory that this process and its children may have: those of the node, or of the tightest `memory.max` of its cgroup
/// and those above, if that is less. `None` if the kernel does not tell.
#[must_use]
pub fn limit() -> Option<u64> {
    let group = std::fs::read("/proc/self/cgroup").ok();
    let group = group.and_then(|text| limit_of(Path::new(ROOT), &String::from_utf8_lossy(&text)));
    let node = crate::read(NODE).ok().and_then(|text| field(&text, "MemTotal:"));
    group.into_iter().chain(node).min()
}

/// The limits of memory of process `pid`: those of its cgroup and of the groups above, which a cgroup of version 2 may have two of, and
/// the memory of the node. Those that the kernel does not tell are left out.
#[must_use]
pub fn limits_of(pid: i32) -> Vec<Limit> {
    let cgroups = crate::read_of_task(pid, "cgroup").unwrap_or_default();
    let node = crate::read(NODE).ok().and_then(|text| limit_of_node(&text));
    limits_below(Path::new(ROOT), &cgroups).into_iter().chain(node).collect()
}

/// The memory of the node as a limit, by the text of `/proc/meminfo`.
fn limit_of_node(text: &str) -> Option<Limit> {
    let (bytes, available) = (field(text, "MemTotal:")?, field(text, "MemAvailable:")?);
    Some(Limit { file: NODE.into(), bytes, used: bytes.saturating_sub(available) })
}

/// A number of KiB in the text of `/proc/meminfo`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The tightest limit in bytes of the groups that `cgroups` names, the text of `/proc/PID/cgroup`, in trees below `root`.
fn limit_of(root: &Path, cgroups: &str) -> Option<u64> {
    groups(root, cgroups).iter().filter_map(|(folder, version)| number(folder, version.limit)).min()
}

/// Every limit of the groups that `cgroups` names.
fn limits_below(root: &Path, cgroups: &str) -> Vec<Limit> {
    let groups = groups(root, cgroups).into_iter();
    let limits = groups.flat_map(|(folder, version)| {
        let files = [Some(version.limit), version.soft_limit].into_iter().flatten();
        files.filter_map(move |file| {
            let bytes = number(&folder, file)?;
            Some(Limit { file: folder.join(file), bytes, used: used(&folder, version, bytes)? })
        })
    });
    limits.collect()
}

/// The folders of the groups that `cgroups` names, and of those above, whether there are such folders or not.
fn groups(root: &Path, cgroups: &str) -> Vec<(PathBuf, &'static Version)> {
    let lines = cgroups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        // version 2 has one tree, which beside trees of version 1 is at another place
        match controllers {
            "" => Some((vec![root.to_owned(), root.join("unified")], group, &VERSION_2)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((vec![root.join("memory")], group, &VERSION_1))
            }
            _ => None,
        }
    });
    let folders = lines.flat_map(|(trees, group, version)| {
        let below = move |tree: PathBuf| {
            let groups = Path::new(group).ancestors();
            groups.map(move |at| (tree.join(at.strip_prefix("/").unwrap_or(at)), version))
        };
        trees.into_iter().flat_map(below)
    });
    folders.collect()
}

/// The number in a file of a group; `None` for `max`, which is no number, and for numbers that mean the same.
fn number(folder: &Path, file: &str) -> Option<u64> {
    let number = std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()?;
    (number < NONE).then_some(number)
}

/// Bytes in use of a group that has this limit.
fn used(folder: &Path, version: &Version, limit: u64) -> Option<u64> {
    let all = number(folder, version.used)?;
    // `memory.stat` costs the kernel more than the other files, and little of the limit is in use
    if all <= limit / 8 {
        return Some(all);
    }
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let of_files = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        let is_reclaimable = RECLAIMABLE.contains(&name.strip_prefix(version.prefix)?);
        is_reclaimable.then(|| bytes.trim().parse::<u64>().ok())?
    });
    Some(all.saturating_sub(of_files.fold(0, u64::saturating_add)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes a file below a folder, with the folders that it needs.
    fn put(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("ours");
        std::fs::write(file, text).expect("ours");
    }

    #[test]
    fn the_tightest_limit_of_a_group_and_those_above_counts() {
        let root = tempfile::tempdir().expect("temp dir");
        let set = |file: &str, text: &str| put(root.path(), file, text);
        set("a/memory.max", "1000000\n");
        set("a/b/memory.max", "max\n");
        set("memory/job/memory.limit_in_bytes", "4096\n");
        set("memory/job/task/memory.limit_in_bytes", "9223372036854771712\n");
        set("unified/c/memory.max", "77");
        let limit = |text: &str| limit_of(root.path(), text);
        assert_eq!(limit("0::/a/b\n"), Some(1_000_000));
        assert_eq!(limit("0::/c\n"), Some(77), "beside version 1");
        assert_eq!(limit("9:cpu,memory:/job/task\n4:pids:/a\n0::/\n"), Some(4096));
        assert_eq!(limit("4:memory:/job/task\n0::/c\n"), Some(77));
        for text in ["0::/", "", "0", "0::", "4:pids:/job", "4:memory:/gone", "0::/../../etc"] {
            assert_eq!(limit(text), None, "{text}");
        }
    }

    #[test]
    fn the_node_has_memory_and_this_process_no_more() {
        let total = |text: &str| field(text, "MemTotal:");
        let node = total(&crate::read(NODE).expect("Linux has it")).expect("a number");
        assert!(node > 1 << 20);
        assert!(limit().expect("a limit") <= node);
        assert_eq!(total("MemTotal:       24683776 kB\n"), Some(24_683_776 << 10));
        assert_eq!(
            (total("MemTotal: many kB"), total("MemTotal: 99999999999999999999 kB"), total("")),
            (None, None, None)
        );
        let limits = limits_of(std::process::id().cast_signed());
        let of_node = limits.last().expect("the node's");
        assert_eq!((of_node.file.as_path(), of_node.bytes), (Path::new(NODE), node));
        assert!(limits.iter().all(|limit| limit.used > 0), "{limits:?}");
    }

    #[test]
    fn limits_come_with_what_is_used_of_them_without_memory_of_files() {
        let root = tempfile::tempdir().expect("temp dir");
        let set = |file: &str, text: &str| put(root.path(), file, text);
        set("memory/job/memory.limit_in_bytes", "800");
        set("memory/job/memory.usage_in_bytes", "700");
        set(
            "memory/job/memory.stat",
            "cache 1\ninactive_file 9\ntotal_inactive_file 250\ntotal_active_file 50\n",
        );
        set("memory/job/task/memory.limit_in_bytes", "9223372036854771712");
        set("memory/job/task/memory.usage_in_bytes", "300");
        set("a/memory.max", "1000");
        set("a/memory.high", "900");
        set("a/memory.current", "100");
        set("a/memory.stat", "inactive_file 60\n");
        set("b/memory.max", "1000");
        let limits = |text: &str| {
            let found = limits_below(root.path(), text);
            let short = |limit: Limit| {
                let file = limit.file.strip_prefix(root.path()).expect("below").to_owned();
                (file.to_string_lossy().into_owned(), limit.bytes, limit.used, limit.left())
            };
            found.into_iter().map(short).collect::<Vec<_>>()
        };
        assert_eq!(
            limits("4:memory:/job/task"),
            [("memory/job/memory.limit_in_bytes".into(), 800, 400, 400)]
        );
        // little is used: the files' part is not read
        let [max, high] = ["max", "high"].map(|name| format!("a/memory.{name}"));
        assert_eq!(limits("0::/a"), [(max, 1000, 100, 900), (high, 900, 100, 800)]);
        assert_eq!(limits("0::/b"), [], "without its use, a limit says nothing");
        assert_eq!(limits("0::/../../etc"), []);
        let node = limit_of_node("MemTotal: 100 kB\nMemAvailable: 40 kB\n").expect("both are there");
        assert_eq!((node.bytes, node.used), (100 << 10, 60 << 10));
        assert_eq!(limit_of_node("MemTotal: 100 kB\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = (limits_below(Path::new("/nonexistent"), &text), limit_of_node(&text));
        }
    }
}
