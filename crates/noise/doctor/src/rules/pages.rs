// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages.

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::Remedy;
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

const DIR: &str = "/sys/kernel/mm/transparent_hugepage";
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const KEEP: &str = "transparent_hugepage=madvise on the kernel command line, or a line in /etc/tmpfiles.d";
/// The value of a size that follows the file for all sizes.
const INHERIT: &str = "inherit";
/// Pages that huge ones are made of, where no file says it (x86, and Arm with base pages of 4 KiB).
const USUAL_HUGE: u64 = 2 << 20;

/// The setting of one size of pages.
struct Size {
    kib: u64,
    /// The file that decides, and its value: that of the size, or if it inherits the one for all sizes.
    file: String,
    value: String,
}

impl Size {
    fn is_off(&self) -> bool {
        self.value == "never"
    }
}

/// The sizes that have files of their own (Linux 6.8), the smallest first. Each overrides the file for all sizes
/// (`Documentation/admin-guide/mm/transhuge.rst`).
fn sizes(node: &Node) -> Result<Vec<Size>, Unread> {
    let mut found = Vec::new();
    let names = match node.root.list(DIR) {
        // the caller misses the file for all sizes
        Err(e) if e.is_missing() => Vec::new(),
        other => other?,
    };
    for name in names {
        let kib = name.strip_prefix("hugepages-").and_then(|n| n.strip_suffix("kB")?.parse().ok());
        let file = format!("{DIR}/{name}/enabled");
        // a size may have files for shared memory only
        if let Some(kib) = kib
            && node.root.exists(&file)
        {
            let value = node.chosen(&file)?;
            found.push(match value.as_str() {
                INHERIT => Size { kib, file: ENABLED.into(), value: node.chosen(ENABLED)? },
                _ => Size { kib, file, value },
            });
        }
    }
    found.sort_by_key(|size| size.kib);
    Ok(found)
}

/// The size of a huge page (`PMD_SIZE`), KiB.
fn huge_kib(node: &Node) -> Result<u64, Unread> {
    let file = format!("{DIR}/hpage_pmd_size");
    match node.root.number(&file) {
        Ok(bytes) => {
            u64::try_from(bytes).map(|b| b >> 10).map_err(|_| Unread::value(&file, &bytes.to_string()))
        }
        // Linux 4.16
        Err(e) if e.is_missing() => Ok(USUAL_HUGE >> 10),
        Err(e) => Err(e),
    }
}

/// The file that turns transparent huge pages of every size off, and its value; `None` if a size is on.
pub(super) fn off(node: &Node) -> Result<Option<(String, String)>, Unread> {
    let sizes = sizes(node)?;
    if sizes.iter().any(|size| !size.is_off()) {
        return Ok(None);
    }
    if let Some(size) = sizes.first() {
        return Ok(Some((size.file.clone(), size.value.clone())));
    }
    let all = node.chosen(ENABLED)?;
    Ok((all == "never").then(|| (ENABLED.into(), all)))
}

/// Without transparent huge pages, every 4 KiB of a job is a fault and an entry of the TLB.
pub(super) fn thp(node: &Node) -> Checked {
    let all = node.chosen(ENABLED)?;
    let huge = huge_kib(node)?;
    let size = sizes(node)?.into_iter().find(|size| size.kib == huge);
    let (file, now) = size.map_or_else(|| (ENABLED.to_owned(), all.clone()), |size| (size.file, size.value));
    if now != "never" {
        return Outcome::passed(file, now);
    }
    // a size that is off by itself follows the file for all sizes again
    let (wanted, keep) = match file == ENABLED || all == "never" {
        true => ("madvise", KEEP),
        false => (INHERIT, "a line in /etc/tmpfiles.d"),
    };
    let finding = Finding::new(
        Level::Low,
        "Transparent huge pages are off: a job has more page faults and TLB misses.",
    )
    .seen(&file, &now);
    let finding = if file == ENABLED { finding } else { finding.seen(ENABLED, &all) };
    finding
        .remedy(
            Remedy::write(&file, &now, wanted, "programs that ask for huge pages use more memory").keep(keep),
        )
        .touches(Touches::part_of([Pattern::Is("fault:page".into())]))
        .into()
}

/// With `always`, a fault of the job compacts memory first: milliseconds.
pub(super) fn defrag(node: &Node) -> Checked {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/defrag";
    if let Some((file, value)) = off(node)? {
        return Outcome::passed(file, value);
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

/// Folios between a base page and a huge one (Linux 6.8).
pub(super) fn mthp(node: &Node) -> Checked {
    const WANTED_KIB: u64 = 64;
    let huge = huge_kib(node)?;
    let sizes: Vec<Size> = sizes(node)?.into_iter().filter(|size| size.kib < huge).collect();
    if let Some(on) = sizes.iter().find(|size| !size.is_off()) {
        return Outcome::passed(&on.file, format!("{} ({} KiB)", on.value, on.kib));
    }
    let Some(size) = sizes.iter().find(|size| size.kib == WANTED_KIB).or(sizes.first()) else {
        let reason = match (node.version(), node.release()) {
            (Some(version), Some(release)) if version < (6, 8) => {
                format!("folios between base and huge pages (mTHP) need Linux 6.8, and this is {release}")
            }
            (Some(_), _) => "the kernel offers no folios between base and huge pages (mTHP)".to_owned(),
            (None, _) => "folios between base and huge pages (mTHP) need Linux 6.8".to_owned(),
        };
        return Outcome::undecided(node.why_missing(&format!("{DIR}/hugepages-*"), &reason));
    };
    let file = format!("{DIR}/hugepages-{}kB/enabled", size.kib);
    let now = node.chosen(&file)?;
    let title = format!("Pages of {} KiB are off: less than huge pages, but easier to get.", size.kib);
    Finding::new(Level::Note, title)
        .seen(&size.file, &size.value)
        .remedy(
            Remedy::write(&file, &now, "madvise", "programs that ask for large pages use more memory")
                .keep(format!("thp_anon={}K:madvise on the kernel command line (Linux 6.11)", size.kib)),
        )
        .touches(Touches::part_of([Pattern::Is("fault:page".into())]))
        .into()
}

/// Huge pages of one size.
struct Pool {
    name: String,
    total: u64,
    free: u64,
    /// Pages that are free, but that the kernel has promised to mappings.
    promised: u64,
}

impl Pool {
    fn available(&self) -> u64 {
        self.free.saturating_sub(self.promised)
    }

    fn seen(&self) -> String {
        format!("{}: {} of {} free, {} of them promised", self.name, self.free, self.total, self.promised)
    }
}

/// The pools of all sizes, by the kernel's files (`Documentation/admin-guide/mm/hugetlbpage.rst`); none if they are not there.
fn pools(node: &Node) -> Result<Vec<Pool>, Unread> {
    const POOLS: &str = "/sys/kernel/mm/hugepages";
    let names = match node.root.list(POOLS) {
        Err(e) if e.is_missing() => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for name in names.into_iter().filter(|n| n.starts_with("hugepages-")) {
        let count = |file: &str| {
            let file = format!("{POOLS}/{name}/{file}");
            let count = node.root.number(&file)?;
            u64::try_from(count).map_err(|_| Unread::value(&file, &count.to_string()))
        };
        let (total, free, promised) =
            (count("nr_hugepages")?, count("free_hugepages")?, count("resv_hugepages")?);
        found.push(Pool { name, total, free, promised });
    }
    Ok(found)
}

/// Huge pages that are reserved for programs that map them.
pub(super) fn reserved(node: &Node) -> Checked {
    const FILE: &str = "/proc/meminfo";
    let mut pools = pools(node)?;
    let mut file = "/sys/kernel/mm/hugepages";
    if pools.is_empty() {
        // this file has the default size only
        file = FILE;
        let text = node.root.read(FILE)?;
        let of = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let (Some(total), Some(free)) = (of("HugePages_Total"), of("HugePages_Free")) else {
            return Outcome::undecided(
                "/proc/meminfo has no HugePages_Total: this kernel was built without CONFIG_HUGETLBFS",
            );
        };
        let promised = of("HugePages_Rsvd").unwrap_or(0);
        let pool = Pool { name: "HugePages".into(), total, free, promised };
        let has_other_sizes = match (of("Hugetlb"), of("Hugepagesize")) {
            (Some(all_kib), Some(kib)) => all_kib > total.saturating_mul(kib),
            _ => false,
        };
        if pool.available() == 0 && has_other_sizes {
            return Outcome::undecided(
                "/sys/kernel/mm/hugepages is not there: /proc/meminfo has reserved pages of another size, and not how many are free",
            );
        }
        pools.push(pool);
    }
    if let Some(pool) = pools.iter().find(|pool| pool.available() > 0) {
        return Outcome::passed(file, pool.seen());
    }
    let seen: Vec<String> = pools.iter().map(Pool::seen).collect();
    Finding::new(Level::Note, "No huge page is free for programs that map huge pages (MAP_HUGETLB).")
        .seen(file, seen.join("; "))
        .advice("Programs that use transparent huge pages need none. Reserve some at boot with hugepages=N.")
        .into()
}
