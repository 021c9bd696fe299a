// SPDX-License-Identifier: MIT OR Apache-2.0
//! The size of the compute node kernel.

use std::path::Path;

use crate::{read, root};

/// Lines of Rust and assembly below a folder, without tests, blank lines and comments.
fn lines(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.map(|path| if path.is_dir() { lines(&path) } else { lines_of(&path) }).sum()
}

fn lines_of(file: &Path) -> usize {
    let comment = match file.extension().and_then(|e| e.to_str()) {
        // the module for the tests
        Some("rs") if !file.ends_with("logic/src/testing.rs") => "//",
        Some("s") => "#",
        _ => return 0,
    };
    let text = read(file);
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let counts = |line: &&str| !line.is_empty() && !line.starts_with(comment) && *line != "mod testing;";
    code.lines().map(str::trim).filter(counts).filter(|line| *line != "#[cfg(test)]").count()
}

#[test]
fn the_kernel_has_at_most_5500_lines() {
    let kernel = lines(&root().join("kernel/cnk/src")) + lines(&root().join("kernel/logic/src"));
    println!("the kernel has {kernel} lines");
    assert!(kernel <= 5500, "the kernel has {kernel} lines");
}
