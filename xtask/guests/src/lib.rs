// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with flags of their own that library crates carry inside: the compute node kernel, the first program of a virtual Linux
//! node, and the plugin that counts TLB misses in an emulator.
//!
//! `cargo xtask guests` [builds](build_all) them before the workspace is built, and leaves them in `target/guests`. The build
//! scripts of the two crates only [check and name](Guest::embed) the file: no cargo runs inside cargo.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// The emulator's plugin that feeds a modelled TLB: a shared library.
pub const TLB_PLUGIN: Guest = Guest {
    name: "tlb-plugin",
    sources: &[
        "crates/testbed/tlb-plugin/Cargo.toml",
        "crates/testbed/tlb-plugin/src",
        "crates/testbed/tlb/Cargo.toml",
        "crates/testbed/tlb/src",
    ],
};

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
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map_or_else(PathBuf::new, Path::to_owned)
}

/// Outcome of a build: nothing, or the reason why it failed.
pub type Built = Result<(), Box<dyn Error>>;

/// The profile of the build beside which programs are built. Procedural macros and build scripts are shared with the build
/// that has the same profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// That of tests.
    Dev,
    /// That of programs for users.
    Release,
}

impl Profile {
    /// The profile's folder below the folder of a target.
    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// The folder that cargo builds into.
#[must_use]
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Builds every guest that is not current, into `target/guests`.
///
/// # Errors
/// A build that fails, or a file that cannot be written.
pub fn build_all(profile: Profile) -> Built {
    let root = root();
    let folder = root.join("target/guests");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    build(&KERNEL, &folder, || {
        let to = &folder.join("build");
        // The kernel's other flags are in its folder's configuration. Paths in the file begin at the checkout, so the file
        // is the same wherever it is built.
        let remap = format!("target.{TARGET}.rustflags=[\"--remap-path-prefix={}=.\"]", root.display());
        cargo(
            &root.join("kernel/cnk"),
            Profile::Release,
            None,
            ["--target-dir".as_ref(), to.as_os_str(), "--config".as_ref(), remap.as_ref()],
        )?;
        Ok(to.join(TARGET).join("release/cnk"))
    })?;
    build(&INIT, &folder, || {
        // The guest has no libraries, its image should be small, and a panic is one line on the console. With either profile
        // it is the same program.
        let flags = "-C target-feature=+crt-static -C panic=abort -C strip=symbols -C debuginfo=0 \
            -C opt-level=3 -C debug-assertions=off -C overflow-checks=off";
        Ok(build_static(&[INIT.name], profile, flags)?.join(INIT.name))
    })?;
    build(&TLB_PLUGIN, &folder, || {
        // Called for each memory access of the emulated program, so it is optimised with either profile.
        let to = &folder.join("build");
        let flags = format!("-C panic=abort -C strip=symbols --remap-path-prefix={}=.", root.display());
        let arguments =
            ["--package", "colony-tlb-plugin", "--target", TARGET, "--target-dir"].map(OsStr::new);
        cargo(&root, Profile::Release, Some(&flags), arguments.into_iter().chain([to.as_os_str()]))?;
        Ok(to.join(TARGET).join("release/libcolony_tlb_plugin.so"))
    })
}

/// Builds a guest with `make`, unless its file is newer than its sources.
fn build(guest: &Guest, folder: &Path, make: impl FnOnce() -> Result<PathBuf, Box<dyn Error>>) -> Built {
    let file = folder.join(guest.name);
    if guest.is_current(&root(), &file)? {
        return Ok(());
    }
    eprintln!("building {}", guest.name);
    // The time before the build: a source that changes during the build is newer than the file.
    let began = SystemTime::now();
    let built = make()?;
    replace(&built, &file, Some(began)).map_err(|e| format!("cannot write {}: {e}", file.display()).into())
}

/// Builds programs of the workspace that are linked statically. Returns the folder that they are in.
///
/// Features are those of the whole workspace and the target folder is the common one, so that procedural macros and build
/// scripts are compiled once, for these programs and for all else. `flags` apply to the programs' own crates only.
///
/// # Errors
/// A build that fails.
pub fn build_static(programs: &[&str], profile: Profile, flags: &str) -> Result<PathBuf, Box<dyn Error>> {
    let to = target_folder();
    let mut arguments: Vec<&OsStr> = ["--workspace", "--target", TARGET].map(OsStr::new).to_vec();
    arguments.extend(["--features", "colony-programs/static", "--target-dir"].map(OsStr::new));
    arguments.push(to.as_os_str());
    arguments.extend(programs.iter().flat_map(|program| ["--bin", program]).map(OsStr::new));
    cargo(&root(), profile, Some(flags), arguments)?;
    Ok(to.join(TARGET).join(profile.folder()))
}

/// Runs `cargo build` with the cargo that started this program, in `folder`, without the flags and wrappers of an outer
/// build.
fn cargo<I: AsRef<OsStr>>(
    folder: &Path,
    profile: Profile,
    flags: Option<&str>,
    arguments: impl IntoIterator<Item = I>,
) -> Built {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder).args(["build", "--locked"]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    cargo.args(arguments);
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
    cargo.envs(flags.map(|flags| ("RUSTFLAGS", flags)));
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo in {} ended with {status}", folder.display()).into()),
        Err(e) => Err(format!("cargo cannot be started: {e}").into()),
    }
}

/// Copies a program under another name and renames the copy, so a program that is running is not written over. The copy
/// gets the time `modified`, if there is one.
///
/// # Errors
/// A file that cannot be read or written.
pub fn replace(from: &Path, to: &Path, modified: Option<SystemTime>) -> io::Result<()> {
    let new = to.with_extension(format!("new{}", std::process::id()));
    fs::copy(from, &new)?;
    if let Some(time) = modified {
        fs::File::options().append(true).open(&new)?.set_modified(time)?;
    }
    fs::rename(&new, to)
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
        for source in [KERNEL, INIT, TLB_PLUGIN].iter().flat_map(|g| g.sources) {
            assert!(root().join(source).exists(), "{source}");
        }
    }
}
