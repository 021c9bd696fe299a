// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests by their names: `PROGRAM::MODULES::FUNCTION`, `python::FILE::FUNCTION`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::dependencies::packages;
use crate::{crates, read, root, rust_files};

/// The folders of the sources of all libraries, by the names of their test programs.
fn libraries() -> &'static BTreeMap<String, PathBuf> {
    static LIBRARIES: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let packages = packages();
        let targets = packages.iter().flat_map(|package| package["targets"].as_array().expect("targets"));
        let libraries = targets.filter(|t| t["kind"][0].as_str().is_some_and(|kind| kind.ends_with("lib")));
        let place = |t: &serde_json::Value| {
            let (name, path) = (t["name"].as_str().expect("a name"), t["src_path"].as_str().expect("a path"));
            (name.replace('-', "_"), Path::new(path).parent().expect("a folder").to_owned())
        };
        libraries.map(place).collect()
    })
}

/// The Rust files of a test program: of a library's unit tests, or of the integration tests with this name.
fn files_of(program: &str) -> Vec<PathBuf> {
    let mut files = libraries().get(program).map(|folder| rust_files(folder)).unwrap_or_default();
    for folder in crates() {
        let tests = folder.join("tests");
        files.extend(rust_files(&tests.join(program)));
        files.extend([tests.join(format!("{program}.rs"))].into_iter().filter(|f| f.is_file()));
    }
    files
}

/// Returns `true` if the text has a test function of this name.
fn has_test(text: &str, name: &str) -> bool {
    let function = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let bare = |l: &str| l.trim_start_matches("pub ").trim_start_matches("async ").starts_with(&function);
    let at = lines.iter().position(|l| bare(l));
    // attributes and comments lie between
    at.is_some_and(|at| {
        let above = lines[..at].iter().rev();
        let mut attributes = above.take_while(|l| l.starts_with("#[") || l.starts_with("//"));
        attributes.any(|l| matches!(*l, "#[test]" | "#[tokio::test]"))
    })
}

/// Returns `true` if the tree has this test.
pub(crate) fn exists(name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let [program, modules @ .., function] = &parts[..] else { return false };
    if *program == "python" {
        let [file] = modules else { return false };
        let text = std::fs::read_to_string(root().join("python/tests").join(file)).unwrap_or_default();
        return text.contains(&format!("\ndef {function}("));
    }
    files_of(program).iter().any(|file| {
        let text = read(file);
        let in_path = |m: &str| {
            file.components().any(|c| c.as_os_str() == m) || file.file_stem().is_some_and(|s| s == m)
        };
        let placed = modules.iter().all(|m| in_path(m) || text.contains(&format!("mod {m} {{")));
        placed && has_test(&text, function)
    })
}

#[test]
fn tests_are_found_by_name_and_others_are_not() {
    for there in [
        "tree::names::tests_are_found_by_name_and_others_are_not",
        "colony_testing::tests::a_listed_test_may_be_skipped_for_the_reason_given",
        "e2e::docs::every_link_between_pages_leads_somewhere",
        "colonyd::quota::tests::lines_left_out_are_counted_with_the_next_line",
        "cnk_logic::reserve::tests::a_zone_has_an_end",
        "colony_control::daemon::network::connections::tests::one_host_cannot_take_all_connections",
        "python::test_commands.py::test_what_if_says_what_each_source_costs",
    ] {
        assert!(exists(there), "{there}");
    }
    for absent in [
        "tests_are_found_by_name_and_others_are_not",
        "tree::elsewhere::tests_are_found_by_name_and_others_are_not",
        "tree::names::exists",
        "control::quota::tests::lines_left_out_are_counted_with_the_next_line",
        "colonyd::access::tests::lines_left_out_are_counted_with_the_next_line",
        "colony_node::tests::a_listed_test_may_be_skipped_for_the_reason_given",
        "python::test_commands.py::test_nothing",
    ] {
        assert!(!exists(absent), "{absent}");
    }
}

#[test]
fn every_test_that_may_be_skipped_exists() {
    let list = read(&root().join("crates/testbed/testing/skips.txt"));
    for line in list.lines().filter(|l| !l.starts_with('#')) {
        let name = line.split(' ').next().unwrap_or_default();
        assert!(exists(name), "skips.txt names {name}, which is no test");
    }
}

#[test]
fn no_test_is_skipped_but_by_the_function_that_records_it() {
    let own = root().join("crates/testbed/testing");
    for file in rust_files(&root().join("crates")).iter().filter(|f| !f.starts_with(&own)) {
        let text = read(file).to_lowercase();
        let silent = text.lines().find(|l| l.contains("println!(\"skip"));
        assert!(silent.is_none(), "{}: call colony_testing::skip instead of {silent:?}", file.display());
    }
}
