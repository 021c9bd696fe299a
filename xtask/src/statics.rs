// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that run unmodified on the compute node kernel and on Linux: one file each, without an interpreter.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use guests::{TARGET, cargo, replace, root};

/// Package, kind of target, name.
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

/// Builds the programs and copies them into the folder `to`. Prints their paths.
///
/// # Errors
/// A build that fails, a program that asks for an interpreter, or a file that cannot be written.
pub(crate) fn build(to: &Path) -> Result<()> {
    let root = root();
    let to = root.join(to);
    let flags = format!("{} -C target-feature=+crt-static", std::env::var("RUSTFLAGS").unwrap_or_default());
    let mut arguments = vec!["--config", "profile.release.strip=\"debuginfo\"", "--target", TARGET];
    for &(package, kind, program) in &STATIC_PROGRAMS {
        let target = if kind == "example" { "--example" } else { "--bin" };
        arguments.extend(["--package", package, target, program]);
    }
    let folder = to.to_str().context("the folder's name is not UTF-8")?;
    arguments.extend(["--target-dir", folder]);
    cargo(&root, Some(flags.trim()), &arguments).map_err(|e| anyhow::anyhow!("{e}"))?;
    for (_, kind, program) in &STATIC_PROGRAMS {
        let (built, file) = (to.join(TARGET).join("release"), to.join(program));
        let built = if *kind == "example" { built.join("examples") } else { built };
        let image = std::fs::read(built.join(program)).with_context(|| format!("cannot read {program}"))?;
        if asks_for_an_interpreter(&image)? {
            bail!("{program} asks for an interpreter, so it is not static");
        }
        replace(&built.join(program), &file, None)
            .with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Returns `true` if an ELF file has a segment `PT_INTERP`: the kernel would start a dynamic linker.
///
/// # Errors
/// A file that is no 64-bit ELF file, or whose table of segments lies outside of the file.
fn asks_for_an_interpreter(image: &[u8]) -> Result<bool> {
    const PT_INTERP: u32 = 3;
    if image.get(..5) != Some(b"\x7fELF\x02") {
        bail!("this is no 64-bit ELF file");
    }
    // ELF-64 object file format: e_phoff at 32, e_phentsize at 54, e_phnum at 56; p_type begins an entry
    let number = |at: usize, bytes: usize| {
        let field = image.get(at..at + bytes).context("the ELF file is cut off")?;
        Ok::<_, anyhow::Error>(field.iter().rev().fold(0_usize, |n, &byte| n << 8 | usize::from(byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for entry in 0..count {
        let at = size.checked_mul(entry).and_then(|offset| table.checked_add(offset));
        if number(at.context("the ELF file is damaged")?, 4)? == PT_INTERP as usize {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_asks_for_an_interpreter_and_damaged_files_are_errors() {
        let image = std::fs::read(std::env::current_exe().expect("Linux")).expect("readable");
        assert!(asks_for_an_interpreter(&image).expect("an ELF file"));
        assert!(asks_for_an_interpreter(&image[..60]).is_err());
        assert!(asks_for_an_interpreter(b"#!/bin/sh").is_err());
        let mut without = image;
        without[56..58].fill(0);
        assert!(!asks_for_an_interpreter(&without).expect("an ELF file"));
    }
}
