//! QEMU, as machines of every kind start it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use command_fds::{CommandFdExt as _, FdMapping};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::VmError;

const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

/// Number of the first descriptor that an emulator is given.
pub const FIRST_FD: i32 = 3;

/// The emulated processor: fast string instructions are the slow way to copy where each is emulated by itself.
pub const CPU: &str = "max,-erms,-fsrm";

/// An emulator to be started, with these descriptors from [`FIRST_FD`] on, and pipes for what it says. It is killed
/// when the thread ends that starts it.
///
/// # Errors
/// Descriptors that cannot be passed on.
pub fn command(arguments: Vec<String>, fds: impl IntoIterator<Item = OwnedFd>) -> Result<Command, VmError> {
    let mut command = Command::new(QEMU.0);
    let mappings =
        fds.into_iter().zip(FIRST_FD..).map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
    command
        .args(arguments)
        .fd_mappings(mappings.collect())
        .map_err(|e| VmError::Io { what: "the emulator's files".into(), source: std::io::Error::other(e) })?;
    // SAFETY: between fork and exec only one system call is made, and nothing is allocated.
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(Into::into)) };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Starts it.
///
/// # Errors
/// If it is not here, with what to install.
pub fn spawn(mut command: Command) -> Result<Child, VmError> {
    let (tool, package) = QEMU;
    command.spawn().map_err(|e| VmError::Tool { tool, package, reason: e.to_string() })
}

/// A file that lives in memory only.
///
/// # Errors
/// If the system refuses it.
pub fn memory_file(name: &str) -> Result<File, VmError> {
    memfd_create(name, MFdFlags::MFD_CLOEXEC).map(File::from).map_err(VmError::os("a file in memory"))
}
