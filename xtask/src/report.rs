// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run of the tests tells at its end: times by step, the slowest tests, the skipped ones, all that failed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::process::Times;
use crate::schedule::{Ended, State};

/// The slowest tests that the summary lists.
const SLOWEST: usize = 10;

/// A test of any program, for the summary and for `results.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Test {
    /// Program and test, as `e2e::run::a_test`.
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) passed: bool,
}

/// Seconds with one decimal.
fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// The line that reports the end of a step.
pub(crate) fn line(ended: &Ended) -> String {
    let Times { wall, cpu } = ended.times;
    let (word, why) = match &ended.state {
        State::Passed => ("ok", String::new()),
        State::Failed(why) => ("FAILED", format!(": {}", why.lines().next().unwrap_or_default())),
        State::NotRun(culprit) => ("not run", format!(": {culprit} failed")),
    };
    let detail = if ended.detail.is_empty() { String::new() } else { format!(" ({})", ended.detail) };
    format!("{word:>7} {:>7} s {:>7} CPU s  {}{detail}{why}", seconds(wall), seconds(cpu), ended.name)
}

/// The table of steps, the longest first.
pub(crate) fn steps(ended: &[Ended], wall: Duration) -> String {
    let mut rows: Vec<&Ended> = ended.iter().filter(|e| !matches!(e.state, State::NotRun(_))).collect();
    rows.sort_by_key(|e| std::cmp::Reverse(e.times.wall));
    let mut text = format!("{:>9}  {:>9}  step\n", "wall s", "CPU s");
    for row in rows {
        let _ = writeln!(text, "{:>9}  {:>9}  {}", seconds(row.times.wall), seconds(row.times.cpu), row.name);
    }
    let cpu: Duration = ended.iter().map(|e| e.times.cpu).sum();
    let _ = writeln!(text, "{:>9}  {:>9}  the whole run, steps side by side", seconds(wall), seconds(cpu));
    text
}

/// The slowest tests of a run.
pub(crate) fn slowest(tests: &[Test]) -> String {
    let mut sorted: Vec<&Test> = tests.iter().collect();
    sorted.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut text = String::from("the slowest tests:\n");
    for test in sorted.into_iter().take(SLOWEST) {
        let _ = writeln!(text, "{:>9.1} s  {}", test.seconds, test.name);
    }
    text
}

/// Names of skipped tests that the list does not allow. `records` is what the tests have written, `list` is
/// `skips.txt`; both have the name of a test and a reason on each line.
pub(crate) fn skips_not_allowed(records: &str, list: &str) -> BTreeSet<String> {
    let name = |line: &str| line.split_once(' ').map_or(line, |(name, _)| name).to_owned();
    let allowed: BTreeSet<String> =
        list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(name).collect();
    records.lines().filter(|l| !l.is_empty()).map(name).filter(|n| !allowed.contains(n)).collect()
}

/// Test results as JUnit XML, which systems for continuous integration read.
pub(crate) fn junit(tests: &[Test]) -> String {
    let escape = |text: &str| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
    };
    let failed = tests.iter().filter(|t| !t.passed).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"colony\" tests=\"{}\" failures=\"{failed}\">\n",
        tests.len()
    );
    for test in tests {
        let (program, name) = test.name.split_once("::").unwrap_or(("", &test.name));
        let _ = write!(
            text,
            "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            escape(program),
            escape(name),
            test.seconds
        );
        text.push_str(if test.passed { "/>\n" } else { "><failure/></testcase>\n" });
    }
    text.push_str("</testsuite>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &str, state: State, wall_s: u64) -> Ended {
        let times = Times { wall: Duration::from_secs(wall_s), cpu: Duration::from_secs(2 * wall_s) };
        Ended { name: name.into(), state, times, detail: String::new() }
    }

    #[test]
    fn steps_are_listed_by_their_time_and_those_not_run_are_not() {
        let all = [
            ended("short", State::Passed, 1),
            ended("never", State::NotRun("short".into()), 0),
            ended("long", State::Failed("why".into()), 5),
        ];
        let text = steps(&all, Duration::from_secs(5));
        let names: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
        assert_eq!(names, ["CPU", "long", "short", "the"], "{text}");
        assert!(text.contains("      5.0       12.0  the whole run"), "{text}");
        assert!(line(&all[1]).contains("never: short failed"));
        assert!(line(&all[2]).contains("FAILED") && line(&all[2]).ends_with("long: why"));
    }

    #[test]
    fn a_skip_is_allowed_by_its_whole_name_only() {
        let records = "e2e::a no root\ne2e::ab no root\n";
        let not_allowed = skips_not_allowed(records, "# e2e::ab no\ne2e::a because\n");
        assert_eq!(not_allowed, BTreeSet::from(["e2e::ab".to_owned()]));
        assert!(skips_not_allowed("", "").is_empty());
    }

    #[test]
    fn results_are_xml_whatever_a_test_is_called() {
        let test = |name: &str, passed| Test { name: name.into(), seconds: 1.25, passed };
        let text = junit(&[test("e2e::a<b>&\"c\"", true), test("e2e::d::e", false)]);
        assert!(text.contains("name=\"a&lt;b&gt;&amp;&quot;c&quot;\" time=\"1.250\"/>"), "{text}");
        assert!(
            text.contains("classname=\"e2e\" name=\"d::e\"") && text.contains("failures=\"1\""),
            "{text}"
        );
    }
}
