// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the compute node kernel, which the library carries inside: whoever boots a node needs no second file.
//!
//! It is a cargo build inside a cargo build, in a folder of its own: the kernel has flags and a lock file of its own.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the kernel is built for, as its configuration says.
const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kernel = here.join("../../../kernel/cnk");
    for watched in ["src", "Cargo.toml", "Cargo.lock", "build.rs", "linker.ld", ".cargo"] {
        println!("cargo::rerun-if-changed={}", kernel.join(watched).display());
    }
    println!("cargo::rerun-if-changed={}", here.join("../fship/src").display());
    let variable = |name: &str| PathBuf::from(env::var_os(name).unwrap_or_default());
    let folder = variable("OUT_DIR").join("kernel");
    let mut cargo = Command::new(variable("CARGO"));
    // the kernel's own flags are in its folder's configuration
    cargo
        .current_dir(&kernel)
        .args(["build", "--quiet", "--locked", "--release", "--target-dir"])
        .arg(&folder);
    // the same kernel wherever it is built: paths in it are told from the checkout on
    let root = here.join("../../..").canonicalize().unwrap_or_default();
    let remap = format!("--remap-path-prefix={}=.", root.display());
    cargo.args(["--config", &format!("target.{TARGET}.rustflags=[{remap:?}]")]);
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    // lints and coverage of the outer build are not for this one
    cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the compute node kernel: cargo ended with {status}"),
        Err(e) => panic!("building the compute node kernel: cargo cannot be started: {e}"),
    }
    let file = folder.join(TARGET).join("release/cnk");
    println!("cargo::rustc-env=COLONY_CNK={}", file.display());
}
