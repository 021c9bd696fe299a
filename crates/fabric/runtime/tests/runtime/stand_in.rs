// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that stand in for those of the system, such as `ssh`.

/// A folder with a program of this name, which stands in for one of the system.
pub(crate) fn stand_in(name: &str, script: &str) -> (tempfile::TempDir, std::ffi::OsString) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("room");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let mut path = folder.path().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    (folder, path)
}
