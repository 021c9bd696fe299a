// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the guest's first program as a static binary, which the library carries inside: whoever starts a
//! machine needs no second file, wherever it was installed.
//!
//! It is a cargo build inside a cargo build, in a folder of its own, since cargo cannot depend on another
//! package's program yet.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("../init");
    for watched in ["src", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", init.join(watched).display());
    }
    let variable = |name: &str| PathBuf::from(env::var_os(name).unwrap_or_default());
    let (out, target) = (variable("OUT_DIR"), env::var("TARGET").unwrap_or_default());
    let folder = out.join("init");
    let status = Command::new(variable("CARGO"))
        .args(["build", "--quiet", "--locked", "--release", "--target", &target, "--manifest-path"])
        .arg(init.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        // no libraries in the guest; a small image; a panic is one line on the console
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C panic=abort -C strip=symbols -C debuginfo=0")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        // lints and coverage of the outer build are not for this one
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_TARGET_DIR")
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the guest's first program: cargo ended with {status}"),
        Err(e) => panic!("building the guest's first program: cargo cannot be started: {e}"),
    }
    let program = folder.join(target).join("release/colony-init");
    println!("cargo::rustc-env=COLONY_INIT={}", program.display());
}
