// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that appear whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::task::TaskId;

/// Beginning of the names of files that [`replace`] has not renamed yet. Number and start of the process follow.
const UNFINISHED: &str = ".new.";

/// Writes `path` through a temporary file beside it, synced and renamed at the end: a reader sees the old
/// file or the whole new one, and a failure leaves nothing behind.
///
/// An existing file that is not regular (a pipe, a device, `/dev/stdout`) is written to, never replaced, and
/// a symbolic link stays one.
///
/// # Errors
/// Whatever `fill` or the file system says.
pub fn write_atomically<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), E>,
) -> Result<(), E> {
    match place(path)? {
        Place::Stream => {
            let mut file = OpenOptions::new().write(true).open(path)?;
            let mut out = BufWriter::new(&mut file);
            fill(&mut out)?;
            out.flush()?;
        }
        Place::File(path) => {
            let mut file = beside(&path)?;
            let mut out = BufWriter::new(file.as_file_mut());
            fill(&mut out)?;
            out.flush()?;
            drop(out);
            file.as_file().sync_data()?;
            file.persist(path).map_err(|e| e.error)?;
        }
    }
    Ok(())
}

/// Puts a file with these bytes in the place of `path`, by renaming. Nothing is synced: this is for what has a meaning until
/// the next boot only, in a folder such as `/run`.
///
/// # Errors
/// The error of the file system.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // readable for the owner only, as temporary files are
    replace_with_mode(path, bytes, 0o600)
}

/// The same, with the permissions `mode`, whatever the umask is.
///
/// # Errors
/// The error of the file system.
pub fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    put_in_place(path, bytes, mode, false)
}

/// The same, for a file that a boot keeps: the bytes and the folder are synced.
///
/// # Errors
/// The error of the file system.
pub fn replace_synced(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    put_in_place(path, bytes, mode, true)
}

fn put_in_place(path: &Path, bytes: &[u8], mode: u32, is_synced: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let me = TaskId::of(std::process::id().cast_signed()).map_err(io::Error::other)?;
    let name = format!("{UNFINISHED}{}.{}.", me.tid, me.start_ticks);
    let mut file = tempfile::Builder::new().prefix(&name).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    if is_synced {
        file.as_file().sync_all()?;
    }
    file.persist(path).map_err(|e| e.error)?;
    if is_synced { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes the files in `folder` that processes were writing with [`replace`] when they were killed.
///
/// # Errors
/// The folder cannot be read, or such a file cannot be removed.
pub fn remove_unfinished(folder: &Path) -> io::Result<()> {
    let author = |name: &str| {
        let mut numbers = name.strip_prefix(UNFINISHED)?.split('.');
        Some(TaskId { tid: numbers.next()?.parse().ok()?, start_ticks: numbers.next()?.parse().ok()? })
    };
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let author = entry.file_name().to_str().and_then(author);
        // a process of which the kernel does not tell may live
        if !author.is_some_and(|author| matches!(author.is_running_process(), Ok(false))) {
            continue;
        }
        match std::fs::remove_file(entry.path()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that [`write_atomically`] could write `path` now. Call it before the work whose result goes there.
/// Leaves nothing behind.
///
/// # Errors
/// As [`write_atomically`] where it could not.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match place(path)? {
        // opening a pipe would wait for its reader
        Place::Stream => Ok(()),
        Place::File(path) => beside(&path).map(drop),
    }
}

/// The destination of a file's bytes.
enum Place {
    /// A regular file, there or to be made; symbolic links are followed.
    File(PathBuf),
    /// Something that takes bytes and must stay what it is.
    Stream,
}

fn place(path: &Path) -> io::Result<Place> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder; name a file in it"))
        }
        Ok(found) if found.is_file() => {
            // an open file without a name (`/dev/stdout` redirected to one) has no path to rename to
            let real = path.canonicalize().ok().filter(|real| real.is_file());
            Ok(real.map_or(Place::Stream, Place::File))
        }
        Ok(_) => Ok(Place::Stream),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Place::File(path.into())),
        Err(e) => Err(e),
    }
}

/// A temporary file in the folder of `path`.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new()
        .prefix(".colony-")
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)
        .map_err(|e| {
            // the library names its temporary file, which means nothing to a user
            let text = e.to_string();
            let why = text.split(" at path ").next().unwrap_or_default();
            io::Error::new(e.kind(), format!("no file can be made in the folder {}: {why}", folder.display()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileTypeExt;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        write_atomically(path, |w| w.write_all(text.as_bytes()))
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("x");
        write(&path, "old").expect("writable");
        let failed = write_atomically::<io::Error>(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("stop"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(&path).expect("there"), b"old");
        check_writable(&path).expect("writable");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1);
    }

    #[test]
    fn a_file_that_is_replaced_has_the_mode_asked_for() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("x");
        for mode in [0o644, 0o600] {
            replace_with_mode(&path, b"text", mode).expect("writable");
            assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, mode);
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1);
    }

    #[test]
    fn what_a_killed_process_was_writing_is_removed_and_other_files_stay() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut process = std::process::Command::new("true").spawn().expect("it is there");
        let dead = TaskId::of(process.id().cast_signed()).expect("it is ours");
        process.wait().expect("it is ours");
        let me = TaskId::of(std::process::id().cast_signed()).expect("alive");
        let unfinished = |of: TaskId| format!("{UNFINISHED}{}.{}.a1B2c3", of.tid, of.start_ticks);
        let kept = [unfinished(me), format!("{UNFINISHED}x"), "1.2.0.tasks".to_owned()];
        for name in kept.iter().chain([&unfinished(dead)]) {
            std::fs::write(dir.path().join(name), "text").expect("writable");
        }
        remove_unfinished(dir.path()).expect("readable");
        let left = |name: &String| dir.path().join(name).exists();
        assert!(kept.iter().all(left) && !left(&unfinished(dead)));
        assert!(remove_unfinished(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn a_pipe_is_written_to_and_stays_a_pipe() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        check_writable(&path).expect("does not wait for a reader");
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::read_to_string(path)
        });
        write(&path, "through").expect("written");
        assert_eq!(reader.join().expect("no panic").expect("read"), "through");
        assert!(std::fs::metadata(&path).expect("there").file_type().is_fifo());
    }

    #[test]
    fn a_symbolic_link_stays_one_and_its_target_is_replaced() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        write(&target, "old").expect("writable");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        write(&link, "new").expect("writable");
        assert_eq!(std::fs::read(&target).expect("there"), b"new");
        assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named_by_its_folder() {
        let dir = tempfile::tempdir().expect("temp dir");
        let error = check_writable(dir.path()).expect_err("a folder").to_string();
        assert!(error.contains("folder"), "{error}");
        let error = check_writable(&dir.path().join("no/x")).expect_err("no folder").to_string();
        assert!(error.contains("/no: No such file") && !error.contains(".colony-"), "{error}");
    }
}
