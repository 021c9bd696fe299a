// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the memory controllers, as the kernel's EDAC counts them. The counters are the kernel's memory: a look at them
//! asks no hardware.

use std::collections::BTreeMap;
use std::time::Duration;

use super::finding::Finding;
use super::hour::Hour;
use super::sysfs::Sysfs;

/// The name of this source.
pub(super) const SOURCE: &str = "edac";

/// The folder of the controllers.
const FOLDER: &str = "devices/system/edac/mc";

/// The memory controllers.
#[derive(Debug, Default)]
pub(super) struct Edac {
    controllers: BTreeMap<String, Corrected>,
}

/// Corrected errors of one controller.
#[derive(Debug)]
struct Corrected {
    count: u64,
    recent: Hour,
}

impl Edac {
    /// Returns `true` if there is a controller that counts errors.
    pub(super) fn is_watched(&self) -> bool {
        !self.controllers.is_empty()
    }

    /// Looks at all controllers. An uncorrected error is a finding until the counters are reset, more than `limit` corrected
    /// ones in an hour are one.
    pub(super) fn look(&mut self, sysfs: &Sysfs, limit: u64, now: Duration) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut controllers = std::mem::take(&mut self.controllers);
        for name in sysfs.entries(FOLDER, "mc") {
            let count = |kind: &str| sysfs.number::<u64>(&format!("{FOLDER}/{name}/{kind}"));
            let (uncorrected, corrected) = (count("ue_count"), count("ce_count"));
            if let Some(uncorrected) = uncorrected.filter(|&count| count > 0) {
                let text = format!("{name} has counted {uncorrected} uncorrected memory errors");
                findings.push(Finding { source: SOURCE, part: format!("{name} ue"), text });
            }
            let Some(count) = corrected.or(uncorrected.map(|_| 0)) else { continue };
            let known = controllers.remove(&name);
            let mut known = known.unwrap_or_else(|| Corrected { count, recent: Hour::default() });
            // a lower count than before: the counter was reset
            let added = count.checked_sub(known.count).unwrap_or(count);
            known.count = count;
            let recent = known.recent.add(now, added);
            if recent > limit {
                let text = format!("{name} has corrected {recent} memory errors in the last hour");
                findings.push(Finding { source: SOURCE, part: format!("{name} ce"), text });
            }
            self.controllers.insert(name, known);
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &tempfile::TempDir, name: &str, file: &str, text: &str) {
        let folder = folder.path().join(FOLDER).join(name);
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join(file), text))
            .expect("room");
    }

    fn texts(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|f| f.text).collect()
    }

    #[test]
    fn uncorrected_errors_warn_until_the_counter_is_reset() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (sysfs, mut edac) = (Sysfs(dir.path().into()), Edac::default());
        let mut look = || texts(edac.look(&sysfs, 100, Duration::ZERO));
        assert!(look().is_empty(), "no controllers");
        write(&dir, "mc0", "ue_count", "0\n");
        write(&dir, "mc1", "ue_count", "2\n");
        assert_eq!(look(), ["mc1 has counted 2 uncorrected memory errors"]);
        assert_eq!(look().len(), 1);
        write(&dir, "mc1", "ue_count", "0\n");
        assert!(look().is_empty());
        assert!(edac.is_watched());
    }

    #[test]
    fn corrected_errors_warn_by_their_number_in_an_hour() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (sysfs, mut edac) = (Sysfs(dir.path().into()), Edac::default());
        let mut look = |count: &str, minute: u64| {
            write(&dir, "mc0", "ce_count", count);
            texts(edac.look(&sysfs, 10, Duration::from_secs(60 * minute)))
        };
        // those before the first look may be years old
        assert!(look("5000", 0).is_empty());
        assert!(look("5010", 1).is_empty());
        assert_eq!(look("5011", 2), ["mc0 has corrected 11 memory errors in the last hour"]);
        assert_eq!(look("5011", 60).len(), 1);
        assert!(look("5011", 61).is_empty());
        // the counter was reset, and has counted three since
        assert!(look("3", 62).is_empty());
        assert_eq!(look("14", 63), ["mc0 has corrected 14 memory errors in the last hour"]);
    }

    #[test]
    fn files_that_hold_no_numbers_are_no_errors() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (sysfs, mut edac) = (Sysfs(dir.path().into()), Edac::default());
        for text in ["", "-1", "many", "99999999999999999999999", &"9".repeat(10_000)] {
            write(&dir, "mc0", "ue_count", text);
            write(&dir, "mc0", "ce_count", text);
            assert!(edac.look(&sysfs, 0, Duration::ZERO).is_empty(), "{text:.40}");
        }
        std::fs::create_dir(dir.path().join(FOLDER).join("mc0/x")).expect("room");
        assert!(!edac.is_watched());
    }
}
