// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles a BPF object from a build script.

use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Compiles `source` (relative to the crate) and writes its skeleton to `$OUT_DIR/<name>.skel.rs`.
///
/// The compiler is `$CLANG`, else the newest clang found.
///
/// # Panics
/// If the source does not compile: a build script has nobody to return an error to.
pub fn skeleton(source: &str, name: &str) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let out =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join(format!("{name}.skel.rs"));
    SkeletonBuilder::new()
        .source(source)
        .clang(clang())
        .clang_args([format!("-I{}", include.display()), "-mcpu=v3".into(), "-Wall".into(), "-Werror".into()])
        .build_and_generate(out)
        .unwrap_or_else(|e| panic!("compiling {source}: {e:?}"));
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed={}", include.display());
    println!("cargo::rerun-if-env-changed=CLANG");
}

fn clang() -> PathBuf {
    let works = |c: &PathBuf| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    std::env::var_os("CLANG")
        .map(PathBuf::from)
        .or_else(|| ["clang-19", "clang-20", "clang-18", "clang"].map(PathBuf::from).into_iter().find(works))
        .expect("BPF programs need clang 18 or newer: run ./x setup, or set CLANG")
}
