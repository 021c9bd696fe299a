// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the programs that belong to Colony, and of static programs for compute nodes.

use std::path::{Path, PathBuf};

/// Name of the program that boots and ends nodes; it belongs beside the I/O daemon's.
pub const BOOT: &str = "colony-boot";

/// The I/O daemon's program: beside this one.
///
/// # Errors
/// The places where it was looked for.
pub fn ciod() -> Result<PathBuf, String> {
    beside("ciod")
}

/// A program that is installed beside this one.
///
/// # Errors
/// The place where it was looked for.
pub fn beside(name: &str) -> Result<PathBuf, String> {
    let own = own()?;
    // tests and benchmarks are a folder deeper
    let places = [own.with_file_name(name), own.parent().unwrap_or(Path::new("/")).with_file_name(name)];
    match places.iter().find(|p| p.is_file()) {
        Some(found) => Ok(found.clone()),
        None => Err(format!("{} is not there: it belongs beside colony", places[0].display())),
    }
}

/// The folder into which `./x static` puts programs, if this program was built beside it.
pub fn static_folder() -> Option<PathBuf> {
    let own = own().ok()?;
    let target = own.ancestors().find(|f| f.file_name().is_some_and(|n| n == "target"))?;
    Some(target.join("static"))
}

/// A static program: where `./x static` puts them, or beside this one if that was installed.
///
/// # Errors
/// The places where it was looked for, and the command that makes it.
pub fn static_program(name: &str) -> Result<PathBuf, String> {
    let file = match static_folder() {
        Some(folder) => folder.join(name),
        None => own()?.with_file_name(name),
    };
    if file.is_file() {
        Ok(file)
    } else {
        Err(format!("{} is not there: ./x static builds it", file.display()))
    }
}

fn own() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("looking for this program: {e}"))
}
