// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages.

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::Remedy;
use crate::touches::{Pattern, Touches};

pub(super) const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const KEEP: &str = "transparent_hugepage=madvise on the kernel command line, or a line in /etc/tmpfiles.d";

/// Without transparent huge pages, every 4 KiB of a job is a fault and an entry of the TLB.
pub(super) fn thp(node: &Node) -> Checked {
    let now = node.chosen(ENABLED)?;
    if now != "never" {
        return Outcome::passed(ENABLED, now);
    }
    Finding::new(Level::Low, "Transparent huge pages are off: a job has more page faults and TLB misses.")
        .seen(ENABLED, &now)
        .remedy(
            Remedy::write(ENABLED, &now, "madvise", "programs that ask for huge pages use more memory")
                .keep(KEEP),
        )
        .touches(Touches::part_of([Pattern::Is("fault:page".into())]))
        .into()
}

/// With `always`, a fault of the job compacts memory first: milliseconds.
pub(super) fn defrag(node: &Node) -> Checked {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/defrag";
    let enabled = node.chosen(ENABLED)?;
    if enabled == "never" {
        return Outcome::passed(ENABLED, enabled);
    }
    let now = node.chosen(FILE)?;
    if now != "always" {
        return Outcome::passed(FILE, now);
    }
    Finding::new(Level::Medium, "A page fault may compact memory to get a huge page.")
        .seen(FILE, &now)
        .remedy(
            Remedy::write(FILE, &now, "madvise", "programs that do not ask get fewer huge pages")
                .keep("a line in /etc/tmpfiles.d"),
        )
        .touches(Touches::part_of([Pattern::Is("fault:page".into())]))
        .into()
}

/// Folios between 8 KiB and 1 MiB (Linux 6.8).
pub(super) fn mthp(node: &Node) -> Checked {
    const DIR: &str = "/sys/kernel/mm/transparent_hugepage";
    let sizes = node.root.list(DIR)?;
    let sizes: Vec<String> = sizes.into_iter().filter(|n| n.starts_with("hugepages-")).collect();
    if sizes.is_empty() {
        let version = node.release().unwrap_or_else(|| "unknown".into());
        return Outcome::undecided(format!(
            "{DIR}/hugepages-* is not there: mTHP needs Linux 6.8 (this is {version})"
        ));
    }
    let file = format!("{DIR}/hugepages-64kB/enabled");
    let now = node.chosen(&file)?;
    if now != "never" {
        return Outcome::passed(file, now);
    }
    Finding::new(Level::Note, "Pages of 64 KiB are off: less than huge pages, but easier to get.")
        .seen(&file, &now)
        .remedy(
            Remedy::write(&file, &now, "madvise", "programs that ask for large pages use more memory")
                .keep("thp_anon=64K:madvise on the kernel command line (Linux 6.11)"),
        )
        .touches(Touches::part_of([Pattern::Is("fault:page".into())]))
        .into()
}

/// Huge pages that are reserved for programs that map them.
pub(super) fn reserved(node: &Node) -> Checked {
    const FILE: &str = "/proc/meminfo";
    let text = node.root.read(FILE)?;
    let of = |name: &str| -> Option<u64> {
        text.lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok())
    };
    let (Some(total), Some(free)) = (of("HugePages_Total"), of("HugePages_Free")) else {
        return Outcome::undecided(
            "/proc/meminfo has no HugePages_Total: this kernel was built without CONFIG_HUGETLBFS",
        );
    };
    let seen = format!("HugePages_Free: {free} of {total}");
    if free > 0 {
        return Outcome::passed(FILE, seen);
    }
    Finding::new(Level::Note, "No huge page is free for programs that map huge pages (MAP_HUGETLB).")
        .seen(FILE, seen)
        .advice("Programs that use transparent huge pages need none. Reserve some at boot with hugepages=N.")
        .into()
}
