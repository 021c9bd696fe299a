// SPDX-License-Identifier: MIT OR Apache-2.0
//! The archive the kernel unpacks as its first file system: cpio in the `newc` format
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).

use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const TRAILER: &str = "TRAILER!!!";

/// The kind of an entry.
pub(crate) enum Kind<'a> {
    /// A folder.
    Folder,
    /// A file and its bytes.
    File(&'a [u8]),
    /// A symbolic link and where it points.
    Link(&'a [u8]),
}

/// Writes entries one after the other. All belong to root and have no time: the same content is the same archive.
pub(crate) struct Writer<W> {
    out: W,
    entries: u32,
}

impl<W: Write> Writer<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self { out, entries: 0 }
    }

    /// Adds an entry. `path` is absolute; its folder must have been added before.
    pub(crate) fn add(&mut self, path: &[u8], permissions: u32, kind: &Kind<'_>) -> io::Result<()> {
        let name = path.strip_prefix(b"/").unwrap_or(path);
        let (mode, data) = match kind {
            Kind::Folder => (DIRECTORY, &[][..]),
            Kind::File(data) => (REGULAR, *data),
            Kind::Link(target) => (LINK, *target),
        };
        self.entry(name, mode | (permissions & 0o7777), data)
    }

    /// Ends the archive. The kernel unpacks another one that follows on a multiple of four bytes.
    pub(crate) fn end(mut self) -> io::Result<W> {
        self.entry(TRAILER.as_bytes(), 0, &[])?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &[u8], mode: u32, data: &[u8]) -> io::Result<()> {
        let too_large = || io::Error::other("a file above 4 GiB does not fit into an image");
        let size = u32::try_from(data.len()).map_err(|_| too_large())?;
        let name_size = u32::try_from(name.len() + 1).map_err(|_| too_large())?;
        self.entries += 1;
        // magic; inode, mode, user, group, links, time, size, device and its device twice, name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut head = String::from("070701");
        for field in fields {
            head.push_str(&format!("{field:08x}"));
        }
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(name)?;
        // the name ends with a zero, and then as many as fill a word
        self.pad(head.len() + name.len(), 1)?;
        self.out.write_all(data)?;
        self.pad(data.len(), 0)
    }

    fn pad(&mut self, written: usize, least: usize) -> io::Result<()> {
        let zeros = (written + least).next_multiple_of(4) - written;
        self.out.write_all(&[0; 8][..zeros])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_reads_the_archive() {
        let mut w = Writer::new(Vec::new());
        w.add(b"/d", 0o755, &Kind::Folder).expect("memory");
        w.add(b"/d/file", 0o640, &Kind::File(b"five5")).expect("memory");
        w.add(b"/link", 0o777, &Kind::Link(b"d/file")).expect("memory");
        let archive = w.end().expect("memory");
        assert_eq!(archive.len() % 4, 0);
        let folder = tempfile::tempdir().expect("a folder");
        let started = Command::new("cpio")
            .args(["-id", "--quiet"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn();
        let Ok(mut cpio) = started else {
            colony_testing::skip("cpio is not here");
            return;
        };
        cpio.stdin.take().expect("piped").write_all(&archive).expect("read");
        assert!(cpio.wait().expect("ours").success());
        assert_eq!(std::fs::read(folder.path().join("link")).expect("there"), b"five5");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(folder.path().join("d/file")).expect("there").permissions(),
        );
        assert_eq!(mode & 0o777, 0o640);
    }
}
