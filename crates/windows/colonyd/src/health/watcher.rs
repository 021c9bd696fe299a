// SPDX-License-Identifier: MIT OR Apache-2.0
//! All sources together: the report of one look.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use colony_node::health::{HealthReport, Reason, State};

use super::edac::{self, Edac};
use super::finding::Finding;
use super::rules::HealthRules;
use super::slurm::{self, Slurm};
use super::sysfs::{Sysfs, first_line};
use super::thermal::{self, Throttle, Zones};

/// The period at which CPUs and thermal zones are looked at: there are many files, and heat is slow.
const SLOW: Duration = Duration::from_secs(10);

/// The source that is a file of the operator.
const OPERATOR: &str = "operator";

/// The sources.
#[derive(Debug)]
pub(super) struct Watcher {
    rules: HealthRules,
    sysfs: Sysfs,
    edac: Edac,
    throttle: Throttle,
    zones: Zones,
    slurm: Option<Slurm>,
    /// The operator's file.
    marker: PathBuf,
    /// The findings about heat, and when to look for the next.
    heat: Vec<Finding>,
    heat_due: Duration,
    /// When each finding appeared, by source and part.
    since: BTreeMap<(&'static str, String), i64>,
}

impl Watcher {
    pub(super) fn new(rules: HealthRules, marker: PathBuf) -> Self {
        Self {
            sysfs: Sysfs(rules.sysfs.clone()),
            slurm: Slurm::new(&rules),
            rules,
            edac: Edac::default(),
            throttle: Throttle::default(),
            zones: Zones::default(),
            marker,
            heat: Vec::new(),
            heat_due: Duration::ZERO,
            since: BTreeMap::new(),
        }
    }

    /// Looks at all sources that are due, `now` after the first look, at `unix_ns` nanoseconds since 1970.
    pub(super) fn look(&mut self, now: Duration, unix_ns: i64) -> HealthReport {
        let mut findings = self.edac.look(&self.sysfs, self.rules.corrected_errors_per_hour, now);
        if now >= self.heat_due {
            self.heat_due = now + SLOW;
            self.heat =
                self.throttle.look(&self.sysfs, self.rules.throttles_per_hour, now).into_iter().collect();
            if let Some(margin) = self.rules.critical_margin {
                self.heat.extend(self.zones.look(&self.sysfs, margin));
            }
        }
        findings.extend(self.heat.iter().cloned());
        findings.extend(self.slurm.as_mut().and_then(|slurm| slurm.look(now)));
        findings.extend(self.operator());
        self.report(findings, unix_ns)
    }

    fn operator(&self) -> Option<Finding> {
        let line = first_line(&self.marker)?;
        let text = if line.is_empty() { "an operator warns".to_owned() } else { format!("{line:.200}") };
        Some(Finding { source: OPERATOR, part: String::new(), text })
    }

    fn report(&mut self, findings: Vec<Finding>, unix_ns: i64) -> HealthReport {
        let mut since = BTreeMap::new();
        let mut reasons = Vec::new();
        for Finding { source, part, text } in findings {
            let key = (source, part);
            let began = self.since.get(&key).copied().unwrap_or(unix_ns);
            since.insert(key, began);
            reasons.push(Reason { source: source.to_owned(), text, since_unix_ns: Some(began) });
        }
        self.since = since;
        let state = if reasons.is_empty() { State::Healthy } else { State::Warning };
        HealthReport { schema: HealthReport::SCHEMA.to_owned(), state, reasons, watched: self.watched() }
    }

    /// The sources that this node has.
    fn watched(&self) -> Vec<String> {
        let sources = [
            (self.edac.is_watched(), edac::SOURCE),
            (self.throttle.is_watched() || self.zones.is_watched(), thermal::SOURCE),
            (self.slurm.as_ref().is_some_and(Slurm::is_watched), slurm::SOURCE),
            (true, OPERATOR),
        ];
        sources.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_warns_since_its_own_time_until_it_stops() {
        let dir = tempfile::tempdir().expect("temp dir");
        let write = |path: &str, text: &str| {
            let file = dir.path().join(path);
            let made = std::fs::create_dir_all(file.parent().expect("a folder"));
            made.and_then(|()| std::fs::write(file, text)).expect("room");
        };
        let rules = HealthRules {
            sysfs: dir.path().into(),
            critical_margin: Some(5),
            throttles_per_hour: 0,
            ..HealthRules::default()
        };
        let marker = dir.path().join("warning");
        let mut watcher = Watcher::new(rules, marker.clone());
        let mut look = |second: u64| watcher.look(Duration::from_secs(second), second.cast_signed());
        let report = look(0);
        assert_eq!((report.state, report.watched), (State::Healthy, vec![OPERATOR.to_owned()]));
        write("devices/system/edac/mc/mc0/ue_count", "1");
        write("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "1");
        write("class/thermal/thermal_zone0/temp", "99000");
        write("class/thermal/thermal_zone0/trip_point_0_type", "critical");
        write("class/thermal/thermal_zone0/trip_point_0_temp", "100000");
        std::fs::write(&marker, "a fan is to be replaced\n\u{1b}").expect("room");
        let shown = |report: HealthReport| -> Vec<String> {
            report.reasons.iter().map(|r| format!("{r} @{}", r.since_unix_ns.unwrap_or(-1))).collect()
        };
        let report = look(1);
        assert_eq!(report.state, State::Warning);
        assert_eq!(
            shown(report),
            ["edac: mc0 has counted 1 uncorrected memory errors @1", "operator: a fan is to be replaced @1"]
        );
        write("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "2");
        write("devices/system/edac/mc/mc0/ue_count", "2");
        let report = look(10);
        assert_eq!(report.watched, ["edac", "thermal", "operator"]);
        let hot = "thermal: thermal_zone0 () has 99 °C, 100 °C is critical @10";
        assert_eq!(
            shown(report),
            [
                "edac: mc0 has counted 2 uncorrected memory errors @1",
                hot,
                "operator: a fan is to be replaced @1"
            ]
        );
        write("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "4");
        std::fs::write(&marker, "").expect("room");
        write("devices/system/edac/mc/mc0/ue_count", "0");
        let expected = [
            "thermal: CPUs were throttled 2 times in the last hour @20",
            hot,
            "operator: an operator warns @1",
        ];
        assert_eq!(shown(look(20)), expected);
        assert_eq!(shown(look(21)), expected, "between two looks, heat is as it was");
        std::fs::remove_file(&marker).expect("ours");
        write("class/thermal/thermal_zone0/temp", "50000");
        assert_eq!(look(4000).state, State::Healthy);
    }
}
