// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every source file names its licence in its first lines, as LICENSE says.

use std::process::Command;

use crate::{read, root};

/// The licence that LICENSE gives a file: programs that run inside the Linux kernel are under the kernel's.
fn licence(name: &str) -> &'static str {
    let in_the_kernel = name.contains("/bpf/") && !name.ends_with(".rs");
    if in_the_kernel { "GPL-2.0" } else { "MIT OR Apache-2.0" }
}

/// Returns `true` if a tracked file is a source of ours; the minified chart library has its licence beside it.
fn is_source(name: &str) -> bool {
    const KINDS: [&str; 14] =
        ["rs", "c", "h", "cpp", "hpp", "f90", "s", "ld", "sh", "py", "pyi", "sql", "js", "css"];
    let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
    (KINDS.contains(&kind) && !name.ends_with(".min.js")) || ["x", ".ci/root", ".ci/run"].contains(&name)
}

#[test]
fn every_source_file_names_its_licence() {
    let out = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let Some(out) = out.ok().filter(|o| o.status.success()) else {
        return colony_testing::skip("git lists no files here: no checkout");
    };
    let names = String::from_utf8(out.stdout).expect("names of ours");
    let sources: Vec<&str> = names.split('\0').filter(|n| is_source(n) && root().join(n).is_file()).collect();
    assert!(sources.len() > 600, "only {} sources", sources.len());
    let wanting = sources.into_iter().filter(|name| {
        let text = read(&root().join(name));
        let line = text.lines().take(2).find_map(|l| l.split("SPDX-License-Identifier: ").nth(1));
        line.map(|l| l.trim_end_matches("*/").trim()) != Some(licence(name))
    });
    let wanting: Vec<&str> = wanting.collect();
    assert!(
        wanting.is_empty(),
        "no line `SPDX-License-Identifier: …` with the licence of LICENSE: {wanting:?}"
    );
}
