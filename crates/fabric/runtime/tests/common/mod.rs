// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples that tests start.

use std::path::{Path, PathBuf};

/// An example of this package, which cargo builds before its tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(Path::parent).expect("the profile's folder");
    folder.join("examples").join(name)
}
