// SPDX-License-Identifier: MIT OR Apache-2.0
//! Crates depend on each other only as the table of ARCHITECTURE.md allows.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::{read, root};

/// The names between backquotes.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What each crate may depend on, by the table's last column.
fn allowed(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let table = text.lines().skip_while(|l| !l.ends_with("| may depend on |")).skip(2);
    let rows = table.map_while(|l| l.strip_prefix("| `")?.strip_suffix(" |"));
    let mut crates = BTreeMap::new();
    for row in rows {
        let (name, rest) = row.split_once("` |").expect("a name in the first column");
        let cell = rest.rsplit(" | ").next().unwrap_or_default();
        let above: BTreeSet<String> = crates.keys().cloned().collect();
        let allowed = match cell.strip_prefix("all above") {
            Some(but) => &above - &quoted(but),
            None => quoted(cell),
        };
        let is_known = cell.starts_with("all above") || cell == "nothing of ours" || !allowed.is_empty();
        assert!(is_known, "ARCHITECTURE.md: the crate {name} may depend on: {cell}");
        crates.insert(name.to_owned(), allowed);
    }
    crates
}

/// What each crate of the workspace depends on, tests apart.
fn actual() -> BTreeMap<String, BTreeSet<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let short = |name: &str| name.strip_prefix("colony-").unwrap_or(name).to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let package = |p: &serde_json::Value| {
        let dependencies = p["dependencies"].as_array().expect("dependencies").iter();
        let ours = dependencies.filter(|d| d["path"].is_string() && d["kind"] != "dev");
        let names = ours.filter_map(|d| d["name"].as_str()).map(short).collect();
        (short(p["name"].as_str().expect("a name")), names)
    };
    packages.iter().map(package).collect()
}

#[test]
fn crates_depend_on_each_other_as_the_architecture_says() {
    let (allowed, actual) = (allowed(&read(&root().join("ARCHITECTURE.md"))), actual());
    let names = |crates: &BTreeMap<String, BTreeSet<String>>| crates.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&allowed), names(&actual), "the table of ARCHITECTURE.md has a row for each crate");
    for (name, dependencies) in &actual {
        let more: Vec<_> = dependencies.difference(&allowed[name]).collect();
        assert!(
            more.is_empty(),
            "the crate {name} depends on {more:?}, which ARCHITECTURE.md does not allow"
        );
    }
}
