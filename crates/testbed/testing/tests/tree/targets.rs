// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cargo builds to be tested: each program is linked with everything that it uses, so there are few, and none without a test.

use std::path::Path;

use crate::dependencies::packages;
use crate::read;

/// The texts of a file and of its modules, which are in `folder`.
fn texts(file: &Path, folder: &Path) -> Vec<String> {
    let text = read(file);
    let names = text.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    let files = names.flat_map(|name| {
        let below = folder.join(name);
        [folder.join(format!("{name}.rs")), below.join("mod.rs")].map(|file| (file, below.clone()))
    });
    let files = files.filter(|(file, _)| file.is_file());
    let mut all: Vec<String> = files.flat_map(|(file, below)| texts(&file, &below)).collect();
    all.push(text);
    all
}

/// Returns `true` if the documentation in a text has an example that rustdoc would compile.
fn has_example(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let lines = lines.filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
    let fences = lines.filter_map(|line| line.trim_start().strip_prefix("```"));
    let is_rust = |words: &str| {
        let kinds = ["", "rust", "ignore", "no_run", "should_panic", "compile_fail"];
        words.split(',').all(|word| kinds.contains(&word.trim()))
    };
    // every other fence ends a block
    fences.step_by(2).any(is_rust)
}

#[test]
fn targets_that_are_not_tested_have_neither_tests_nor_examples() {
    let mut left_out = 0;
    for package in packages() {
        for target in package["targets"].as_array().expect("targets") {
            let root = Path::new(target["src_path"].as_str().expect("a path"));
            let texts = texts(root, root.parent().expect("a folder"));
            let name = root.display();
            let is_library = !["bin", "bench", "custom-build", "example", "test"]
                .contains(&target["kind"][0].as_str().expect("a kind"));
            if target["test"] == false && (is_library || target["kind"][0] == "bin") {
                left_out += 1;
                assert!(texts.iter().all(|text| !text.contains("#[test]")), "{name}: remove `test = false`");
            }
            if target["doctest"] == false && is_library {
                left_out += 1;
                assert!(!texts.iter().any(|text| has_example(text)), "{name}: remove `doctest = false`");
            }
        }
    }
    assert!(left_out > 30, "the targets are read: {left_out}");
}

#[test]
fn integration_tests_of_a_crate_are_one_program() {
    // those of the command need different machines: see ARCHITECTURE.md
    for package in packages().iter().filter(|package| package["name"] != "colony") {
        let targets = package["targets"].as_array().expect("targets");
        let tests: Vec<_> = targets.iter().filter(|target| target["kind"][0] == "test").collect();
        let names: Vec<_> = tests.iter().filter_map(|target| target["name"].as_str()).collect();
        assert!(names.len() < 2, "{}: make {names:?} modules of one program", package["name"]);
    }
}
