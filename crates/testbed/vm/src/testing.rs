// SPDX-License-Identifier: MIT OR Apache-2.0
//! For the tests of other crates: a node with their programs, and a script to run on it.

use std::path::Path;

use crate::{Cause, Failure, Image, Kernel, Outcome, Vm, VmError};

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
/// A guest that fell to a known race of emulated CPUs (`Oops: int3`) is started again, twice at most.
///
/// # Errors
/// As [`Vm::run`]. A script that fails is none: see [`Outcome::exit`].
pub fn script(vm: &Vm, text: &str) -> Result<Outcome, VmError> {
    let run = || vm.run(&["sh", "-euc", text]);
    for _ in 0..2 {
        match run() {
            Err(VmError::Failed(failure)) if let_down(&failure) => eprintln!("once more, after\n{failure}"),
            other => return other,
        }
    }
    run()
}

/// Returns `true` if a guest fell to a known race of emulation: if several emulated CPUs run at a time, one may still
/// meet the breakpoint that the guest's kernel had put into its own code while it patched it, when the kernel no longer
/// expects it.
fn let_down(failure: &Failure) -> bool {
    failure.cause == Cause::Panic && failure.console.contains("Oops: int3")
}

/// The reason why machines cannot be started here, for a test that skips itself.
#[must_use]
pub fn missing() -> Option<String> {
    let programs = [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")];
    let missing = programs.iter().find(|(name, _)| crate::image::find_program(name).is_none())?;
    Some(format!("{} is not here; install the package {}", missing.0, missing.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panicked(console: &str) -> Failure {
        Failure {
            cause: Cause::Panic,
            name: String::new(),
            console: console.to_owned(),
            emulator: String::new(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }

    #[test]
    fn only_a_breakpoint_of_the_kernels_own_is_the_emulators() {
        assert!(let_down(&panicked("Oops: int3: 0000 [#1] SMP NOPTI")));
        assert!(!let_down(&panicked("sysrq triggered crash")));
        assert!(!let_down(&Failure { cause: Cause::Stopped, ..panicked("Oops: int3") }));
    }
}
