// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder where kernels and images are kept, and the locks that keep several programs from each other's way.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::VmError;

/// A folder of the cache, made where it is missing: in `$COLONY_CACHE`, else `$XDG_CACHE_HOME/colony`, else
/// `~/.cache/colony`.
///
/// # Errors
/// No home, or a folder that cannot be made.
pub fn folder(name: &str) -> Result<PathBuf, VmError> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let root = set("COLONY_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("colony")))
        .or_else(|| Some(std::env::home_dir()?.join(".cache/colony")))
        .ok_or_else(|| VmError::Wrong("there is no home folder; set COLONY_CACHE to a folder".into()))?;
    let folder = root.join(name);
    fs::create_dir_all(&folder).map_err(VmError::io(format!("the cache folder {}", folder.display())))?;
    Ok(folder)
}

/// Writes `data` to a file of the cache, whole or not at all.
pub(crate) fn keep(path: &Path, data: &[u8]) -> Result<(), VmError> {
    colony_node::file::write_atomically(path, |out| out.write_all(data))
        .map_err(VmError::io(format!("keeping {}", path.display())))
}

/// A lock between programs, free again when dropped or when its holder dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock `path`; says so through `waiting` where another holds it.
    pub(crate) fn wait(path: &PathBuf, waiting: impl FnOnce()) -> Result<Self, VmError> {
        if let Some(lock) = Self::now(path)? {
            return Ok(lock);
        }
        waiting();
        let file = open(path)?;
        file.lock().map_err(VmError::io(format!("the lock {}", path.display())))?;
        Ok(Self { _file: file })
    }

    /// The lock `path`, if nobody holds it.
    pub(crate) fn now(path: &PathBuf) -> Result<Option<Self>, VmError> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(VmError::io(format!("the lock {}", path.display()))(e)),
        }
    }
}

fn open(path: &PathBuf) -> Result<File, VmError> {
    let open = || -> io::Result<File> {
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
    };
    open().map_err(VmError::io(format!("the lock {}", path.display())))
}
