// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that the kernel starts as release agent: a copy of this program that only root can change.
//!
//! The kernel keeps a path, and runs as root what is there when the last process of a group has died. A build folder or a
//! package's file would not do: a user who may write to a folder on the way could put another program there, and an
//! upgrade or a clean build would remove the file without a word. So the running program, which root has started already,
//! is copied to [`FOLDER`]. The copy is used only if root alone can change the file and every folder above.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use colony_node::trust::check_owner;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

/// The folder of the copy: for root alone, on a file system that programs may be started from (`/run` often forbids that).
const FOLDER: &str = "/var/lib/colony-undo";
/// The copy.
const NAME: &str = "release-agent";
/// The parent of all kernel threads.
const KTHREADD: &str = "/proc/2";
/// The copy while it is written.
const NEW: &str = "release-agent.new";

/// Path of the copy.
pub(super) fn path() -> PathBuf {
    Path::new(FOLDER).join(NAME)
}

/// Copies the running program to [`path`], unless the copy is there already. Call it while no other process does.
///
/// # Errors
/// A folder or a file that another user than root may change, or a copy that cannot be written.
pub(super) fn install() -> io::Result<()> {
    install_in(Path::new(FOLDER), 0)
}

/// Returns `true` if the copy is there, and root alone can change it.
pub(super) fn is_installed() -> bool {
    open_folder(Path::new(FOLDER), 0, false).and_then(|folder| open_copy(&folder, 0)).is_ok()
}

/// Returns `true` if the path of the copy means the same file where the kernel looks for programs. This process must be in the
/// first pid namespace.
pub(super) fn is_seen_by_the_kernel() -> bool {
    let place = |path: &Path| std::fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()));
    let own = path();
    let theirs = Path::new(KTHREADD).join("root").join(own.strip_prefix("/").unwrap_or(&own));
    if matches!((place(&own), place(&theirs)), (Ok(own), Ok(theirs)) if own == theirs) {
        return true;
    }
    // since Linux 7 the root folder of kernel threads is empty, and the kernel looks in that of their namespace
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt"));
    let ours = namespace(Path::new("/proc/self"));
    matches!((ours, namespace(Path::new(KTHREADD))), (Ok(ours), Ok(theirs)) if ours == theirs)
}

/// Removes the copy and its folder.
pub(super) fn remove() {
    let Ok(folder) = open_folder(Path::new(FOLDER), 0, false) else { return };
    for name in [NEW, NAME] {
        let _ = unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir);
    }
    // fails, and the folder stays, if the folder has other files
    let _ = std::fs::remove_dir(FOLDER);
}

fn install_in(path: &Path, owner: u32) -> io::Result<()> {
    // the folder is made when there is something to put into it: a process that is killed before that leaves nothing
    let place = open_folder(path, owner, false).or_else(|_| {
        let parent = path.parent().ok_or_else(|| io::Error::other("no folder can hold the copy"))?;
        open_folder(parent, owner, true)
    })?;
    if fstatvfs(&place)?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other(format!(
            "{} is on a file system without programs (noexec)",
            path.display()
        )));
    }
    let mut program = File::open("/proc/self/exe")?;
    let is_same = open_copy(&place, owner).and_then(|copy| have_the_same_bytes(&mut program, copy));
    if is_same.unwrap_or(false) {
        return Ok(());
    }
    program.rewind()?;
    let copy = unnamed_copy(&mut program, &place)?;
    let folder = open_folder(path, owner, true)?;
    let _ = unlinkat(&folder, NEW, UnlinkatFlags::NoRemoveDir);
    let named = match copy {
        Some(copy) => name(&copy, &folder),
        None => named_copy(&mut program, &folder),
    };
    let installed = named.and_then(|()| Ok(renameat(&folder, NEW, &folder, NAME)?));
    if installed.is_err() {
        let _ = unlinkat(&folder, NEW, UnlinkatFlags::NoRemoveDir);
    }
    installed
}

/// Copies a program to a file without a name in `place`, which goes if this process is killed. `None` if the file system has no such
/// files.
fn unnamed_copy(program: &mut File, place: &OwnedFd) -> io::Result<Option<File>> {
    let flags = OFlag::O_WRONLY | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
    match openat(place, ".", flags, Mode::S_IRWXU) {
        // The kernel starts no program that is open to write, and another thread may just have forked a process that has this file:
        // the copy gets its name when it can only be read.
        Ok(copy) => {
            let copy = copy_to(program, copy.into())?;
            File::open(format!("/proc/self/fd/{}", copy.as_raw_fd())).map(Some)
        }
        Err(nix::Error::EOPNOTSUPP | nix::Error::EISDIR | nix::Error::EINVAL) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Gives a file without a name the name [`NEW`].
fn name(copy: &File, folder: &OwnedFd) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    Ok(linkat(AT_FDCWD, path.as_str(), folder, NEW, AtFlags::AT_SYMLINK_FOLLOW)?)
}

/// Copies a program to the file [`NEW`].
fn named_copy(program: &mut File, folder: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    copy_to(program, openat(folder, NEW, flags, Mode::S_IRWXU)?.into()).map(drop)
}

fn copy_to(program: &mut File, mut copy: File) -> io::Result<File> {
    io::copy(program, &mut copy)?;
    // the umask may have taken permissions away
    copy.set_permissions(Permissions::from_mode(0o700))?;
    Ok(copy)
}

/// Opens a folder, if only `owner` can change the entries of the folder and of every folder above. Makes missing folders if
/// `create` is set.
fn open_folder(path: &Path, owner: u32, create: bool) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = PathBuf::from("/");
    let mut folder: OwnedFd = File::open(&at)?.into();
    let names: Vec<_> = path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
    for (number, name) in (1..).zip(&names) {
        at.push(name);
        let opened = match openat(&folder, name.as_os_str(), flags, Mode::empty()) {
            Err(nix::Error::ENOENT) if create => {
                // a small system may have no /var/lib
                let mode = if number == names.len() { 0o700 } else { 0o755 };
                mkdirat(&folder, name.as_os_str(), Mode::from_bits_truncate(mode))?;
                openat(&folder, name.as_os_str(), flags, Mode::empty())
            }
            opened => opened,
        };
        folder =
            opened.map_err(|e| io::Error::other(format!("cannot open the folder {}: {e}", at.display())))?;
        check_owner(&File::from(folder.try_clone()?).metadata()?, owner, &at)?;
    }
    Ok(folder)
}

/// Opens the copy if `owner` alone can change it.
fn open_copy(folder: &OwnedFd, owner: u32) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let copy = File::from(openat(folder, NAME, flags, Mode::empty())?);
    let about = copy.metadata()?;
    if !about.is_file() || about.nlink() != 1 {
        return Err(io::Error::other(format!("{NAME} is no file of its own")));
    }
    check_owner(&about, owner, Path::new(NAME))?;
    Ok(copy)
}

fn have_the_same_bytes(a: &mut File, mut b: File) -> io::Result<bool> {
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    const PIECE: u64 = 1 << 20;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    loop {
        of_a.clear();
        of_b.clear();
        a.by_ref().take(PIECE).read_to_end(&mut of_a)?;
        b.by_ref().take(PIECE).read_to_end(&mut of_b)?;
        if of_a != of_b {
            return Ok(false);
        }
        if of_a.is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn me() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    #[test]
    fn the_copy_is_this_program_and_is_written_again_only_if_it_differs() {
        let dir = tempfile::tempdir().expect("temp dir");
        let folder = dir.path().join("var/lib/undo");
        let copy = folder.join(NAME);
        install_in(&folder, me()).expect("a private folder");
        let own = fs::read("/proc/self/exe").expect("readable");
        assert!(fs::read(&copy).expect("there") == own);
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o7777;
        assert_eq!((mode(&folder), mode(&copy)), (0o700, 0o700));
        let inode = || fs::metadata(&copy).expect("there").ino();
        let first = inode();
        install_in(&folder, me()).expect("still there");
        assert_eq!(inode(), first);
        // damaged, shorter, or left behind in the middle of a copy
        fs::write(&copy, &own[..own.len() - 1]).expect("writable");
        fs::write(folder.join(NEW), b"half").expect("writable");
        install_in(&folder, me()).expect("written again");
        assert!(fs::read(&copy).expect("there") == own && !folder.join(NEW).exists());
    }

    #[test]
    fn nothing_is_written_where_somebody_else_could_put_another_program() {
        let dir = tempfile::tempdir().expect("temp dir");
        let refused = |folder: &Path| install_in(folder, me()).expect_err("refused").to_string();
        let open = dir.path().join("open");
        fs::create_dir(&open).expect("a folder");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
        let why = refused(&open.join("undo"));
        assert!(why.contains("others than root may write to") && why.contains("open"), "{why}");
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("ours");
        // a link in the place of the folder, or of the copy
        symlink("/tmp", dir.path().join("link")).expect("a link");
        assert!(refused(&dir.path().join("link")).contains("cannot open the folder"));
        let folder = open.join("undo");
        install_in(&folder, me()).expect("private now");
        fs::remove_file(folder.join(NAME)).expect("there");
        symlink("/bin/true", folder.join(NAME)).expect("a link");
        install_in(&folder, me()).expect("the link is replaced");
        assert!(fs::symlink_metadata(folder.join(NAME)).expect("there").is_file());
        assert!(fs::read("/bin/true").expect("there").len() > 4, "what the link named is untouched");
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            return colony_testing::skip("only root can give a folder away");
        }
        let dir = tempfile::tempdir().expect("temp dir");
        let theirs = dir.path().join("theirs");
        fs::create_dir(&theirs).expect("a folder");
        std::os::unix::fs::chown(&theirs, Some(65_534), None).expect("root may");
        let why = install_in(&theirs.join("undo"), 0).expect_err("refused").to_string();
        assert!(why.contains("belongs to user 65534"), "{why}");
    }
}
