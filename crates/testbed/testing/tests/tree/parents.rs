// SPDX-License-Identifier: MIT OR Apache-2.0
//! The death signal of a parent is set in one place, which knows its traps.

use crate::{crates, read, root, rust_files};

/// The only file that may make the setting.
const PLACE: &str = "crates/base/node/src/parent.rs";

/// The setting as the libraries name it.
const NAMES: [&str; 2] = ["set_pdeathsig", "PR_SET_PDEATHSIG"];

#[test]
fn the_death_signal_of_a_parent_is_set_in_one_place() {
    let root = root();
    let place = root.join(PLACE);
    let sets = |file: &std::path::Path| {
        let text = read(file);
        let mut code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        code.any(|line| NAMES.iter().any(|name| line.contains(name)))
    };
    assert!(sets(&place), "{PLACE} makes the setting");
    let sources = crates().into_iter().map(|folder| folder.join("src"));
    let others: Vec<_> = sources
        .flat_map(|source| rust_files(&source))
        .filter(|file| file.canonicalize().ok() != place.canonicalize().ok() && sets(file))
        .collect();
    assert!(others.is_empty(), "use colony_node::parent instead of the bare setting: {others:?}");
}
