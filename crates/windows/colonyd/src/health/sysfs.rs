// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short files below a root, such as `/sys`.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The most bytes of a file that are read.
const LARGEST: u64 = 4096;

/// A tree of short files.
#[derive(Clone, Debug)]
pub(super) struct Sysfs(pub(super) PathBuf);

impl Sysfs {
    /// The entries of a folder that begin with `prefix`, by name. None if the folder does not exist.
    pub(super) fn entries(&self, folder: &str, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        names
    }

    /// The number in a file. `None` if the file is missing, or holds no number.
    pub(super) fn number<N: FromStr>(&self, path: &str) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// The text of a file.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        first_line(&self.0.join(path))
    }
}

/// The first line of a regular file, without blanks around it. `None` if there is no such file.
pub(super) fn first_line(path: &Path) -> Option<String> {
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().trim().to_owned())
}
