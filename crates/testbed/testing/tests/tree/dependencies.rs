// SPDX-License-Identifier: MIT OR Apache-2.0
//! Crates depend on each other only as the table of ARCHITECTURE.md allows.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::{read, root};

/// The names between backquotes.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Allowed dependencies of each crate, by the table's last column.
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

/// Every package of the workspace, as `cargo metadata` describes it.
pub(crate) fn packages() -> Vec<serde_json::Value> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut metadata: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    match metadata["packages"].take() {
        serde_json::Value::Array(packages) => packages,
        other => panic!("packages: {other}"),
    }
}

/// The name of a package, and what it depends on, tests apart.
fn dependencies(package: &serde_json::Value) -> (&str, impl Iterator<Item = &serde_json::Value>) {
    let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
    (package["name"].as_str().expect("a name"), dependencies.filter(|d| d["kind"] != "dev"))
}

/// Dependencies of each crate of the workspace in the workspace, without those of tests.
fn actual() -> BTreeMap<String, BTreeSet<String>> {
    let short = |name: &str| name.strip_prefix("colony-").unwrap_or(name).to_owned();
    let of = |package: &serde_json::Value| {
        let (name, dependencies) = dependencies(package);
        let ours = dependencies.filter(|d| d["path"].is_string());
        (short(name), ours.filter_map(|d| d["name"].as_str()).map(short).collect())
    };
    packages().iter().map(of).collect()
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

/// The servers of the daemons: an HTTP server, a database and a file system have no place in a program that only talks to a
/// daemon, or runs a job. The client of the control daemon takes the client half of the HTTP library, its runtime, and TLS.
/// `colony-conform` has programs that try the runtime itself on a compute node.
#[test]
fn only_daemons_depend_on_the_crates_of_their_servers() {
    let daemons = ["colonyd", "colony-control"];
    let servers = ["axum", "fuser", "prometheus-client", "rcgen", "rusqlite"];
    let http = ["tokio", "hyper", "hyper-util", "http-body-util"];
    let (mut with_servers, mut with_http, mut with_tls, mut on_daemons) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let packages = packages();
    for package in &packages {
        let (name, dependencies) = dependencies(package);
        for dependency in dependencies.filter_map(|d| d["name"].as_str()) {
            if servers.contains(&dependency) {
                with_servers.insert(name);
            }
            if http.contains(&dependency) {
                with_http.insert(name);
            }
            if dependency == "tokio-rustls" {
                with_tls.insert(name);
            }
            if daemons.contains(&dependency) {
                on_daemons.insert(name);
            }
        }
    }
    assert_eq!(with_servers, BTreeSet::from(daemons), "crates that depend on one of {servers:?}");
    let clients = BTreeSet::from(["colonyd", "colony-conform", "colony-control", "colony-control-api"]);
    assert_eq!(with_http, clients, "crates that depend on one of {http:?}");
    assert_eq!(
        with_tls,
        BTreeSet::from(["colony-control", "colony-control-api"]),
        "crates that depend on TLS"
    );
    assert_eq!(on_daemons, BTreeSet::new(), "crates that depend on a daemon, and so on its servers");
}

/// The crates that a program gets with `package`, as `cargo tree` lists them.
fn all_below(package: &str) -> BTreeSet<String> {
    let out = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--locked",
            "--edges=normal",
            "--prefix=none",
            "--format={p}",
            "--package",
        ])
        .arg(package)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect()
}

/// A plugin of a job manager links the client: types, serde, and what opens files.
#[test]
fn the_client_brings_no_runtime_no_server_and_no_random_numbers() {
    let all = all_below("colony-client");
    assert!(all.contains("colony-time") && all.contains("serde"), "the list is read: {all:?}");
    let heavy = [
        "colony-clock",
        "fuser",
        "hmac",
        "hyper",
        "libbpf-rs",
        "libbpf-sys",
        "rand",
        "rayon",
        "sha2",
        "tokio",
    ];
    let found: Vec<_> = heavy.into_iter().filter(|name| all.contains(*name)).collect();
    assert!(found.is_empty(), "colony-client brings {found:?}");
}

#[test]
fn crates_are_in_the_rooms_that_the_architecture_names() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let table = text.lines().skip_while(|l| !l.ends_with("| may depend on |")).skip(2);
    let rows = table.map_while(|l| l.strip_prefix("| `")?.split_once("` | "));
    let mut named: Vec<_> = rows
        .filter_map(|(name, rest)| Some((name, rest.split_once(" | ")?.0)))
        .filter(|(_, room)| *room != "–")
        .map(|(name, room)| root().join("crates").join(room).join(name))
        .collect();
    let mut there = crate::crates();
    named.sort();
    there.sort();
    assert_eq!(named, there);
}
