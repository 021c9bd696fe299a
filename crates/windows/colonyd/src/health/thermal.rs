// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heat: how often CPUs were throttled, and temperatures near the critical trip points.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::finding::Finding;
use super::hour::Hour;
use super::sysfs::Sysfs;

/// The name of this source.
pub(super) const SOURCE: &str = "thermal";

const CPUS: &str = "devices/system/cpu";
/// Counters of a CPU that its package shares, and of its core.
const COUNTERS: [&str; 2] = ["core_throttle_count", "package_throttle_count"];
const ZONES: &str = "class/thermal";
/// The most trip points of a zone.
const TRIPS: u32 = 16;
/// A zone has to be cooler than where it began to warn by this, in thousandths of a degree, before it stops.
const HYSTERESIS: i64 = 5000;

/// How often CPUs are throttled. The counters are the kernel's memory: a look interrupts no CPU.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    counts: BTreeMap<String, u64>,
    recent: Hour,
}

impl Throttle {
    /// Returns `true` if there are counters.
    pub(super) fn is_watched(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Looks at all counters. CPUs that are throttled together count as one: the one that was throttled most counts. More
    /// than `limit` times in an hour are a finding.
    pub(super) fn look(&mut self, sysfs: &Sysfs, limit: u64, now: Duration) -> Option<Finding> {
        let (mut counts, mut largest) = (BTreeMap::new(), 0);
        for cpu in sysfs.entries(CPUS, "cpu") {
            for counter in COUNTERS {
                let path = format!("{CPUS}/{cpu}/thermal_throttle/{counter}");
                let Some(count) = sysfs.number::<u64>(&path) else { continue };
                if let Some(before) = self.counts.get(&path) {
                    largest = largest.max(count.saturating_sub(*before));
                }
                counts.insert(path, count);
            }
        }
        self.counts = counts;
        let recent = self.recent.add(now, largest);
        (recent > limit).then(|| Finding {
            source: SOURCE,
            part: "throttle".to_owned(),
            text: format!("CPUs were throttled {recent} times in the last hour"),
        })
    }
}

/// Temperatures. Reading one may interrupt a CPU of the package, or run firmware.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// Zones that warn.
    hot: BTreeSet<String>,
    is_watched: bool,
}

impl Zones {
    /// Returns `true` if a zone has a critical trip point.
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Looks at all zones. A temperature less than `margin` degrees below a critical trip point is a finding.
    pub(super) fn look(&mut self, sysfs: &Sysfs, margin: u32) -> Vec<Finding> {
        let hot = std::mem::take(&mut self.hot);
        self.is_watched = false;
        let mut findings = Vec::new();
        for zone in sysfs.entries(ZONES, "thermal_zone") {
            let folder = format!("{ZONES}/{zone}");
            let Some(critical) = critical(sysfs, &folder) else { continue };
            let Some(now) = sysfs.number::<i64>(&format!("{folder}/temp")) else { continue };
            self.is_watched = true;
            let slack = if hot.contains(&zone) { HYSTERESIS } else { 0 };
            if now < critical.saturating_sub(i64::from(margin) * 1000).saturating_sub(slack) {
                continue;
            }
            let kind = sysfs.text(&format!("{folder}/type")).unwrap_or_default();
            let (now, critical) = (now / 1000, critical / 1000);
            let text = format!("{zone} ({kind:.40}) has {now} °C, {critical} °C is critical");
            findings.push(Finding { source: SOURCE, part: zone.clone(), text });
            self.hot.insert(zone);
        }
        findings
    }
}

/// The lowest temperature at which a zone is hot or critical, in thousandths of a degree. Some firmware gives
/// temperatures of 0 and less to trip points that it does not have.
fn critical(sysfs: &Sysfs, zone: &str) -> Option<i64> {
    let trip = |n: u32| {
        let kind = sysfs.text(&format!("{zone}/trip_point_{n}_type"))?;
        let is_critical = kind == "critical" || kind == "hot";
        let temperature = sysfs.number::<i64>(&format!("{zone}/trip_point_{n}_temp"))?;
        (is_critical && temperature > 0).then_some(temperature)
    };
    (0..TRIPS).filter_map(trip).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> (Self, Sysfs) {
            let dir = tempfile::tempdir().expect("temp dir");
            let sysfs = Sysfs(dir.path().into());
            (Self(dir), sysfs)
        }

        fn write(&self, path: &str, text: &str) {
            let file = self.0.path().join(path);
            let made = std::fs::create_dir_all(file.parent().expect("a folder"));
            made.and_then(|()| std::fs::write(file, text)).expect("room");
        }

        fn throttle(&self, cpu: u32, counter: &str, count: u64) {
            self.write(&format!("{CPUS}/cpu{cpu}/thermal_throttle/{counter}"), &format!("{count}\n"));
        }
    }

    #[test]
    fn cpus_throttled_together_count_once_and_those_before_the_first_look_do_not() {
        let (tree, sysfs) = Tree::new();
        let mut throttle = Throttle::default();
        let mut look = |minute: u64| throttle.look(&sysfs, 10, Duration::from_secs(60 * minute));
        assert_eq!(look(0), None);
        for cpu in 0..4 {
            COUNTERS.iter().for_each(|counter| tree.throttle(cpu, counter, 900));
        }
        assert_eq!(look(1), None);
        (0..4).for_each(|cpu| tree.throttle(cpu, "package_throttle_count", 910));
        assert_eq!(look(2), None);
        tree.throttle(3, "core_throttle_count", 901);
        let text = look(3).expect("a warning").text;
        assert_eq!(text, "CPUs were throttled 11 times in the last hour");
        assert_eq!(look(62).map(|f| f.part), None, "those of the package are an hour old");
        // a CPU goes offline and comes back
        std::fs::remove_dir_all(tree.0.path().join(format!("{CPUS}/cpu3"))).expect("ours");
        assert_eq!(look(63), None);
        tree.throttle(3, "core_throttle_count", 5000);
        assert_eq!(look(64), None);
        assert!(throttle.is_watched());
    }

    #[test]
    fn a_zone_warns_near_its_critical_trip_point_until_it_is_cooler() {
        let (tree, sysfs) = Tree::new();
        let zone = |file: &str, text: &str| tree.write(&format!("{ZONES}/thermal_zone0/{file}"), text);
        zone("type", "x86_pkg_temp\n");
        for (n, kind, temperature) in [(0, "passive", "60000"), (1, "critical", "100000"), (2, "hot", "0")] {
            zone(&format!("trip_point_{n}_type"), kind);
            zone(&format!("trip_point_{n}_temp"), temperature);
        }
        let mut zones = Zones::default();
        let mut look = |temperature: &str| {
            zone("temp", temperature);
            zones.look(&sysfs, 5).into_iter().map(|f| f.text).collect::<Vec<_>>()
        };
        assert!(look("94999").is_empty());
        assert_eq!(look("95000"), ["thermal_zone0 (x86_pkg_temp) has 95 °C, 100 °C is critical"]);
        assert_eq!(look("90000").len(), 1, "still warm");
        assert!(look("89999").is_empty());
        assert!(look("94000").is_empty());
        assert!(look("hot").is_empty(), "no number");
        zone("trip_point_1_temp", "-274000");
        assert!(look("120000").is_empty(), "no trip point");
    }
}
