// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions are isolated: whatever a node's kernel does, it reaches nothing that a node of another partition can reach.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use colony_node::task;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

use crate::control::{Machine, is_named};

/// Memory, sockets, pipes, doorbells and files that a process can write to, and that another process may have, too.
fn reach(pid: i32) -> BTreeSet<String> {
    let mut reach = BTreeSet::new();
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    for entry in folder.filter_map(Result::ok) {
        let number = entry.file_name().to_string_lossy().into_owned();
        let (Ok(link), Ok(info)) = (
            std::fs::read_link(entry.path()),
            std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")),
        ) else {
            continue;
        };
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.split_whitespace().next().map(str::to_owned))
        };
        let flags = field("flags:").and_then(|flags| u32::from_str_radix(&flags, 8).ok()).unwrap_or(0);
        let is_writable = flags & 0o3 != 0;
        let link = link.to_string_lossy().into_owned();
        if let Some(bell) = field("eventfd-id:") {
            reach.insert(format!("doorbell {bell}"));
        } else if link.starts_with("anon_inode:") || link.starts_with("/dev/") {
            // of this process alone, or of the host
        } else if let Some(meta) = std::fs::metadata(entry.path()).ok().filter(|_| is_writable) {
            reach.insert(format!("{} {}", meta.dev(), meta.ino()));
        }
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let shared = maps.lines().filter(|line| line.split_whitespace().nth(1) == Some("rw-s"));
    let name = |line: &str| {
        let inode = line.split_whitespace().nth(4)?.to_owned();
        (inode != "0").then(|| format!("memory {inode}"))
    };
    reach.extend(shared.filter_map(name));
    reach
}

/// Files in memory of a process that are not sealed. If an emulator shortened one, every process that has mapped it would die of `SIGBUS`.
fn unsealed(pid: i32) -> Vec<String> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let is_unsealed = |path: &std::path::PathBuf| {
        let file = std::fs::File::open(path).expect("it is open there");
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).expect("a file in memory");
        !SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK)
    };
    let in_memory = folder.filter_map(|entry| Some(entry.ok()?.path())).filter_map(|path| {
        let link = std::fs::read_link(&path).ok()?.to_string_lossy().into_owned();
        link.starts_with("/memfd:").then_some((path, link))
    });
    in_memory.filter(|(path, _)| is_unsealed(path)).map(|(_, link)| link).collect()
}

#[test]
fn nodes_of_two_partitions_share_no_memory_no_doorbell_and_no_socket() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x2x2", "--unpartitioned"]);
    for name in ["a", "b"] {
        machine.done(&["partition", "create", "--name", name, "--shape", "2x2x2"]);
        machine.done(&["partition", "boot", name]);
    }
    let busybox = machine.busybox().to_owned();
    // its message memory and its I/O node are there while a job runs
    let jobs = ["a", "b"].map(|name| {
        let words = ["job", "submit", "--partition", name, "--", &busybox, "sleep", "1000"];
        machine.done(&words).trim().to_owned()
    });
    machine.wait("the jobs run", || jobs.iter().all(|id| machine.job(id)["state"] == "running"));
    machine.wait("on all nodes", || {
        ["a", "b"].iter().all(|name| {
            let nodes = machine.json(&["machine", "nodes", name]);
            nodes
                .as_array()
                .is_some_and(|all| all.len() == 8 && all.iter().all(|node| node["state"] == "busy"))
        })
    });
    let status = machine.json(&["machine", "status"]);
    for partition in status["partitions"].as_array().expect("a list") {
        let owner = partition["pid"].as_i64().expect("a process") as i32;
        let emulators = task::tree(owner).into_iter().filter(|pid| is_named(*pid, "qemu-system-x86_64"));
        assert_eq!(emulators.flat_map(unsealed).collect::<Vec<_>>(), [""; 0]);
    }
    let nodes: Vec<Vec<BTreeSet<String>>> = status["partitions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|partition| {
            let owner = partition["pid"].as_i64().expect("a process") as i32;
            task::tree(owner)
                .into_iter()
                .filter(|pid| is_named(*pid, "qemu-system-x86_64"))
                .map(reach)
                .collect()
        })
        .collect();
    assert_eq!(nodes.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8]);
    let of = |partition: &[BTreeSet<String>]| partition.iter().flatten().cloned().collect::<BTreeSet<_>>();
    let (a, b) = (of(&nodes[0]), of(&nodes[1]));
    let both: Vec<&String> = a.intersection(&b).collect();
    assert!(both.is_empty(), "{both:?}");
    // the look is worth something: nodes of one partition do share their messages
    let within: BTreeSet<&String> = nodes[0][0].intersection(&nodes[0][1]).collect();
    assert!(within.iter().any(|what| what.starts_with("memory")), "{:?}", nodes[0]);
    assert!(a.iter().any(|what| what.starts_with("doorbell")), "{a:?}");
}
