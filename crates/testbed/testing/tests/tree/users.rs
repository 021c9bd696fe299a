// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every bound and every claim of docs/users.md has a test that exists.

use crate::names::exists;
use crate::{read, root};

/// The columns of the tables of bounds. A cell of the third column is empty where the bound has no other side.
const BOUNDS: [&str; 4] = ["one user can", "at most", "beyond it", "test"];
/// The section with the tables of bounds.
const SECTION: &str = "## What one user can cost others";

/// The cells of a row.
fn cells(line: &str) -> Option<Vec<&str>> {
    Some(line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect())
}

/// The rows of all tables whose last column is of tests.
fn tested_rows(page: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(head) = cells(line) else { continue };
        let table = std::iter::from_fn(|| lines.next_if(|line| line.starts_with('|')));
        let table: Vec<&str> = table.collect();
        if head.last() == Some(&"test") {
            rows.extend(table.iter().skip(1).map(|line| cells(line).unwrap_or_default()));
        }
    }
    rows
}

/// The first fault of a row: a cell without text, no test, or a test that does not exist.
fn fault(row: &[&str]) -> Option<String> {
    let Some((tests, [what, bound @ ..])) = row.split_last() else { return Some("no cells".to_owned()) };
    if what.is_empty() || bound.first().is_some_and(|bound| bound.is_empty()) {
        return Some(format!("a cell is empty: {row:?}"));
    }
    // only names and commas, so that no test is named in a form that is not checked
    let names: Vec<&str> = tests.split(", ").collect();
    let unquoted = |name: &&str| name.strip_prefix('`').and_then(|n| n.strip_suffix('`')).is_none();
    if names.iter().any(unquoted) {
        return Some(format!("{what}: the last cell has to name tests, as `PROGRAM::TEST`: {tests}"));
    }
    let absent = names.iter().find(|name| !exists(name.trim_matches('`')));
    absent.map(|name| format!("{what}: there is no test {name}"))
}

/// The section with the tables of bounds, without its heading.
fn section(page: &str) -> &str {
    let rest = page.split_once(SECTION).unwrap_or_else(|| panic!("docs/users.md has no {SECTION}")).1;
    rest.split("\n## ").next().unwrap_or_default()
}

#[test]
fn every_bound_and_every_claim_about_users_has_a_test_that_exists() {
    let page = read(&root().join("docs/users.md"));
    let rows = tested_rows(&page);
    assert!(rows.len() > 70, "the tables are read: {}", rows.len());
    let faults: Vec<String> = rows.iter().filter_map(|row| fault(row)).collect();
    assert!(faults.is_empty(), "docs/users.md:\n{}", faults.join("\n"));
    // no row of the section is left out
    let section = section(&page);
    let tables = section.lines().filter(|line| line.starts_with("|---")).count();
    let lines = section.lines().filter(|line| line.starts_with('|')).count();
    let of_four: Vec<_> = tested_rows(section).into_iter().filter(|row| row.len() == BOUNDS.len()).collect();
    assert_eq!(of_four.len() + 2 * tables, lines, "each row has four cells, the last of tests");
    let heads = section.lines().filter_map(cells).filter(|row| row[..] == BOUNDS);
    assert_eq!(heads.count(), tables, "each table has the columns {BOUNDS:?}");
}

#[test]
fn a_row_without_a_test_and_one_of_a_test_that_is_not_there_are_found() {
    let row = |test: &str| {
        let page =
            format!("a | b\n\n| what | at most | test |\n|---|---|---|\n| do | 5 | {test} |\n\n| x | y |\n");
        let rows = tested_rows(&page);
        assert_eq!(rows.len(), 1, "{page}");
        fault(&rows[0])
    };
    let there = "`tree::users::a_row_without_a_test_and_one_of_a_test_that_is_not_there_are_found`";
    let absent = "`tree::users::no_such_test`";
    assert_eq!(row(there), None);
    assert_eq!(row(&format!("{there}, {there}")), None);
    assert!(row(absent).is_some_and(|fault| fault.contains("no_such_test")));
    assert!(row(&format!("{there}, {absent}")).is_some());
    for wrong in
        ["", "cargo test", "`tree::users`", &format!("{there} and {absent}"), there.trim_matches('`')]
    {
        assert!(row(wrong).is_some(), "{wrong}");
    }
    assert!(fault(&["do", "", "", there]).is_some(), "no bound");
}
