// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of CPUs as the kernel's command line has them (`lib/bitmap-str.c`, `bitmap_parselist`): `1-3`, `4-N`, `all`, and
//! `0-15:2/4` (the first 2 of each 4). `isolcpus=` has flags before its list (`kernel/sched/isolation.c`).

use std::fmt;

use crate::NodeError;
use crate::cpu::CpuSet;

/// Reads a list. `last` is the last CPU that the node may have, which the list calls `N`. An empty list names no CPU.
///
/// # Errors
/// [`NodeError::CpuList`] for a list that the kernel refuses.
pub fn parse(text: &str, last: usize) -> Result<CpuSet, NodeError> {
    let error = |reason| NodeError::CpuList { text: text.chars().take(80).collect(), reason };
    let parts = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty());
    let regions: Result<Vec<CpuSet>, _> = parts.map(|part| parse_region(part, last).map_err(error)).collect();
    Ok(regions?.iter().flat_map(CpuSet::iter).collect())
}

/// Reads a part between commas.
fn parse_region(text: &str, last: usize) -> Result<CpuSet, &'static str> {
    let (range, pattern) = match text.split_once(':') {
        Some((range, pattern)) => (range, Some(pattern)),
        None => (text, None),
    };
    let (first, end) = match range.split_once('-') {
        _ if range.eq_ignore_ascii_case("all") => (0, last),
        Some((first, end)) => (parse_number(first, last)?, parse_number(end, last)?),
        None if pattern.is_some() => return Err("a group needs a range before it"),
        None => (parse_number(range, last)?, parse_number(range, last)?),
    };
    if end < first {
        return Err("a range runs backwards");
    }
    let (used, group) = match pattern.map(|p| p.split_once('/').ok_or("a group is USED/SIZE")).transpose()? {
        Some((used, group)) => (parse_number(used, last)?, parse_number(group, last)?),
        None => (1, 1),
    };
    if group == 0 || used > group {
        return Err("a group has fewer CPUs than are used of it");
    }
    Ok((first..=end).filter(|cpu| (cpu - first) % group < used).collect())
}

fn parse_number(text: &str, last: usize) -> Result<usize, &'static str> {
    if text == "N" {
        return Ok(last);
    }
    // `parse` would take a sign, too
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number).ok_or("a part of it is no number")?;
    if number < CpuSet::LIMIT { Ok(number) } else { Err("a CPU number is too large") }
}

/// The value of `isolcpus=`: flags, then a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlaggedList {
    /// Words before the list, also those that this kernel may not know.
    pub flags: Vec<String>,
    /// The CPUs.
    pub cpus: CpuSet,
}

impl FlaggedList {
    /// Reads the value. The kernel takes every word that begins with a letter for a flag, until one does not.
    ///
    /// # Errors
    /// As [`parse`], and for flags that the kernel refuses.
    pub fn parse(text: &str, last: usize) -> Result<Self, NodeError> {
        let mut rest = text.trim();
        let mut flags = Vec::new();
        while rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let (flag, behind) = rest.split_once(',').unwrap_or((rest, ""));
            if !flag.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') {
                let text = text.chars().take(80).collect();
                return Err(NodeError::CpuList { text, reason: "it begins with neither a flag nor a CPU" });
            }
            flags.push(flag.to_owned());
            rest = behind;
        }
        Ok(Self { flags, cpus: parse(rest, last)? })
    }

    /// Returns `true` if the flag is there.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }
}

impl fmt::Display for FlaggedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for flag in &self.flags {
            write!(f, "{flag},")?;
        }
        write!(f, "{}", self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_as_the_kernel_reads_them() {
        for (text, cpus) in [
            ("4-N", "4-15"),
            ("N", "15"),
            ("all", "0-15"),
            ("ALL:1/2", "0,2,4,6,8,10,12,14"),
            ("0-7:2/4,9", "0-1,4-5,9"),
            ("0-5:2/4", "0-1,4-5"),
            ("1,,3", "1,3"),
            ("1-3 5", "1-3,5"),
            ("", ""),
        ] {
            assert_eq!(parse(text, 15).expect(text).to_string(), cpus, "{text}");
        }
        for text in ["a", "3-1", "1-", "-2", "+1", "0:1/2", "0-3:1", "0-3:3/2", "0-3:0/0", "99999", "n"] {
            assert!(parse(text, 15).is_err(), "{text}");
        }
    }

    #[test]
    fn words_before_the_cpus_are_flags() {
        let read = |text| FlaggedList::parse(text, 15).expect(text);
        assert_eq!(read("managed_irq,domain,4-N").to_string(), "managed_irq,domain,4-15");
        assert_eq!(read("2,N").cpus.to_string(), "2,15");
        assert!(read("nohz,2").has("nohz") && read("later_kernel,2").has("later_kernel"));
        // here the kernel takes the last CPU's name for a flag
        assert!(read("N").cpus.is_empty());
        for text in ["N-3", "nohz2,3", "domain,4-x"] {
            assert!(FlaggedList::parse(text, 15).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-zA-Z0-9,:/ _-]{0,30}") {
            let _ = FlaggedList::parse(&text, 15);
        }

        #[test]
        fn a_plain_list_reads_as_elsewhere(cpus in prop::collection::btree_set(0usize..1000, 0..30)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(parse(&set.to_string(), 1023).expect("a list"), set);
        }
    }
}
