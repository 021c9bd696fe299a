// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads and timers of memory management, and swap.

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::processes;
use crate::remedy::{Change, Loss, Remedy};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

/// DAMON watches accesses to memory in threads `kdamond.N` (Linux 5.15; `Documentation/admin-guide/mm/damon`).
pub(super) fn kdamond(node: &Node) -> Checked {
    const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";
    let thread = processes(node)?.find(|p| p.name.starts_with("kdamond"));
    let mut changes = Vec::new();
    for module in ["damon_reclaim", "damon_lru_sort", "damon_stat"] {
        let file = format!("/sys/module/{module}/parameters/enabled");
        if let Ok(now) = node.root.value(&file)
            && now == "Y"
        {
            changes.push(Change::write(&file, &now, "N"));
        }
    }
    for number in node.root.numbers(ADMIN) {
        let file = format!("{ADMIN}/{number}/state");
        if let Ok(now) = node.root.value(&file)
            && now == "on"
        {
            changes.push(Change::write(&file, &now, "off"));
        }
    }
    let seen = match (&thread, changes.first()) {
        (Some(thread), _) => (thread.file("stat"), thread.name.clone()),
        (None, Some(Change::Write { files, .. })) if !files.is_empty() => {
            (files[0].file.clone(), files[0].value.clone())
        }
        _ => return Outcome::passed("/proc/*/stat", "no thread kdamond"),
    };
    let finding = Finding::new(Level::Medium, "DAMON samples the memory of the node (kdamond).")
        .seen(seen.0, seen.1)
        .touches(Touches::all([Pattern::Begins("thread:kdamond".into())]));
    if changes.is_empty() {
        return finding
            .advice("Nothing in /sys says who started it: look for a program that uses DAMON.")
            .into();
    }
    finding
        .remedy(Remedy::new(changes, "what DAMON did ends: statistics, or early reclaim of cold memory"))
        .into()
}

/// khugepaged makes huge pages of small ones in the background (`Documentation/admin-guide/mm/transhuge.rst`).
pub(super) fn khugepaged(node: &Node) -> Checked {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag";
    if let Some((file, value)) = super::pages::off(node)? {
        return Outcome::passed(file, value);
    }
    let now = node.root.number(FILE)?.to_string();
    if now == "0" {
        return Outcome::passed(FILE, now);
    }
    Finding::new(Level::Low, "khugepaged scans memory and moves pages.")
        .seen(FILE, &now)
        .remedy(
            Remedy::write(FILE, &now, "0", "memory that was not huge when it was first touched stays so")
                .keep("a line in /etc/tmpfiles.d"),
        )
        .touches(Touches::all([Pattern::thread("khugepaged")]))
        .into()
}

/// KSM compares and merges pages (`Documentation/admin-guide/mm/ksm.rst`).
pub(super) fn ksm(node: &Node) -> Checked {
    const FILE: &str = "/sys/kernel/mm/ksm/run";
    let now = node.root.one_of(FILE, &["0", "1", "2"])?;
    if now != "1" {
        return Outcome::passed(FILE, now);
    }
    Finding::new(Level::Medium, "KSM scans memory for equal pages (ksmd).")
        .seen(FILE, &now)
        .remedy(
            Remedy::write(
                FILE,
                &now,
                "0",
                "pages that were merged stay merged; virtual machines share no new ones",
            )
            .keep("systemctl disable --now ksm ksmtuned, where they are installed"),
        )
        .touches(Touches::all([Pattern::thread("ksmd")]))
        .into()
}

/// Every CPU folds its counters of memory into the node's, in a worker, at this interval (`mm/vmstat.c`).
pub(super) fn stat_interval(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/vm/stat_interval";
    /// As in TuneD's profiles for latency.
    const WANTED: i64 = 10;
    let now = node.root.number(FILE)?;
    if now >= WANTED {
        return Outcome::passed(FILE, now.to_string());
    }
    Finding::new(Level::Low, format!("Each CPU updates memory statistics every {now} s, in a kernel worker."))
        .seen(FILE, now.to_string())
        .remedy(Remedy::sysctl(FILE, &now.to_string(), &WANTED.to_string(), "/proc/vmstat is up to 10 s old"))
        .touches(Touches::part_of(
            ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
                .map(|digit| Pattern::Begins(format!("thread:kworker/{digit}"))),
        ))
        .into()
}

/// The flusher threads wake up at this interval (`Documentation/admin-guide/sysctl/vm.rst`).
pub(super) fn writeback_interval(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/vm/dirty_writeback_centisecs";
    const WANTED: i64 = 1500;
    let now = node.root.number(FILE)?;
    if now == 0 || now >= WANTED {
        return Outcome::passed(FILE, now.to_string());
    }
    Finding::new(Level::Note, format!("Dirty pages are written back every {} s.", now as f64 / 100.0))
        .seen(FILE, now.to_string())
        .remedy(Remedy::sysctl(
            FILE,
            &now.to_string(),
            &WANTED.to_string(),
            "a crash loses up to 15 s more of what was written",
        ))
        .touches(Touches::part_of([Pattern::Begins("thread:kworker/u".into())]))
        .into()
}

/// kcompactd moves pages before anyone needs large ones (Linux 5.9).
pub(super) fn compaction(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/vm/compaction_proactiveness";
    let now = node.root.number(FILE)?;
    if now == 0 {
        return Outcome::passed(FILE, "0");
    }
    Finding::new(Level::Low, "Memory is compacted in the background (kcompactd).")
        .seen(FILE, now.to_string())
        .remedy(Remedy::sysctl(FILE, &now.to_string(), "0", "large pages are found less often, or later"))
        .touches(Touches::part_of([Pattern::Begins("thread:kcompactd".into())]))
        .into()
}

/// The kernel unmaps pages to see which node uses them: faults of the job (`numa_balancing`).
pub(super) fn numa_balancing(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/kernel/numa_balancing";
    const NODES: &str = "/sys/devices/system/node";
    let now = node.root.number(FILE)?.to_string();
    if now == "0" {
        return Outcome::passed(FILE, now);
    }
    let nodes = node.root.list(NODES)?.into_iter().filter(|name| {
        name.strip_prefix("node").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    });
    match nodes.count() {
        0 => return Err(Unread::Missing(format!("{NODES}/node*"))),
        1 => return Outcome::passed(NODES, "one memory node: nothing to balance"),
        _ => {}
    }
    Finding::new(Level::Medium, "NUMA balancing makes pages of the job fault, and moves them.")
        .seen(FILE, &now)
        .remedy(Remedy::sysctl(
            FILE,
            &now,
            "0",
            "memory that a job touched first from the wrong node stays there",
        ))
        .touches(Touches::part_of([Pattern::Is("fault:page".into())]))
        .into()
}

/// An allocation reclaims memory of its own node before it takes another's.
pub(super) fn zone_reclaim(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/vm/zone_reclaim_mode";
    let now = node.root.number(FILE)?.to_string();
    if now == "0" {
        return Outcome::passed(FILE, now);
    }
    Finding::new(Level::Low, "Allocations of the job reclaim memory although another node has some free.")
        .seen(FILE, &now)
        .remedy(Remedy::sysctl(FILE, &now, "0", "more memory of other nodes is used"))
        .touches(Touches::part_of([Pattern::Is("fault:page".into())]))
        .into()
}

/// Memory of a job may be on a disk.
pub(super) fn swap(node: &Node) -> Checked {
    const FILE: &str = "/proc/swaps";
    let text = node.root.read(FILE)?;
    let mut devices = Vec::new();
    let mut used_kib = 0u64;
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    if !header.starts_with("Filename") {
        return Err(Unread::value(FILE, header));
    }
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, _, _, used, priority] = words[..] else { return Err(Unread::value(FILE, line)) };
        used_kib = used_kib.saturating_add(used.parse().map_err(|_| Unread::value(FILE, line))?);
        devices.push((unescaped(name), priority));
    }
    if devices.is_empty() {
        return Outcome::passed(FILE, "no swap");
    }
    let level = if used_kib > 0 { Level::Medium } else { Level::Low };
    let change = |(name, priority): &(String, &str)| match priority.parse::<u32>() {
        Ok(p) => Change::command(&["swapoff", name], &["swapon", "-p", &p.to_string(), name]),
        // negative priorities are the kernel's choice
        Err(_) => Change::command(&["swapoff", name], &["swapon", name]),
    };
    Finding::new(level, format!("Memory of a job may be swapped out ({used_kib} KiB are in use)."))
        .seen(FILE, devices[0].0.as_str())
        .remedy(
            Remedy::new(devices.iter().map(change), "the kernel kills a process if memory runs out")
                .loses(Loss::Memory)
                .keep("remove the swap line from /etc/fstab, or `systemctl mask` its unit"),
        )
        .touches(Touches::part_of([
            Pattern::Begins("thread:kswapd".into()),
            Pattern::Is("fault:page".into()),
        ]))
        .into()
}

/// Blanks in names of `/proc/swaps` are octal (`seq_file_path`).
fn unescaped(name: &str) -> String {
    let mut out = name.to_owned();
    for (octal, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(octal, plain);
    }
    out
}
