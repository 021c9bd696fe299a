//! For the tests of other crates: a node with their programs, and a script to run on it.

use std::path::Path;

use crate::{Image, Kernel, Outcome, Vm, VmError};

/// A node of the [default kernel](crate::kernel::DEFAULT) with busybox and these programs of the host (as
/// [`Image::program`] takes them).
///
/// # Errors
/// A kernel, busybox or program that cannot be had.
pub fn node<P: AsRef<Path>>(programs: impl IntoIterator<Item = P>) -> Result<Vm, VmError> {
    let mut image = Image::new();
    image.busybox()?;
    for program in programs {
        image.program(program)?;
    }
    Ok(Vm::new(&Kernel::find("")?, &image))
}

/// Runs a shell script on `vm`; it ends at the first command that fails.
///
/// # Errors
/// As [`Vm::run`]. A script that fails is none: see [`Outcome::exit`].
pub fn script(vm: &Vm, text: &str) -> Result<Outcome, VmError> {
    vm.run(&["sh", "-euc", text])
}

/// Why machines cannot be started here, for a test to say when it skips itself.
#[must_use]
pub fn missing() -> Option<String> {
    let programs = [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")];
    let missing = programs.iter().find(|(name, _)| crate::image::find_program(name).is_none())?;
    Some(format!("{} is not here; install the package {}", missing.0, missing.1))
}
