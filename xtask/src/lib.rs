// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with flags of their own that library crates carry inside: the compute node kernel, and the first program
//! of a virtual Linux node.
//!
//! `cargo xtask guests` builds them before the workspace is built, and leaves them in `target/guests`. The build scripts of
//! the two crates only [check and name](Guest::embed) the file: no cargo runs inside cargo.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The target of the programs.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A program that a crate carries inside.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Name of the file below `target/guests`.
    pub name: &'static str,
    /// Files and folders it is built from, from the root of the checkout.
    pub sources: &'static [&'static str],
}

/// The compute node kernel: an ELF file with a PVH entry.
pub const KERNEL: Guest = Guest {
    name: "cnk",
    sources: &[
        "kernel/cnk/.cargo",
        "kernel/cnk/Cargo.lock",
        "kernel/cnk/Cargo.toml",
        "kernel/cnk/build.rs",
        "kernel/cnk/linker.ld",
        "kernel/cnk/src",
        "kernel/logic/Cargo.toml",
        "kernel/logic/src",
        "crates/machine/fship/Cargo.toml",
        "crates/machine/fship/src",
    ],
};

/// The first program of a virtual Linux node, static.
pub const INIT: Guest =
    Guest { name: "colony-init", sources: &["crates/testbed/init/Cargo.toml", "crates/testbed/init/src"] };

impl Guest {
    /// Returns `true` if `built` is there and no source below `root` is newer.
    ///
    /// # Errors
    /// A source that cannot be read.
    pub fn is_current(&self, root: &Path, built: &Path) -> io::Result<bool> {
        let Ok(built) = built.metadata().and_then(|m| m.modified()) else { return Ok(false) };
        for source in self.sources {
            if newest(&root.join(source))? > built {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// For a build script: sets the environment variable `variable` of the crate to the program's file, and has cargo run
    /// the script again when the file or a source changes.
    ///
    /// # Errors
    /// A file that is not there or is older than its sources; the text says what to run.
    pub fn embed(&self, variable: &str) -> Result<(), String> {
        let root = root();
        println!("cargo::rerun-if-env-changed=COLONY_GUESTS");
        let folder =
            std::env::var_os("COLONY_GUESTS").map_or_else(|| root.join("target/guests"), PathBuf::from);
        let file = folder.join(self.name);
        println!("cargo::rerun-if-changed={}", file.display());
        for source in self.sources {
            println!("cargo::rerun-if-changed={}", root.join(source).display());
        }
        match self.is_current(&root, &file) {
            Ok(true) => println!("cargo::rustc-env={variable}={}", file.display()),
            Ok(false) => {
                return Err(format!(
                    "{} is not there, or older than its sources: run `cargo xtask guests` first (./x does so by itself)",
                    file.display()
                ));
            }
            Err(e) => return Err(format!("the sources of {} cannot be read: {e}", self.name)),
        }
        Ok(())
    }
}

/// The root of the checkout.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// The time of the last change to a file, or to a folder and all below it.
fn newest(path: &Path) -> io::Result<SystemTime> {
    let metadata =
        path.metadata().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    let mut newest = metadata.modified()?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            newest = newest.max(self::newest(&entry?.path())?);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_program_is_current_until_a_source_changes() {
        let root = tempfile::tempdir().expect("a folder");
        let guest = Guest { name: "program", sources: &["src", "Cargo.toml"] };
        let (built, source) = (root.path().join("program"), root.path().join("src/deep/main.rs"));
        assert!(!guest.is_current(root.path(), &built).expect("nothing is built yet"));
        fs::create_dir_all(root.path().join("src/deep")).expect("a folder");
        for file in [&source, &root.path().join("Cargo.toml"), &built] {
            fs::write(file, "").expect("a file");
        }
        assert!(guest.is_current(root.path(), &built).expect("readable"));
        let change = SystemTime::now() + Duration::from_secs(60);
        fs::File::options()
            .write(true)
            .open(&source)
            .and_then(|f| f.set_modified(change))
            .expect("a file of ours");
        assert!(!guest.is_current(root.path(), &built).expect("readable"));
        fs::remove_file(root.path().join("Cargo.toml")).expect("a file of ours");
        fs::File::options()
            .write(true)
            .open(&source)
            .and_then(|f| f.set_modified(SystemTime::UNIX_EPOCH))
            .expect("ours");
        assert!(guest.is_current(root.path(), &built).is_err(), "a source is missing");
    }

    #[test]
    fn every_source_is_in_the_checkout() {
        for source in [KERNEL, INIT].iter().flat_map(|g| g.sources) {
            assert!(root().join(source).exists(), "{source}");
        }
    }
}
