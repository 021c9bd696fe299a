// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the source tree: what documents name exists, and every file names its licence.

mod circles;
mod dependencies;
mod kernel;
mod licence;
mod names;
mod parents;
mod specification;
mod targets;
mod users;
mod words;

use std::path::{Path, PathBuf};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The folders of all crates: `crates/ROOM/CRATE`.
fn crates() -> Vec<PathBuf> {
    let folders = |of: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(of).unwrap_or_else(|e| panic!("{}: {e}", of.display()));
        entries.map(|e| e.expect("readable").path()).filter(|p| p.is_dir()).collect()
    };
    folders(&root().join("crates")).iter().flat_map(|room| folders(room)).collect()
}

/// The text of a file.
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All Rust files below a folder; none where it does not exist.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.map(|e| e.expect("readable").path()) {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
