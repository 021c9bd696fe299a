// SPDX-License-Identifier: MIT OR Apache-2.0
//! Becoming the user, before anything of a node or a job is touched.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::Path;

use nix::NixPath as _;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, chdir, chroot, setgroups, setresgid, setresuid};

use colony_node::descriptor::MOST;

use crate::JobError;
use crate::control::Identity;
use crate::spec::{Bind, Files};

/// Takes the user's place, for good: there is no way back to what the daemon may do.
pub(crate) fn take(identity: &Identity, files: &Files) -> Result<(), JobError> {
    let failed = |what: &str, e: nix::Error| JobError::Identity(format!("{what}: {e}"));
    if identity.take {
        see(files)?;
        let groups: Vec<Gid> = identity.groups.iter().map(|&g| Gid::from_raw(g)).collect();
        setgroups(&groups).map_err(|e| failed("supplementary groups", e))?;
        let gid = Gid::from_raw(identity.gid);
        setresgid(gid, gid, gid).map_err(|e| failed("group", e))?;
        bound();
        let uid = Uid::from_raw(identity.uid);
        setresuid(uid, uid, uid).map_err(|e| failed("user", e))?;
    }
    for set in
        [caps::CapSet::Ambient, caps::CapSet::Inheritable, caps::CapSet::Effective, caps::CapSet::Permitted]
    {
        // a user without any has none to clear
        let cleared = caps::clear(None, set).map_err(|e| e.to_string());
        let left = caps::read(None, set).map_or(1, |s| s.len());
        if left != 0 {
            return Err(JobError::Identity(format!("capabilities: {}", cleared.err().unwrap_or_default())));
        }
    }
    nix::sys::prctl::set_no_new_privs().map_err(|e| failed("no new privileges", e))?;
    // other processes of the user cannot look into this one
    nix::sys::prctl::set_dumpable(false).map_err(|e| failed("not dumpable", e))?;
    nix::sys::stat::umask(Mode::empty());
    check(identity)
}

/// Believes only what it sees.
fn check(identity: &Identity) -> Result<(), JobError> {
    let wrong = |what: &str| Err(JobError::Identity(format!("the {what} did not change")));
    let ids = nix::unistd::getresuid().ok();
    if ids.is_none_or(|i| [i.real, i.effective, i.saved].iter().any(|u| u.as_raw() != identity.uid)) {
        return wrong("user");
    }
    let ids = nix::unistd::getresgid().ok();
    if ids.is_none_or(|i| [i.real, i.effective, i.saved].iter().any(|g| g.as_raw() != identity.gid)) {
        return wrong("group");
    }
    Ok(())
}

/// Nothing that is executed could get a capability back; nothing is executed, but a lock is a lock.
fn bound() {
    for cap in caps::all() {
        let _ = caps::drop(None, caps::CapSet::Bounding, cap);
    }
}

/// So many descriptors as all processes may need, and no core files.
pub(crate) fn limits() {
    // root may raise the hard limit too
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard);
    if setrlimit(Resource::RLIMIT_NOFILE, MOST, MOST.max(most)).is_err() {
        colony_node::descriptor::raise_limit();
    }
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// This process's own descriptors by name. For a job that sees another file system than the daemon's this is a mount
/// of its own: from any other place in `/proc` a way would lead up, and out of what the job sees.
pub(super) fn descriptors(identity: &Identity, files: &Files) -> Result<OwnedFd, JobError> {
    const NAME: &CStr = c"/proc/self/fd";
    let failed = |e: io::Error| JobError::Identity(format!("{}: {e}", NAME.to_string_lossy()));
    if !identity.take || *files == Files::Host {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        return open(NAME, flags, Mode::empty()).map_err(|e| failed(e.into()));
    }
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: a string that ends with a zero
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, NAME.as_ptr(), flags) };
    if fd < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: made just now, and nobody else has it
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The file system of the job.
fn see(files: &Files) -> Result<(), JobError> {
    let failed = |what: &Path, e: nix::Error| JobError::Identity(format!("{}: {e}", what.display()));
    match files {
        Files::Host => {}
        Files::Root(root) => {
            chdir(root).and_then(|()| chroot(".")).and_then(|()| chdir("/")).map_err(|e| failed(root, e))?;
        }
        Files::Binds(binds) => {
            let slash = Path::new("/");
            unshare(CloneFlags::CLONE_NEWNS).map_err(|e| failed(slash, e))?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, slash, None::<&str>, private, None::<&str>).map_err(|e| failed(slash, e))?;
            for bind in binds {
                put(bind).map_err(|e| failed(&bind.to, e))?;
            }
            chdir(slash).map_err(|e| failed(slash, e))?;
        }
    }
    Ok(())
}

fn put(bind: &Bind) -> nix::Result<()> {
    let none = None::<&str>;
    mount(Some(&bind.from), &bind.to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
    if bind.read_only { read_only(&bind.to) } else { Ok(()) }
}

/// Makes a mount and all below it read-only, and changes nothing else of them (Linux 5.12; there is nothing like it
/// before, and the job is refused).
fn read_only(place: &Path) -> nix::Result<()> {
    // SAFETY: plain numbers
    let mut change: libc::mount_attr = unsafe { std::mem::zeroed() };
    change.attr_set = libc::MOUNT_ATTR_RDONLY;
    let flags = libc::AT_RECURSIVE;
    let result = place.with_nix_path(|place| {
        // SAFETY: a string that ends with a zero, and a structure of that size
        unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                libc::AT_FDCWD,
                place.as_ptr(),
                flags,
                &raw mut change,
                size_of_val(&change),
            )
        }
    })?;
    nix::errno::Errno::result(result).map(drop)
}
