// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mappings of a process and their page sizes, from `/proc/PID/smaps`.

use std::ops::Range;

/// A mapping of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Its addresses.
    pub(crate) range: Range<u64>,
    /// Protection, as `mprotect` takes it.
    pub(crate) protection: i32,
    /// True if changes are shared with other processes.
    pub(crate) shared: bool,
    /// Place of its first byte in its file.
    pub(crate) offset: u64,
    /// File or name; empty for memory without one.
    pub(crate) name: String,
    /// Bytes in memory.
    pub(crate) resident: u64,
    /// False if the kernel gives it base pages, whatever the program asks for. True on kernels that do not tell (before 5.0).
    pub(crate) may_be_large: bool,
    /// Bytes in memory that one entry of the middle page table maps, or that hugetlbfs holds.
    pub(crate) huge: u64,
}

impl Mapping {
    /// Bytes that large pages could still take: those of memory that can be written and has not been touched.
    pub(crate) fn untouched(&self) -> u64 {
        let is_open =
            self.may_be_large && self.protection & libc::PROT_WRITE != 0 && !self.name.starts_with('/');
        let bytes = self.range.end.saturating_sub(self.range.start);
        if is_open { bytes.saturating_sub(self.resident) } else { 0 }
    }
}

/// The mappings in the text of `smaps`. Lines in another form are left out.
#[must_use]
pub(crate) fn parse(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) = header(line) {
            mappings.push(mapping);
        } else if let (Some(mapping), Some(value)) = (mappings.last_mut(), line.strip_prefix("THPeligible:"))
        {
            mapping.may_be_large = value.trim() != "0";
        } else if let (Some(mapping), Some((field, bytes))) = (mappings.last_mut(), amount(line)) {
            match field {
                "Rss" => add(&mut mapping.resident, bytes),
                "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => add(&mut mapping.huge, bytes),
                // not in Rss
                "Shared_Hugetlb" | "Private_Hugetlb" => {
                    add(&mut mapping.resident, bytes);
                    add(&mut mapping.huge, bytes);
                }
                _ => {}
            }
        }
    }
    mappings
}

fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE NAME`.
fn header(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|n| u64::from_str_radix(n, 16).ok());
    let permissions = words.next()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok();
    // device and inode; the name after them may hold spaces
    words.nth(1)?;
    let name = line.splitn(6, ' ').nth(5).unwrap_or("").trim_start();
    Some(Mapping {
        range: start?..end?,
        protection: protection(permissions),
        shared: permissions.ends_with('s'),
        offset: offset?,
        name: name.to_owned(),
        resident: 0,
        may_be_large: true,
        huge: 0,
    })
}

fn protection(permissions: &str) -> i32 {
    let bit = |letter, bit| if permissions.contains(letter) { bit } else { 0 };
    bit('r', libc::PROT_READ) | bit('w', libc::PROT_WRITE) | bit('x', libc::PROT_EXEC)
}

/// `Field:  N kB`.
fn amount(line: &str) -> Option<(&str, u64)> {
    let (field, rest) = line.split_once(':')?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((field, kib.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
55aaaa000000-55aaaa400000 r-xp 00001000 fe:00 131 /opt/my app (new)
Size:               4096 kB
Rss:                4000 kB
THPeligible:    1
AnonHugePages:         0 kB
FilePmdMapped:      2048 kB
VmFlags: rd ex mr mw me
55aaaa400000-55aaab400000 rw-p 00000000 00:00 0 
Rss:               16384 kB
AnonHugePages:     16384 kB
THPeligible:           1
55aaac000000-55aaae000000 rw-p 00000000 00:00 0 
Rss:                  12 kB
THPeligible:    0
55aaae000000-55aac2000000 rw-p 00000000 00:00 0 
Rss:                2048 kB
7f0000000000-7f0000400000 rw-s 00000000 00:0f 77                         /dev/hugepages/x
Rss:                   0 kB
Shared_Hugetlb:     4096 kB
";

    #[test]
    fn mappings_have_their_names_and_page_sizes() {
        let m = parse(TEXT);
        assert_eq!(m.len(), 5);
        assert_eq!(
            (m[0].name.as_str(), m[0].resident, m[0].huge),
            ("/opt/my app (new)", 4000 << 10, 2 << 20)
        );
        assert_eq!((m[1].name.as_str(), m[1].resident, m[1].huge), ("", 16 << 20, 16 << 20));
        assert_eq!(m[0].protection, libc::PROT_READ | libc::PROT_EXEC);
        assert!(m[1].protection & libc::PROT_WRITE != 0 && !m[1].shared);
        let last = &m[4];
        assert_eq!((last.name.as_str(), last.resident, last.huge), ("/dev/hugepages/x", 4 << 20, 4 << 20));
        assert!(last.shared);
        // text, all touched, not for large pages, untouched, a file
        let untouched: Vec<u64> = m.iter().map(Mapping::untouched).collect();
        assert_eq!(untouched, [0, 0, 0, (320 << 20) - (2 << 20), 0]);
        assert_eq!(m[1].range, 0x55aa_aa40_0000..0x55aa_ab40_0000);
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in prop::collection::vec("([0-9a-f]{1,18}-[0-9a-f]{1,18} [rwxps-]{4} .{0,30}|[A-Za-z_]{1,16}: +[0-9]{1,22} kB|.{0,30})", 0..12)) {
            let _ = parse(&lines.join("\n"));
        }
    }
}
