// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that no other user than root can change a file that root runs or reads.

use std::fs::{Metadata, symlink_metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Checks that a file or folder belongs to root (or to `owner`, in a test) and that no other user may write to the file or folder.
/// A folder with the sticky bit, such as `/tmp`, passes: users cannot replace files of other users there.
///
/// # Errors
/// The owner or the mode that lets another user change it, and the remedy.
pub fn check_owner(about: &Metadata, owner: u32, at: &Path) -> io::Result<()> {
    let mode = about.permissions().mode();
    let is_sticky = about.is_dir() && mode & 0o1000 != 0;
    if about.uid() != 0 && about.uid() != owner {
        return Err(io::Error::other(format!(
            "{} belongs to user {}, not to root",
            at.display(),
            about.uid()
        )));
    }
    if mode & 0o022 != 0 && !is_sticky {
        return Err(io::Error::other(format!(
            "others than root may write to {} (mode {:o}); try: chmod go-w {0}",
            at.display(),
            mode & 0o7777
        )));
    }
    Ok(())
}

/// Checks the folder `path` and every folder above with [`check_owner`]. The path must be absolute and free of symbolic links, as
/// [`std::fs::canonicalize`] returns it.
///
/// # Errors
/// As [`check_owner`]; a part of the path is missing, or no folder.
pub fn check_folder(path: &Path, owner: u32) -> io::Result<()> {
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    for folder in above {
        let about = read_about(folder)?;
        if !about.is_dir() {
            return Err(io::Error::other(format!("{} is no folder", folder.display())));
        }
        check_owner(&about, owner, folder)?;
    }
    Ok(())
}

/// Checks the regular file `path` and every folder above with [`check_owner`]. The path is as that of [`check_folder`].
///
/// # Errors
/// As [`check_folder`].
pub fn check_file(path: &Path, owner: u32) -> io::Result<()> {
    let folder = path.parent().filter(|_| path.is_absolute());
    check_folder(
        folder.ok_or_else(|| io::Error::other(format!("{} is not absolute", path.display())))?,
        owner,
    )?;
    let about = read_about(path)?;
    if !about.is_file() {
        return Err(io::Error::other(format!("{} is no regular file", path.display())));
    }
    check_owner(&about, owner, path)
}

fn read_about(path: &Path) -> io::Result<Metadata> {
    symlink_metadata(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn files_that_others_can_change_or_replace_are_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let top = fs::canonicalize(dir.path()).expect("there");
        let owner = fs::metadata(&top).expect("there").uid();
        let (folder, file) = (top.join("a"), top.join("a/program"));
        fs::create_dir(&folder).and_then(|()| fs::write(&file, "x")).expect("ours");
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
        mode(&folder, 0o755);
        mode(&file, 0o755);
        check_file(&file, owner).expect("private");
        for (open, bits) in [(&file, 0o775), (&folder, 0o777)] {
            mode(open, bits);
            let error = check_file(&file, owner).expect_err("open").to_string();
            assert!(
                error.contains("may write to") && error.contains(open.to_str().expect("plain")),
                "{error}"
            );
            mode(open, 0o755);
        }
        mode(&folder, 0o1777);
        check_file(&file, owner).expect("a sticky folder");
        std::os::unix::fs::symlink(&folder, top.join("link")).expect("a link");
        check_file(&top.join("link/program"), owner).expect_err("a link on the way");
        check_file(&folder, owner).expect_err("a folder");
        check_file(Path::new("program"), owner).expect_err("relative");
        check_file(&folder.join("missing"), owner).expect_err("missing");
    }
}
