//! Files that appear whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes `path` through a temporary file beside it, synced and renamed at the end: a reader sees the old
/// file or the whole new one, and a failure leaves nothing behind.
///
/// # Errors
/// Whatever `fill` or the file system says.
pub fn write_atomically<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut std::fs::File>) -> Result<(), E>,
) -> Result<(), E> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".colony-")
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    let mut out = BufWriter::new(file.as_file_mut());
    fill(&mut out)?;
    out.flush()?;
    drop(out);
    file.as_file().sync_data()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("x");
        write_atomically::<io::Error>(&path, |w| w.write_all(b"old")).expect("writable");
        let failed = write_atomically::<io::Error>(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("stop"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(&path).expect("there"), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1);
    }
}
