// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page faults of the node for which no large page was free: the kernel gave base pages.

use crate::policy::PagePolicy;

const OF_64_KIB: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/anon_fault_fallback";
const VMSTAT: &str = "/proc/vmstat";
const OF_HUGE: &str = "thp_fault_fallback";

/// The faults so far that got no page of the policy's size, of all programs of the node; `None` if the kernel does not count them.
pub(crate) fn so_far(policy: PagePolicy) -> Option<u64> {
    match policy {
        PagePolicy::Huge => field(&std::fs::read_to_string(VMSTAT).ok()?, OF_HUGE),
        PagePolicy::Medium => std::fs::read_to_string(OF_64_KIB).ok()?.trim().parse().ok(),
        PagePolicy::Base => None,
    }
}

/// What a report says of the faults in a run.
pub(crate) fn warning(policy: PagePolicy, before: Option<u64>, after: Option<u64>) -> Option<String> {
    let faults = after?.checked_sub(before?).filter(|&n| n > 0)?;
    let (pages, counter) = match policy {
        PagePolicy::Huge => ("huge pages", format!("{OF_HUGE} in {VMSTAT}")),
        _ => ("pages of 64 KiB", OF_64_KIB.to_owned()),
    };
    Some(format!(
        "{pages} ran out on this node: {faults} page faults of its programs got base pages ({counter}); as root: \
         echo 1 > /proc/sys/vm/compact_memory makes room where memory is free but scattered"
    ))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.find(|(field, _)| *field == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_that_ran_out_are_counted_and_named() {
        let text = "thp_fault_alloc 5\nthp_fault_fallback 12\nthp_fault_fallback_charge 3\n";
        assert_eq!(field(text, OF_HUGE), Some(12));
        assert_eq!(field(text, "thp_split_page"), None);
        let warning = |before, after| warning(PagePolicy::Huge, before, after);
        assert!(
            warning(Some(10), Some(12)).is_some_and(|w| w.contains("ran out") && w.contains("2 page faults"))
        );
        assert_eq!(warning(Some(12), Some(12)), None);
        // counters of another boot, or none
        assert_eq!(warning(Some(12), Some(3)), None);
        assert_eq!(warning(None, Some(3)), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = field(&text, OF_HUGE);
        }
    }
}
