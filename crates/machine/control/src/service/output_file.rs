// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of the output that a machine keeps of a job. They belong to the job's user, so that the user's disk quota counts them, and
//! lie in a folder that no other user than the machine's can enter or change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{Gid, Uid, fchownat, geteuid};

/// User and group of a job.
pub(super) type Ids = (u32, u32);

/// A file that its owner may not swap or misuse is opened so: a link is not followed, and a FIFO does not wait for a reader.
const FLAGS: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_APPEND)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_CLOEXEC);

/// Opens a file for more output, and makes it if it is not there. Root gives the file to `owner` before anything is written.
///
/// # Errors
/// The folder belongs to another user than this process's, or others may write to it. The file is not a regular one, has a second name,
/// or belongs to a third user.
pub(super) fn open(path: &Path, owner: Ids) -> io::Result<File> {
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let folder = File::options().read(true).custom_flags(flags.bits()).open(folder)?;
    let about = folder.metadata()?;
    if about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
        return Err(refused(path, "other users may change its folder"));
    }
    let name = Path::new(name);
    let new = FLAGS | OFlag::O_CREAT | OFlag::O_EXCL;
    let file = match openat(&folder, name, new, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(file) => file,
        Err(Errno::EEXIST) => {
            take_back(path, folder.as_fd(), name, owner)?;
            openat(&folder, name, FLAGS, Mode::empty())?
        }
        Err(error) => return Err(error.into()),
    };
    check(path, &fstat(&file)?, owner)?;
    if geteuid().is_root() {
        fchown(&file, Some(owner.0), Some(owner.1))?;
    }
    Ok(file.into())
}

/// Makes the file of an earlier start of the job root's own again: root opens it without the capability to write to files of others.
fn take_back(path: &Path, folder: BorrowedFd<'_>, name: &Path, owner: Ids) -> io::Result<()> {
    let about = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    check(path, &about, owner)?;
    if about.st_uid != geteuid().as_raw() {
        let root = (Uid::from_raw(0), Gid::from_raw(0));
        fchownat(folder, name, Some(root.0), Some(root.1), AtFlags::AT_SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn check(path: &Path, about: &FileStat, owner: Ids) -> io::Result<()> {
    if SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(refused(path, "it is not a regular file"));
    }
    if about.st_nlink != 1 {
        return Err(refused(path, "it has another name, too"));
    }
    // a version before this one has left files of root
    if ![geteuid().as_raw(), owner.0].contains(&about.st_uid) {
        return Err(refused(path, "it belongs to another user"));
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{}: {why}; remove it", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use colony_node::confinement::{Capability, confine};

    use super::*;

    fn own() -> Ids {
        (geteuid().as_raw(), nix::unistd::getegid().as_raw())
    }

    #[test]
    fn a_file_belongs_to_the_job_s_user_from_its_first_byte_on_and_is_continued() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stdout");
        let owner = if geteuid().is_root() { (1234, 4321) } else { own() };
        let inside = path.clone();
        // as the service has it: root without the right to write to files of others
        let writes = std::thread::spawn(move || {
            assert_eq!(confine(&[Capability::CAP_CHOWN]), [""; 0], "no warnings");
            for words in ["one ", "two"] {
                let mut file = open(&inside, owner).expect("opened");
                let about = file.metadata().expect("there");
                assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (owner.0, owner.1, 0o600));
                file.write_all(words.as_bytes()).expect("written");
            }
        });
        writes.join().expect("it ends");
        assert_eq!(fs::read_to_string(&path).expect("there"), "one two");
    }

    #[test]
    fn a_file_of_an_earlier_version_is_given_to_the_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stdout");
        fs::write(&path, "old ").expect("ours");
        let owner = if geteuid().is_root() { (1234, 4321) } else { own() };
        open(&path, owner).and_then(|mut file| file.write_all(b"new")).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("there"), "old new");
        assert_eq!(fs::metadata(&path).expect("there").uid(), owner.0);
    }

    #[test]
    fn links_fifos_and_files_of_others_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let fails = |path: &Path| open(path, own()).expect_err("refused").to_string();
        fs::write(at("target"), "precious").expect("ours");
        symlink(at("target"), at("link")).expect("ours");
        symlink(at("nothing"), at("dangling")).expect("ours");
        fs::hard_link(at("target"), at("second")).expect("ours");
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).expect("ours");
        fs::create_dir(at("folder")).expect("ours");
        for name in ["link", "dangling", "fifo", "folder"] {
            assert!(fails(&at(name)).contains("not a regular file"), "{name}: {}", fails(&at(name)));
        }
        assert!(fails(&at("second")).contains("another name"));
        assert!(!at("nothing").exists());
        if geteuid().is_root() {
            fs::write(at("theirs"), "").and_then(|()| chown(at("theirs"), Some(77), None)).expect("root may");
            assert!(fails(&at("theirs")).contains("another user"));
            assert_eq!(fs::metadata(at("theirs")).expect("there").uid(), 77);
        }
        assert_eq!(fs::read_to_string(at("target")).expect("there"), "precious");
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, link) = (folder.path().join("inside"), folder.path().join("link"));
        fs::create_dir(&inside).and_then(|()| symlink(&inside, &link)).expect("ours");
        open(&link.join("stdout"), own()).expect_err("a link");
        fs::set_permissions(&inside, Permissions::from_mode(0o777)).expect("ours");
        let error = open(&inside.join("stdout"), own()).expect_err("open to all").to_string();
        assert!(error.contains("other users may change"), "{error}");
        assert!(!inside.join("stdout").exists());
    }
}
