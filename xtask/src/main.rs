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
Usage: cargo xtask COMMAND

  guests            the compute node kernel and the first program of virtual nodes, into target/guests;
                    the crates that carry them inside need them before they are built
  static [FOLDER]   programs for the compute node kernel, linked statically [default: target/static]

./x runs both where they are needed.";

/// The programs that run unmodified on the compute node kernel and on Linux: one file each, without an interpreter. Package,
/// kind of target, name.
const STATIC_PROGRAMS: [(&str, &str, &str); 11] = [
    ("colony-bench", "bin", "colony-nas"),
    ("colony-bench", "bin", "colony-bench-cnk"),
    ("colony-selfish", "bin", "colony-selfish"),
    ("colony-conform", "bin", "colony-conform"),
    ("colony-conform", "bin", "colony-calls"),
    ("colony-conform", "bin", "colony-extremes"),
    ("colony-conform", "bin", "colony-ior"),
    ("colony-conform", "bin", "colony-tokio"),
    ("colony-runtime", "example", "ring"),
    ("colony-runtime", "example", "stencil"),
    ("colony-runtime", "example", "lb_test"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["guests"] => guests(),
        ["static"] => static_programs(&target_folder().join("static")),
        ["static", folder] => static_programs(Path::new(folder)),
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

/// The folder that cargo builds into.
fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Runs the cargo that started this program, in `folder`, without the flags and wrappers of an outer build.
fn cargo<I: AsRef<OsStr>>(
    folder: &Path,
    flags: Option<&str>,
    arguments: impl IntoIterator<Item = I>,
) -> Done {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder).args(["build", "--locked", "--release"]).args(arguments);
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

fn guests() -> Done {
    let root = root();
    let folder = root.join("target/guests");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    build(&KERNEL, &folder, |to| {
        // the kernel's other flags are in its folder's configuration; the same file wherever it is built: paths in it
        // begin at the checkout
        let remap = format!("target.{TARGET}.rustflags=[\"--remap-path-prefix={}=.\"]", root.display());
        cargo(
            &root.join("kernel/cnk"),
            None,
            ["--target-dir".as_ref(), to.as_os_str(), "--config".as_ref(), remap.as_ref()],
        )?;
        Ok(to.join(TARGET).join("release/cnk"))
    })?;
    build(&INIT, &folder, |to| {
        // no libraries in the guest; a small image; a panic is one line on the console
        let flags = "-C target-feature=+crt-static -C panic=abort -C strip=symbols -C debuginfo=0";
        let package = ["--package", INIT.name, "--target", TARGET, "--target-dir"].map(OsStr::new);
        cargo(&root, Some(flags), package.into_iter().chain([to.as_os_str()]))?;
        Ok(to.join(TARGET).join("release").join(INIT.name))
    })
}

/// Builds one of them, unless it is newer than its sources.
fn build(guest: &Guest, folder: &Path, make: impl FnOnce(&Path) -> Result<PathBuf, Box<dyn Error>>) -> Done {
    let file = folder.join(guest.name);
    if guest.is_current(&root(), &file)? {
        return Ok(());
    }
    eprintln!("building {}", guest.name);
    // before the build: a source that changes meanwhile is newer
    let began = SystemTime::now();
    let built = make(&folder.join("build"))?;
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

fn static_programs(to: &Path) -> Done {
    let root = root();
    let to = root.join(to);
    let flags = format!("{} -C target-feature=+crt-static", std::env::var("RUSTFLAGS").unwrap_or_default());
    let mut arguments = vec!["--config", "profile.release.strip=\"debuginfo\"", "--target", TARGET];
    for &(package, kind, program) in &STATIC_PROGRAMS {
        let target = if kind == "example" { "--example" } else { "--bin" };
        arguments.extend(["--package", package, target, program]);
    }
    let folder = to.to_str().ok_or("the folder's name is not UTF-8")?;
    arguments.extend(["--target-dir", folder]);
    cargo(&root, Some(flags.trim()), &arguments)?;
    for (_, kind, program) in &STATIC_PROGRAMS {
        let (built, file) = (to.join(TARGET).join("release"), to.join(program));
        let built = if *kind == "example" { built.join("examples") } else { built };
        replace(&built.join(program), &file, None)
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}
