// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel on this machine: a file, and the folder of its modules.

use std::fs;
use std::path::{Path, PathBuf};

use super::vmlinux;
use crate::{VmError, cache};

/// A kernel that a machine can start.
#[derive(Debug, Clone)]
pub struct Kernel {
    release: String,
    pub(super) file: PathBuf,
    modules: Option<PathBuf>,
}

impl Kernel {
    /// A kernel that was checked when it came into the cache.
    pub(super) const fn of_cache(release: String, file: PathBuf, modules: Option<PathBuf>) -> Self {
        Self { release, file, modules }
    }

    /// A kernel file (`vmlinuz`, or an uncompressed `vmlinux`), and the folder of its modules where it has one.
    ///
    /// # Errors
    /// The file is no kernel.
    pub fn at(file: impl Into<PathBuf>, modules: Option<PathBuf>) -> Result<Self, VmError> {
        let file = file.into();
        let data = fs::read(&file).map_err(VmError::io(format!("the kernel {}", file.display())))?;
        let release = vmlinux::release(&data).ok_or_else(|| VmError::File {
            path: file.clone(),
            reason: "it is no Linux kernel for x86; name a vmlinuz".into(),
        })?;
        Ok(Self { release, file, modules })
    }

    /// The release, as `uname -r` says it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The folder of its modules, if it has one.
    #[must_use]
    pub fn modules(&self) -> Option<&Path> {
        self.modules.as_deref()
    }

    /// The file to start: uncompressed where that can be had, since a guest without acceleration takes a second
    /// to do it. The uncompressed file is kept in the cache.
    pub(crate) fn bootable(&self) -> Result<PathBuf, VmError> {
        vmlinux::uncompressed(&self.file, &cache::folder("kernels")?)
    }
}
