// SPDX-License-Identifier: MIT OR Apache-2.0
//! No circles of files: a file may use another only if that one does not use it in turn, over any number of others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{crates, read, root, rust_files};

/// A module by its path in the crate; the root has none.
type Module = Vec<String>;

/// The module of a file below `src`.
fn module_of(src: &Path, file: &Path) -> Module {
    let path = file.strip_prefix(src).expect("below").with_extension("");
    let mut parts: Module = path.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// A file without comments and without its tests.
fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(|l| l.split("//").next().unwrap_or_default()).collect();
    let is_tests =
        |two: &[&str]| two[0].trim() == "#[cfg(test)]" && two[1].contains("mod ") && two[1].ends_with('{');
    let end = lines.windows(2).position(is_tests).unwrap_or(lines.len());
    lines[..end].join("\n")
}

/// The paths of a tree such as `a::{b, c::D}`.
fn flat(tree: &str) -> Vec<Vec<String>> {
    let Some((before, rest)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        return vec![name.split("::").map(|p| p.trim().to_owned()).collect()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let prefix: Vec<String> =
        before.split("::").map(str::trim).filter(|p| !p.is_empty()).map(Into::into).collect();
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in inner.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().expect("one").push(c),
        }
    }
    let parts = parts.iter().map(|p| p.trim()).filter(|p| !p.is_empty());
    parts.flat_map(flat).map(|path| [prefix.clone(), path].concat()).collect()
}

/// The paths that a file uses, and the names that it exports of others.
#[derive(Default)]
struct Uses {
    paths: Vec<Vec<String>>,
    exports: BTreeMap<String, Vec<String>>,
}

fn uses(text: &str) -> Uses {
    let mut found = Uses::default();
    let mut others = String::new();
    for statement in text.split(';') {
        // what comes before in the same statement: attributes, or the end of an item
        let begin =
            statement.rfind(['}', ']']).filter(|_| !statement.contains("use ")).map_or(0, |at| at + 1);
        let words = statement[begin..].trim_start();
        let start = words.find("use ").filter(|&at| {
            let before = words[..at].trim_end().rsplit('\n').next().unwrap_or_default().trim();
            before.is_empty() || before.starts_with("pub") || before.ends_with(']')
        });
        let Some(at) = start else {
            others.push_str(statement);
            others.push('\n');
            continue;
        };
        let is_public = words[..at].trim_end().ends_with("pub") || words[..at].trim_end().ends_with(')');
        for path in flat(&words[at + 4..]) {
            if is_public {
                found.exports.insert(path.last().cloned().unwrap_or_default(), path);
            } else {
                found.paths.push(path);
            }
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in others.match_indices(start) {
            let path = others[at..].split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next();
            found.paths.push(path.unwrap_or_default().split("::").map(Into::into).collect());
        }
    }
    found
}

/// The module that a path of `from` leads into.
fn resolve(all: &BTreeMap<Module, Uses>, from: &Module, path: &[String]) -> Option<Module> {
    let (mut at, mut rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (from.clone(), &path[1..]),
        "super" => (from.clone(), path),
        first if all.contains_key(&[from.clone(), vec![first.into()]].concat()) => (from.clone(), path),
        _ => return None,
    };
    while rest.first().is_some_and(|p| p == "super") {
        at.pop();
        rest = &rest[1..];
    }
    for _ in 0..20 {
        let Some(next) = rest.first() else { break };
        let below = [at.clone(), vec![next.clone()]].concat();
        if all.contains_key(&below) {
            (at, rest) = (below, &rest[1..]);
            continue;
        }
        // a name that the module takes from one below it
        let Some(export) = all.get(&at).and_then(|m| m.exports.get(next)) else { break };
        let target = resolve(all, &at, &export[..export.len() - 1]);
        match target.filter(|t| *t != at) {
            Some(target) => at = target,
            None => break,
        }
    }
    all.contains_key(&at).then_some(at)
}

/// The circles of the files below a folder.
fn circles(src: &Path) -> Vec<BTreeSet<Module>> {
    let files = rust_files(src).into_iter().filter(|f| !f.to_string_lossy().ends_with("tests.rs"));
    let all: BTreeMap<Module, Uses> = files.map(|f| (module_of(src, &f), uses(&code(&read(&f))))).collect();
    let edges: BTreeMap<&Module, BTreeSet<Module>> = all
        .iter()
        .map(|(m, u)| (m, u.paths.iter().filter_map(|p| resolve(&all, m, p)).filter(|to| to != m).collect()))
        .collect();
    let reached = |from: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(next) = left.pop() {
            left.extend(edges[next].iter().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = all.keys().map(|m| (m, reached(m))).collect();
    let of = |m: &Module| -> BTreeSet<Module> {
        reached[m].iter().filter(|to| reached[*to].contains(m)).cloned().collect()
    };
    let found: BTreeSet<BTreeSet<Module>> = all.keys().map(of).filter(|c| !c.is_empty()).collect();
    found.into_iter().collect()
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    for folder in
        crates().into_iter().chain(["xtask", "kernel/cnk", "kernel/logic"].map(|other| root().join(other)))
    {
        let found = circles(&folder.join("src"));
        assert!(found.is_empty(), "{}: these files use each other: {found:?}", folder.display());
    }
}

#[test]
fn a_circle_over_three_files_and_an_exported_name_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Third;\n"),
        ("a.rs", "use crate::b::{self, Second};\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n"),
        ("b.rs", "use super::Third; // crate::b\nfn f() {}\n"),
        ("c.rs", "use std::fmt;\npub struct Third(crate::a::First);\n"),
        ("d.rs", "use crate::a;\n"),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let names = ["a", "b", "c"].map(|n| vec![n.to_owned()]);
    assert_eq!(circles(folder.path()), [BTreeSet::from(names)]);
}
