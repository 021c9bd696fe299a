// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: builds with flags of their own, which a plain `cargo build` cannot express.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use xtask::{Guest, INIT, KERNEL, TARGET, root};

const HELP: &str = "\
Usage: cargo xtask COMMAND [--release]

  guests            the compute node kernel and the first program of virtual nodes, into target/guests;
                    the crates that carry them inside need them before they are built
  static [FOLDER]   programs for the compute node kernel, linked statically [default: target/static]

Procedural macros and build scripts are shared with the build that has the same profile, dev or with --release.
./x runs both where they are needed.";

/// The programs that run unmodified on the compute node kernel and on Linux: one file each, without an interpreter.
const STATIC_PROGRAMS: [&str; 11] = [
    "colony-nas",
    "colony-bench-cnk",
    "colony-selfish",
    "colony-conform",
    "colony-calls",
    "colony-extremes",
    "colony-ior",
    "colony-tokio",
    "ring",
    "stencil",
    "lb_test",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (options, words): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| *word == "--release");
    let profile = if options.is_empty() { Profile::Dev } else { Profile::Release };
    let result = match words[..] {
        ["guests"] => guests(profile),
        ["static"] => static_programs(&target_folder().join("static"), profile),
        ["static", folder] => static_programs(Path::new(folder), profile),
        [] | ["help" | "-h" | "--help"] => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}\n\nerror: there is no `cargo xtask {}`", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), Box<dyn Error>>;

/// The profile of the build beside which programs are built.
#[derive(Clone, Copy)]
enum Profile {
    Dev,
    Release,
}

impl Profile {
    /// Its folder below the folder of a target.
    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// The folder that cargo builds into.
fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Runs the cargo that started this program, in `folder`, without the flags and wrappers of an outer build.
fn cargo<I: AsRef<OsStr>>(
    folder: &Path,
    profile: Profile,
    flags: Option<&str>,
    arguments: impl IntoIterator<Item = I>,
) -> Done {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder).args(["build", "--locked"]);
    if matches!(profile, Profile::Release) {
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

/// Builds programs of the workspace that are linked statically. Returns the folder that they are in.
///
/// Features are those of the whole workspace and the target folder is the common one, so that procedural macros and build
/// scripts are compiled once, for these programs and for all else. `RUSTFLAGS` applies to the programs' own crates only.
fn build_static(programs: &[&str], profile: Profile, flags: &str) -> Result<PathBuf, Box<dyn Error>> {
    let to = target_folder();
    let mut arguments: Vec<&OsStr> = ["--workspace", "--target", TARGET].map(OsStr::new).to_vec();
    arguments.extend(["--features", "colony-programs/static", "--target-dir"].map(OsStr::new));
    arguments.push(to.as_os_str());
    arguments.extend(programs.iter().flat_map(|program| ["--bin", program]).map(OsStr::new));
    cargo(&root(), profile, Some(flags), arguments)?;
    Ok(to.join(TARGET).join(profile.folder()))
}

fn guests(profile: Profile) -> Done {
    let root = root();
    let folder = root.join("target/guests");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    build(&KERNEL, &folder, || {
        let to = &folder.join("build");
        // the kernel's other flags are in its folder's configuration; the same file wherever it is built: paths in it
        // begin at the checkout
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
        // no libraries in the guest; a small image; a panic is one line on the console; with either profile the same program
        let flags = "-C target-feature=+crt-static -C panic=abort -C strip=symbols -C debuginfo=0 \
            -C opt-level=3 -C debug-assertions=off -C overflow-checks=off";
        Ok(build_static(&[INIT.name], profile, flags)?.join(INIT.name))
    })
}

/// Builds one of them, unless it is newer than its sources.
fn build(guest: &Guest, folder: &Path, make: impl FnOnce() -> Result<PathBuf, Box<dyn Error>>) -> Done {
    let file = folder.join(guest.name);
    if guest.is_current(&root(), &file)? {
        return Ok(());
    }
    eprintln!("building {}", guest.name);
    // before the build: a source that changes meanwhile is newer
    let began = SystemTime::now();
    let built = make()?;
    replace(&built, &file, Some(began)).map_err(|e| format!("cannot write {}: {e}", file.display()).into())
}

/// Copies a program to its place, under another name first: a program that runs is not written over.
fn replace(from: &Path, to: &Path, modified: Option<SystemTime>) -> io::Result<()> {
    let new = to.with_extension(format!("new{}", std::process::id()));
    fs::copy(from, &new)?;
    if let Some(time) = modified {
        fs::File::options().append(true).open(&new)?.set_modified(time)?;
    }
    fs::rename(&new, to)
}

fn static_programs(to: &Path, profile: Profile) -> Done {
    let to = root().join(to);
    fs::create_dir_all(&to).map_err(|e| format!("cannot create {}: {e}", to.display()))?;
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{flags} -C target-feature=+crt-static -C strip=debuginfo");
    let built = build_static(&STATIC_PROGRAMS, profile, flags.trim())?;
    for program in STATIC_PROGRAMS {
        let file = to.join(program);
        replace(&built.join(program), &file, None)
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}
