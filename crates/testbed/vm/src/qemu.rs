// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU, as machines of every kind start it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use colony_node::descriptor::close_on_exec_from;
use colony_node::parent;
use colony_node::process_user::ProcessUser;
use command_fds::{CommandFdExt as _, FdMapping};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Pid, Uid, geteuid, getpid, setgroups, setresgid, setresuid};

use crate::VmError;

/// The program of the emulator, and Debian's package of it.
pub(crate) const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

/// Number of the first descriptor that an emulator is given.
pub const FIRST_FD: i32 = 3;

/// Options of QEMU's own seccomp filter, which denies other programs, other identities, other priorities.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// An emulator to be started, with these descriptors from [`FIRST_FD`] on and no others, and pipes for what it says. It is
/// killed when the thread ends that starts it. If the caller is root, the emulator runs as a [user of its own](ProcessUser): files
/// that it opens by name must be readable by all.
///
/// # Errors
/// Descriptors that cannot be passed on; acceleration that only root may use.
pub fn command(arguments: Vec<String>, fds: impl IntoIterator<Item = OwnedFd>) -> Result<Command, VmError> {
    let confinement = Confinement::new(&arguments)?;
    let mut command = Command::new(QEMU.0);
    let mappings: Vec<FdMapping> = fds
        .into_iter()
        .zip(FIRST_FD..)
        .map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd })
        .collect();
    let first_free = FIRST_FD + mappings.len() as i32;
    command
        .args(["-sandbox", SANDBOX])
        .args(arguments)
        .fd_mappings(mappings)
        .map_err(|e| VmError::Io { what: "the emulator's files".into(), source: io::Error::other(e) })?;
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            confinement.enter()?;
            close_on_exec_from(first_free)
        });
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Identity of an emulator.
struct Confinement {
    /// The user that it becomes, if the caller is root.
    user: Option<ProcessUser>,
    /// The group that may use acceleration, if it is asked for.
    group: Option<Gid>,
    /// The process whose end ends the emulator.
    parent: Pid,
}

impl Confinement {
    fn new(arguments: &[String]) -> Result<Self, VmError> {
        let user = geteuid().is_root().then(ProcessUser::here);
        let kvm = arguments.windows(2).any(|two| two[0] == "-accel" && two[1].starts_with("kvm"));
        let group = if user.is_some() && kvm { kvm_group()? } else { None };
        Ok(Self { user, group, parent: getpid() })
    }

    /// Gives up what the caller may do, in a process that is about to become the emulator.
    fn enter(&self) -> io::Result<()> {
        // as the caller: afterwards this is another user's process, which takes a capability
        colony_node::task::kill_this_earlier();
        if let Some(user) = self.user {
            setgroups(self.group.as_slice())?;
            let own = user.of(std::process::id());
            let (uid, gid) = (Uid::from_raw(own), Gid::from_raw(own));
            setresgid(gid, gid, gid)?;
            setresuid(uid, uid, uid)?;
        }
        set_no_new_privs()?;
        // after the change of user, which clears it
        parent::follow(self.parent, Signal::SIGKILL)?;
        Ok(setrlimit(Resource::RLIMIT_CORE, 0, 0)?)
    }
}

/// The group that an emulator needs to open `/dev/kvm`; none where everybody may.
fn kvm_group() -> Result<Option<Gid>, VmError> {
    const KVM: &str = "/dev/kvm";
    let about = std::fs::metadata(KVM).map_err(VmError::io(KVM))?;
    match (about.mode() & 0o006, about.mode() & 0o060, about.gid()) {
        (0o006, ..) => Ok(None),
        (_, 0o060, gid @ 1..) => Ok(Some(Gid::from_raw(gid))),
        _ => Err(VmError::Wrong(format!(
            "only root may open {KVM}, and emulators run as users without rights: give it to a group \
             (chgrp kvm {KVM}; chmod g+rw {KVM}), or run without KVM"
        ))),
    }
}

/// Starts it.
///
/// # Errors
/// If QEMU is not here, with what to install, or the system refuses another process.
pub fn spawn(mut command: Command) -> Result<Child, VmError> {
    let tool = QEMU.0;
    command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => missing(e.to_string()),
        _ => VmError::Io { what: format!("starting {tool}"), source: e },
    })
}

/// The error of a machine without QEMU, for this reason.
#[must_use]
pub fn missing(reason: String) -> VmError {
    let (tool, package) = QEMU;
    VmError::Tool { tool, package, reason }
}

/// A file that lives in memory only. It can be sealed.
///
/// # Errors
/// If the system refuses it.
pub fn memory_file(name: &str) -> Result<File, VmError> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    memfd_create(name, flags).map(File::from).map_err(VmError::os("a file in memory"))
}

/// What nobody can do any more with a file in memory, whoever has a descriptor of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// Change its length. A process that has mapped a file which another one shortens dies of `SIGBUS`.
    Length,
    /// Change its length or its bytes.
    Content,
}

/// Seals a file of [`memory_file`], for good.
///
/// # Errors
/// If it is sealed already, or mapped for writing although its bytes are to stay.
pub fn seal(file: &File, seal: Seal) -> Result<(), VmError> {
    let length = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    let seals = match seal {
        Seal::Length => length,
        Seal::Content => length | SealFlag::F_SEAL_WRITE,
    };
    fcntl(file, FcntlArg::F_ADD_SEALS(seals)).map(drop).map_err(VmError::os("sealing a file in memory"))
}

/// A file as an emulator without rights can open it by its descriptor: itself if all may read it, else a copy in memory.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn readable(path: &Path) -> Result<File, VmError> {
    let failed = || VmError::io(path.display().to_string());
    let mut file = File::open(path).map_err(failed())?;
    if !geteuid().is_root() || file.metadata().map_err(failed())?.mode() & 0o004 != 0 {
        return Ok(file);
    }
    let mut copy = memory_file("colony-file")?;
    io::copy(&mut file, &mut copy).map_err(failed())?;
    seal(&copy, Seal::Content)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn status(pid: u32, field: &str) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.split_whitespace().next().unwrap_or_default().to_owned())
    }

    #[test]
    fn what_is_sealed_stays_as_it_is() {
        let file = memory_file("sealed").expect("a file");
        file.set_len(4096).expect("it has room");
        seal(&file, Seal::Length).expect("sealed");
        assert!(file.set_len(0).is_err() && file.set_len(8192).is_err());
        file.write_all_at(b"words", 0).expect("its bytes may change");
        assert!(seal(&file, Seal::Content).is_err(), "for good");
        let file = memory_file("sealed").expect("a file");
        file.write_all_at(b"words", 0).expect("written");
        seal(&file, Seal::Content).expect("sealed");
        assert!(file.set_len(0).is_err() && file.write_all_at(b"other", 0).is_err());
    }

    #[test]
    fn an_emulator_has_no_rights_and_no_descriptors_of_its_starter() {
        if let Some(reason) = crate::testing::missing() {
            colony_testing::skip(reason);
            return;
        }
        let secret = tempfile::NamedTempFile::new().expect("a file");
        // as a descriptor that a shell has opened: without close-on-exec
        let inherited = nix::unistd::dup(secret.as_file()).expect("a descriptor");
        assert_eq!(nix::fcntl::fcntl(&inherited, nix::fcntl::FcntlArg::F_GETFD), Ok(0));
        let given = memory_file("given").expect("a file");
        let arguments = ["-machine", "none", "-nodefaults", "-display", "none", "-S"];
        let command = command(arguments.map(Into::into).into(), [given.into()]).expect("a command");
        let mut child = spawn(command).expect("QEMU starts");
        let pid = child.id();
        // the filter is its own, made when it has read its arguments
        while status(pid, "Seccomp").is_some_and(|mode| mode != "2") {
            assert_eq!(child.try_wait().expect("ours"), None, "it runs");
            std::thread::yield_now();
        }
        assert_eq!(status(pid, "NoNewPrivs").as_deref(), Some("1"));
        let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it runs");
        assert_eq!(score.trim(), "500");
        let uid = if geteuid().is_root() { ProcessUser::here().of(pid) } else { geteuid().as_raw() };
        assert_eq!(status(pid, "Uid"), Some(uid.to_string()));
        if geteuid().is_root() {
            assert_eq!(status(pid, "Groups").as_deref(), Some(""));
            assert_eq!(status(pid, "CapPrm").as_deref(), Some("0000000000000000"));
        }
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("we may look");
        let links: Vec<_> = links.flatten().filter_map(|l| std::fs::read_link(l.path()).ok()).collect();
        assert!(!links.iter().any(|l| l == secret.path()), "{links:?}, {}", inherited.as_raw_fd());
        assert!(links.iter().any(|l| l.to_string_lossy().contains("memfd:given")), "{links:?}");
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    #[test]
    fn no_two_emulators_of_root_have_one_user() {
        if let Some(reason) = crate::testing::missing() {
            colony_testing::skip(reason);
            return;
        }
        let start = || {
            let arguments = ["-machine", "none", "-nodefaults", "-display", "none", "-S"];
            spawn(command(arguments.map(Into::into).into(), []).expect("a command")).expect("QEMU starts")
        };
        let mut emulators = [start(), start()];
        let users = emulators.each_ref().map(|child| [status(child.id(), "Uid"), status(child.id(), "Gid")]);
        for child in &mut emulators {
            child.kill().and_then(|()| child.wait()).expect("ours");
        }
        assert_eq!(users[0] != users[1], geteuid().is_root(), "{users:?}");
    }

    #[test]
    fn only_a_missing_emulator_is_reported_as_not_installed() {
        let error = |program: &str| spawn(Command::new(program)).expect_err("no program").to_string();
        assert!(error("/no/such/emulator").contains("install the package"));
        let refused = error("/dev/null");
        assert!(!refused.contains("install") && refused.contains("Permission denied"), "{refused}");
    }
}
