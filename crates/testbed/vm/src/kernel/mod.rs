// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels of guests: a file of the host, or one of Debian's, kept in the cache.

mod archive;
mod file;
mod release;
mod store;
mod vmlinux;

use std::path::{Path, PathBuf};

pub use self::file::Kernel;

use self::archive::Archive;
use self::store::Store;
use crate::{VmError, cache};

/// The release that is taken unless another is asked for, so that what was measured can be measured again.
pub const DEFAULT: &str = include_str!("../../../../../images/kernel").trim_ascii();

/// A release that can be had.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Available {
    /// As `uname -r` says it.
    pub release: String,
    /// True if it is in the cache.
    pub cached: bool,
    /// True if it is the default.
    pub default: bool,
}

impl Kernel {
    /// The kernel that `wanted` means: a file (with a slash), a release, the beginning of one (`7.3`: the newest of
    /// them), or, empty, [`DEFAULT`]. What the cache has is taken from there; else it is fetched from Debian's archive.
    ///
    /// # Errors
    /// No such kernel, or the archive cannot be reached.
    pub fn find(wanted: &str) -> Result<Self, VmError> {
        Self::find_telling(wanted, &mut |text| tracing::info!("{text}"))
    }

    /// As [`Kernel::find`]; what takes long is told through `notice`.
    ///
    /// # Errors
    /// As [`Kernel::find`].
    pub fn find_telling(wanted: &str, notice: &mut dyn FnMut(&str)) -> Result<Self, VmError> {
        if wanted.contains('/') {
            return Self::at(wanted, modules_beside(Path::new(wanted)));
        }
        let store = Store::new(cache::folder("kernels")?);
        let open_archive = || Archive::open(&cache::folder("apt")?, None);
        find(wanted, &store, open_archive, notice)
    }
}

/// The kernels in the cache and, if `archive`, those that can be fetched; the newest last.
///
/// # Errors
/// The archive cannot be reached.
pub fn available(archive: bool, notice: &mut dyn FnMut(&str)) -> Result<Vec<Available>, VmError> {
    let cached = Store::new(cache::folder("kernels")?).releases();
    let mut all = cached.clone();
    if archive {
        let archive = Archive::open(&cache::folder("apt")?, None)?;
        archive.update(notice)?;
        all.extend(archive.releases()?);
    }
    all.sort_by(|a, b| release::order(a, b));
    all.dedup();
    let available = |release: String| Available {
        cached: cached.contains(&release),
        default: release == DEFAULT,
        release,
    };
    Ok(all.into_iter().map(available).collect())
}

fn find(
    wanted: &str,
    store: &Store,
    open_archive: impl Fn() -> Result<Archive, VmError>,
    notice: &mut dyn FnMut(&str),
) -> Result<Kernel, VmError> {
    let asked = if wanted.is_empty() { DEFAULT } else { wanted };
    if let Some(release) = release::newest(asked, &store.releases()) {
        return store.open(release);
    }
    let archive = open_archive()?;
    archive.update(notice)?;
    let offered = archive.releases()?;
    let mut release = release::newest(asked, &offered).map_or(asked, String::as_str);
    let nearest = release::nearest(asked, &offered).map_or("none", String::as_str);
    if wanted.is_empty() && !offered.is_empty() && !offered.iter().any(|r| r == release) {
        release = nearest;
        notice(&format!("the archive no longer has the kernel {DEFAULT}: taking {release}"));
        if store.releases().iter().any(|r| r == release) {
            return store.open(release);
        }
    }
    if store.fetch(&archive, release, notice)? {
        return store.open(release);
    }
    Err(VmError::NoKernel {
        wanted: asked.into(),
        reason: format!(
            "the archive has no such release, and the nearest is {nearest}; `colony vm kernels --available` lists all"
        ),
    })
}

/// The modules of a kernel file that lies where distributions put it.
fn modules_beside(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    if folder.join("kernel").is_dir() {
        return Some(folder.into());
    }
    let release = file.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let root = folder.parent()?;
    let places = [root.join("usr/lib/modules").join(release), root.join("lib/modules").join(release)];
    places.into_iter().find(|p| p.is_dir())
}

#[cfg(test)]
mod tests;
