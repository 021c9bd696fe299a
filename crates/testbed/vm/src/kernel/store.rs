// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels in the cache: one folder each, as the packages were unpacked, with a record of what they were.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::archive::{Archive, Package};
use super::file::Kernel;
use super::release;
use crate::cache::Lock;
use crate::{VmError, digest};

/// Name of the record in a kernel's folder.
const RECORD: &str = "colony.json";

/// The record of a folder of the cache.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    release: String,
    /// Path of the kernel in the folder.
    file: PathBuf,
    /// Its digest, taken when it was unpacked from a package that the archive vouches for.
    sha256: String,
    /// Path of its modules, if the archive had them.
    modules: Option<PathBuf>,
    packages: Vec<Package>,
}

/// The cache's kernels.
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Releases that are here, the newest last.
    pub(super) fn releases(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let here = entries.filter(|e| e.path().join(RECORD).is_file());
        let mut all: Vec<String> = here.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        all.sort_by(|a, b| release::order(a, b));
        all
    }

    /// The kernel of a release that is here, after holding it against its record.
    pub(super) fn open(&self, release: &str) -> Result<Kernel, VmError> {
        let folder = self.folder.join(release);
        let path = folder.join(RECORD);
        let text = fs::read(&path).map_err(VmError::io(path.display().to_string()))?;
        let broken = |reason: String| VmError::File {
            path: folder.clone(),
            reason: format!("{reason}; remove the folder, and the kernel is fetched again"),
        };
        let record: Record = serde_json::from_slice(&text).map_err(|e| broken(e.to_string()))?;
        let file = folder.join(&record.file);
        let data = fs::read(&file).map_err(|e| broken(e.to_string()))?;
        if digest::hex(&data) != record.sha256 {
            return Err(broken("the kernel is not the one that was fetched".into()));
        }
        Ok(Kernel::of_cache(record.release, file, record.modules.map(|m| folder.join(m))))
    }

    /// Fetches a release; does nothing if another program has meanwhile. `false` where the archive does not have it.
    pub(super) fn fetch(
        &self,
        archive: &Archive,
        release: &str,
        notice: &mut dyn FnMut(&str),
    ) -> Result<bool, VmError> {
        let lock = self.folder.join(".lock");
        let _lock = Lock::wait(&lock, || notice("waiting for another program that fetches a kernel"))?;
        if self.releases().iter().any(|r| r == release) {
            return Ok(true);
        }
        let packages = archive.packages(release)?;
        if packages.is_empty() {
            return Ok(false);
        }
        self.clean();
        let temporary = tempfile::Builder::new()
            .prefix(".fetch-")
            .tempdir_in(&self.folder)
            .map_err(VmError::io("a folder for a kernel"))?;
        for (i, package) in packages.iter().enumerate() {
            notice(&format!("fetching {} ({} of {})", package.name, i + 1, packages.len()));
            archive.unpack(package, temporary.path())?;
        }
        let record = record(release, packages, temporary.path())?;
        if record.modules.is_none() {
            // superseded releases lose their parts one by one
            notice(&format!(
                "the archive has no modules of {release} any more: machines cannot be on a network"
            ));
        }
        let text = serde_json::to_vec_pretty(&record).map_err(std::io::Error::other);
        text.and_then(|text| fs::write(temporary.path().join(RECORD), text))
            .and_then(|()| fs::rename(temporary.path(), self.folder.join(release)))
            .map_err(VmError::io(format!("keeping the kernel {release}")))?;
        Ok(true)
    }

    /// Removes what a fetch that was killed has left; the caller holds the lock.
    fn clean(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(".fetch-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn record(release: &str, packages: Vec<Package>, folder: &Path) -> Result<Record, VmError> {
    let places = ["usr/lib/modules", "lib/modules"].map(|p| Path::new(p).join(release));
    let files = places.iter().map(|p| p.join("vmlinuz"));
    let file = std::iter::once(PathBuf::from(format!("boot/vmlinuz-{release}"))).chain(files);
    let file = file.into_iter().find(|p| folder.join(p).is_file()).ok_or_else(|| VmError::NoKernel {
        wanted: release.into(),
        reason: "the archive's packages hold no kernel where Debian has it; take another release".into(),
    })?;
    let modules = places.into_iter().find(|p| folder.join(p).join("kernel").is_dir());
    let data = fs::read(folder.join(&file)).map_err(VmError::io(file.display().to_string()))?;
    Ok(Record { release: release.into(), file, sha256: digest::hex(&data), modules, packages })
}
