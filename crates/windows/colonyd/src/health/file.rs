// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of the health file, and of the operator's marker: a folder beside the mount point (`/run/colony-health`) that
//! everybody can read and only the daemon's user can write.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use colony_node::file::replace_with_mode;
use colony_node::health::HealthReport;

/// The folder of the health file.
#[derive(Clone, Debug)]
pub(crate) struct HealthFile {
    folder: PathBuf,
}

impl HealthFile {
    /// The file of the daemon that has its files at `mount`.
    pub(crate) fn beside(mount: &Path) -> Self {
        let mut name = mount.file_name().unwrap_or_default().to_owned();
        name.push("-health");
        Self { folder: mount.with_file_name(name) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join("health.json")
    }

    /// The file by which an operator warns.
    pub(super) fn marker(&self) -> PathBuf {
        self.folder.join("warning")
    }

    /// Makes the folder, unless it is there.
    ///
    /// # Errors
    /// The file system refuses it, or another user can write to it.
    pub(super) fn make_folder(&self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o755).create(&self.folder) {
            // whatever the umask is
            Ok(()) => fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755))?,
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            Err(_) => {}
        }
        let found = fs::symlink_metadata(&self.folder)?;
        let is_own = found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o022 == 0;
        if found.is_dir() && is_own {
            return Ok(());
        }
        let folder = self.folder.display();
        Err(io::Error::other(format!("{folder} is no folder that only this user can write to; remove it")))
    }

    /// Replaces the file.
    pub(super) fn save(&self, report: &HealthReport) -> io::Result<()> {
        self.make_folder()?;
        let mut text = serde_json::to_vec_pretty(report)?;
        text.push(b'\n');
        replace_with_mode(&self.path(), &text, 0o644)
    }

    /// Removes the file, and the folder unless the operator's marker is in it.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_node::health::State;

    fn report() -> HealthReport {
        let schema = HealthReport::SCHEMA.to_owned();
        HealthReport { schema, state: State::Healthy, reasons: Vec::new(), watched: Vec::new() }
    }

    #[test]
    fn the_default_place_is_the_one_that_readers_look_at() {
        let file = HealthFile::beside(Path::new(colony_client::DEFAULT_MOUNT));
        assert_eq!(file.path(), Path::new(colony_node::health::DEFAULT_FILE));
    }

    #[test]
    fn everybody_can_read_the_file_and_the_marker_outlives_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = HealthFile::beside(&dir.path().join("colony"));
        file.save(&report()).expect("writable");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&file.folder), mode(&file.path())), (0o755, 0o644));
        assert_eq!(HealthReport::read(&file.path()).expect("readable"), report());
        fs::write(file.marker(), "").expect("ours");
        file.remove();
        assert!(file.marker().exists() && !file.path().exists());
        fs::remove_file(file.marker()).expect("ours");
        file.remove();
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0);
    }

    #[test]
    fn a_folder_that_others_can_write_to_and_a_link_are_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = HealthFile::beside(&dir.path().join("colony"));
        file.save(&report()).expect("writable");
        fs::set_permissions(&file.folder, PermissionsExt::from_mode(0o775)).expect("ours");
        let error = file.save(&report()).expect_err("refused").to_string();
        assert!(error.contains("colony-health") && error.contains("remove it"), "{error}");
        let other = tempfile::tempdir().expect("temp dir");
        fs::remove_dir_all(&file.folder).expect("ours");
        std::os::unix::fs::symlink(other.path(), &file.folder).expect("a link");
        assert!(file.save(&report()).is_err());
    }
}
