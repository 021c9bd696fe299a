// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a process may have.

use std::path::{Path, PathBuf};

/// Where the trees of cgroups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// Limits of version 1 from here on mean none: the kernel writes the largest multiple of a page.
const NONE: u64 = 1 << 60;

/// Bytes of memory that this process and its children may have: those of the node, or of the tightest `memory.max` of its cgroup
/// and those above, if that is less. `None` if the kernel does not tell.
#[must_use]
pub fn limit() -> Option<u64> {
    let group = std::fs::read("/proc/self/cgroup").ok();
    let group = group.and_then(|text| limit_of(Path::new(ROOT), &String::from_utf8_lossy(&text)));
    let node = crate::read("/proc/meminfo").ok().and_then(|text| total(&text));
    group.into_iter().chain(node).min()
}

/// Bytes of memory of the node by the text of `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The tightest limit in bytes of the groups that `cgroups` names, the text of `/proc/PID/cgroup`, in trees below `root`.
fn limit_of(root: &Path, cgroups: &str) -> Option<u64> {
    let limits = cgroups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        // version 2 has one tree, which beside trees of version 1 is at another place
        match controllers {
            "" => [root.to_owned(), root.join("unified")]
                .iter()
                .find_map(|root| tightest(root, group, "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                tightest(&root.join("memory"), group, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// The tightest limit of a group and those above.
fn tightest(root: &Path, group: &str, file: &str) -> Option<u64> {
    let limit = |at: &Path| {
        let folder: PathBuf = root.join(at.strip_prefix("/").unwrap_or(at));
        // `max` is no number
        let limit = std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()?;
        (limit < NONE).then_some(limit)
    };
    Path::new(group).ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_of_a_group_and_those_above_counts() {
        let root = tempfile::tempdir().expect("temp dir");
        let set = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("ours");
            std::fs::write(file, text).expect("ours");
        };
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
        let node = total(&crate::read("/proc/meminfo").expect("Linux has it")).expect("a number");
        assert!(node > 1 << 20);
        assert!(limit().expect("a limit") <= node);
        assert_eq!(total("MemTotal:       24683776 kB\n"), Some(24_683_776 << 10));
        assert_eq!(
            (total("MemTotal: many kB"), total("MemTotal: 99999999999999999999 kB"), total("")),
            (None, None, None)
        );
    }
}
