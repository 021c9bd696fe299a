// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that run unmodified on the compute node kernel and on Linux: one file each, without an interpreter.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use guests::{Profile, build_static, replace, root};

const STATIC_PROGRAMS: [&str; 12] = [
    "colony-nas",
    "colony-bench-cnk",
    "colony-selfish",
    "colony-conform",
    "colony-calls",
    "colony-extremes",
    "colony-ior",
    "colony-stream",
    "colony-tokio",
    "ring",
    "stencil",
    "lb_test",
];

/// Builds the programs `names`, or all if there is no name, and copies them into the folder `to`. Prints their paths.
///
/// # Errors
/// A name of no static program, a build that fails, a program that asks for an interpreter, or a file that cannot be written.
pub(crate) fn build(to: &Path, profile: Profile, names: &[&str]) -> Result<()> {
    if let Some(name) = names.iter().find(|name| !STATIC_PROGRAMS.contains(name)) {
        bail!("{name} is no static program. There are: {}", STATIC_PROGRAMS.join(", "));
    }
    let names = if names.is_empty() { &STATIC_PROGRAMS[..] } else { names };
    let to = root().join(to);
    std::fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{flags} -C target-feature=+crt-static -C strip=debuginfo");
    let built = build_static(names, profile, flags.trim()).map_err(|e| anyhow::anyhow!("{e}"))?;
    for program in names {
        let (from, file) = (built.join(program), to.join(program));
        let image = std::fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if asks_for_an_interpreter(&image)? {
            bail!("{program} asks for an interpreter, so it is not static");
        }
        replace(&from, &file, None).with_context(|| format!("cannot write {}", file.display()))?;
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
    fn a_name_of_no_static_program_is_an_error_before_anything_is_built() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = build(folder.path(), Profile::Dev, &["ring", "rings"]).expect_err("no such program");
        assert!(
            error.to_string().starts_with("rings is no static program. There are: colony-nas"),
            "{error}"
        );
    }

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
