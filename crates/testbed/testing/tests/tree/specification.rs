// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPECIFICATION.md names tests and benchmarks that exist.

use crate::names::exists;
use crate::{crates, read, root};

/// A row: its test column and its state.
fn rows(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().skip_while(|l| !l.starts_with("## "));
    let cells = lines.filter_map(|l| l.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = cells.map(|l| l.split(" | ").collect::<Vec<_>>());
    let rows = rows.filter(|r| r[0] != "promise");
    rows.map(|r| (*r.get(1).unwrap_or(&""), *r.last().unwrap_or(&""))).collect()
}

/// The names between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn bench_exists(name: &str) -> bool {
    crates().iter().any(|c| c.join("benches").join(format!("{name}.rs")).is_file())
}

#[test]
fn every_test_and_benchmark_of_the_specification_exists() {
    let text = read(&root().join("SPECIFICATION.md"));
    let rows = rows(&text);
    assert!(rows.len() > 40, "the tables are read: {}", rows.len());
    for (test, state) in rows {
        let tests: Vec<&str> = quoted(test).filter(|n| n.contains("::")).collect();
        for name in &tests {
            assert!(exists(name), "SPECIFICATION.md names the test {name}, which does not exist");
        }
        if let Some(bench) = test.strip_prefix("bench ").and_then(|b| quoted(b).next()) {
            assert!(
                bench_exists(bench),
                "SPECIFICATION.md names the benchmark {bench}, which does not exist"
            );
        }
        let state = state.split(':').next().unwrap_or_default();
        assert!(["enforced", "measured", "pending"].contains(&state), "a state: {state}");
        assert!(state != "enforced" || !tests.is_empty(), "no test behind: {test}");
        assert!(state != "measured" || !test.is_empty(), "nothing measures a figure that is measured");
    }
}
