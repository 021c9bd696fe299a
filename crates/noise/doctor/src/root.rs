// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a node below a root directory: `/`, or a directory of collected files.
//!
//! A collected tree may come from anywhere, so it is not trusted. Every path is opened with `openat2` (Linux 5.6) below
//! the root: a link cannot lead out of it (`RESOLVE_IN_ROOT`), and links such as `/proc/self/fd/0` are refused
//! (`RESOLVE_NO_MAGICLINKS`). A file is opened as a path first (`O_PATH`), which waits for nothing and has no side effect
//! on a device, and is read only if it is a regular file. Reads and listings have upper bounds.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, fstat};

/// Largest file that is read, bytes.
pub const MAX_FILE: u64 = 8 << 20;
/// Largest `/proc/interrupts`: one of a node with 1,024 CPUs and 4,000 interrupts has 45 MB.
pub(crate) const MAX_TABLE: u64 = 128 << 20;
/// Most names that a directory may have; one with more is not listed.
pub const MAX_NAMES: usize = 1 << 16;

/// The reason why a file has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// There is no such file.
    #[error("{0} is not there")]
    Missing(String),
    /// The file may not be read by this user.
    #[error("{0} may not be read (permission denied; try as root)")]
    Denied(String),
    /// A pipe, a device, a directory, or a link that leads elsewhere.
    #[error("{0} is not a regular file")]
    NotAFile(String),
    /// The file is larger than [`MAX_FILE`].
    #[error("{file} is larger than {} MiB", most >> 20)]
    TooLarge {
        /// The file.
        file: String,
        /// The bound, bytes.
        most: u64,
    },
    /// The kernel's answer, or a value that has another form than the rule knows.
    #[error("{file}: {reason}")]
    Other {
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
}

impl Unread {
    /// A value that the reader of `file` does not understand.
    #[must_use]
    pub fn value(file: &str, value: &str) -> Self {
        let shown: String = value.trim().chars().take(60).collect();
        Self::Other { file: file.to_owned(), reason: format!("unknown value `{shown}`") }
    }

    /// More entries than a rule reads. An answer from a part of them could be wrong.
    #[must_use]
    pub fn too_many(file: &str, most: usize) -> Self {
        Self::Other {
            file: file.to_owned(),
            reason: format!("more than {most} entries, the most that are read"),
        }
    }

    /// Returns `true` if the file is not there.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// Bytes that are not UTF-8 are replaced.
fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// A node's files.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    path: PathBuf,
}

impl Root {
    /// The files below `path`.
    ///
    /// # Errors
    /// The answer of the kernel when it opens the directory.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let dir = open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { dir, path: path.to_owned() })
    }

    /// Returns `true` if this is the running node, not a collection of files.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The text of a file, named from the root (`/proc/cmdline`); bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn read(&self, file: &str) -> Result<String, Unread> {
        self.read_up_to(file, MAX_FILE)
    }

    /// The text of a file of at most `most` bytes, as [`Self::read`].
    pub(crate) fn read_up_to(&self, file: &str, most: u64) -> Result<String, Unread> {
        Ok(text_of(self.read_bytes(file, most)?))
    }

    /// The text of a file compressed with gzip, of at most [`MAX_FILE`] bytes before and after.
    pub(crate) fn read_gzip(&self, file: &str) -> Result<String, Unread> {
        let packed = self.read_bytes(file, MAX_FILE)?;
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice())
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| Unread::Other { file: file.to_owned(), reason: e.to_string() })?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(Unread::TooLarge { file: file.to_owned(), most: MAX_FILE });
        }
        Ok(text_of(bytes))
    }

    fn read_bytes(&self, file: &str, most: u64) -> Result<Vec<u8>, Unread> {
        let found = self.resolve(file, OFlag::empty())?;
        if status(&found, file)?.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Unread::NotAFile(file.to_owned()));
        }
        let mut bytes = Vec::new();
        let opened = reopen(&found, OFlag::O_RDONLY).map_err(|e| unread(file, e))?;
        // files of /proc have no size of their own: read one byte more than allowed
        let read = File::from(opened).take(most + 1).read_to_end(&mut bytes);
        read.map_err(|e| unread(file, Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))?;
        if bytes.len() as u64 > most {
            return Err(Unread::TooLarge { file: file.to_owned(), most });
        }
        Ok(bytes)
    }

    /// The text of a file without blanks around it.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn value(&self, file: &str) -> Result<String, Unread> {
        self.read(file).map(|text| text.trim().to_owned())
    }

    /// The number in a file.
    ///
    /// # Errors
    /// [`Unread`], also if there is no number.
    pub fn number(&self, file: &str) -> Result<i64, Unread> {
        let text = self.value(file)?;
        text.parse().map_err(|_| Unread::value(file, &text))
    }

    /// The value of a file that has one of these values.
    ///
    /// # Errors
    /// [`Unread`], also for another value.
    pub fn one_of(&self, file: &str, values: &[&str]) -> Result<String, Unread> {
        let text = self.value(file)?;
        if values.contains(&text.as_str()) { Ok(text) } else { Err(Unread::value(file, &text)) }
    }

    /// The word in a file: letters, digits, `_` and `-`.
    ///
    /// # Errors
    /// [`Unread`], also if the file has no word, or something else.
    pub fn word(&self, file: &str) -> Result<String, Unread> {
        let text = self.value(file)?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if first && text.chars().all(is_word) { Ok(text) } else { Err(Unread::value(file, &text)) }
    }

    /// The names in a directory, sorted. Names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// [`Unread`], also for a directory with more than [`MAX_NAMES`] names.
    pub fn list(&self, dir: &str) -> Result<Vec<String>, Unread> {
        let found = self.resolve(dir, OFlag::O_DIRECTORY)?;
        let listing = std::fs::read_dir(own_path(&found))
            .map_err(|e| unread(dir, Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))?;
        let entries: Vec<_> = listing.flatten().take(MAX_NAMES + 1).collect();
        if entries.len() > MAX_NAMES {
            return Err(Unread::too_many(dir, MAX_NAMES));
        }
        let mut names: Vec<String> =
            entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The names in a directory that are numbers, in ascending order; empty if the directory cannot be listed.
    #[must_use]
    pub fn numbers(&self, dir: &str) -> Vec<u32> {
        let names = self.list(dir).unwrap_or_default();
        let mut numbers: Vec<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns `true` if there is such a file or directory.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.resolve(path, OFlag::empty()).is_ok()
    }

    /// Returns `true` if the mode of a file has a bit for writing.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn has_write_bit(&self, file: &str) -> Result<bool, Unread> {
        let found = self.resolve(file, OFlag::empty())?;
        Ok(status(&found, file)?.st_mode & 0o222 != 0)
    }

    /// A path descriptor of what `path` names.
    fn resolve(&self, path: &str, flags: OFlag) -> Result<OwnedFd, Unread> {
        let below = path.trim_start_matches('/');
        let below = if below.is_empty() { "." } else { below };
        let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC;
        let limits = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags).resolve(limits);
        let below = Path::new(OsStr::from_bytes(below.as_bytes()));
        match openat2(self.dir.as_fd(), below, how) {
            // kernels before 5.6 and some containers' filters of system calls; the node itself is trusted
            Err(Errno::ENOSYS | Errno::EPERM) if self.is_live() => {
                nix::fcntl::openat(self.dir.as_fd(), below, flags, Mode::empty())
            }
            other => other,
        }
        .map_err(|e| unread(path, e))
    }
}

/// Opens a resolved file; `/proc/self/fd` of this process is trusted, whatever the root.
fn reopen(found: &OwnedFd, flags: OFlag) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    open(own_path(found).as_str(), flags, Mode::empty())
}

fn own_path(found: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", found.as_raw_fd())
}

fn status(found: &OwnedFd, file: &str) -> Result<FileStat, Unread> {
    fstat(found).map_err(|e| Unread::Other { file: file.into(), reason: e.desc().to_owned() })
}

fn unread(file: &str, error: Errno) -> Unread {
    let file = file.to_owned();
    match error {
        Errno::ENOENT | Errno::ENOTDIR => Unread::Missing(file),
        Errno::EACCES | Errno::EPERM => Unread::Denied(file),
        Errno::ELOOP | Errno::EXDEV | Errno::ENXIO => Unread::NotAFile(file),
        other => Unread::Other { file, reason: other.desc().to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_hostile_tree_leads_nowhere_and_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("inside"), "here").expect("written");
        symlink("/etc/passwd", at("absolute")).expect("a link");
        symlink("../../../../../../etc/passwd", at("upwards")).expect("a link");
        symlink("/inside", at("rooted")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        symlink("/proc/self/fd/0", at("magic")).expect("a link");
        nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).expect("a pipe");
        File::create(at("huge")).and_then(|f| f.set_len(1 << 40)).expect("a sparse file");
        let root = Root::open(dir.path()).expect("opened");
        assert_eq!(root.read("/inside").expect("read"), "here");
        assert_eq!(root.read("/rooted").expect("links are from the root"), "here");
        for file in ["/absolute", "/upwards", "/magic", "/none", "/inside/below"] {
            assert!(root.read(file).is_err_and(|e| e.is_missing()), "{file}");
        }
        for file in ["/loop", "/pipe", "/"] {
            assert_eq!(root.read(file), Err(Unread::NotAFile(file.into())));
        }
        assert_eq!(root.read("/huge"), Err(Unread::TooLarge { file: "/huge".into(), most: MAX_FILE }));
        assert!(root.list("/").expect("listed").contains(&"pipe".to_owned()));
        assert!(root.list("/pipe").is_err() && root.list("/../..").expect("the root").len() == 8);
    }

    #[test]
    fn links_of_the_kernel_are_refused_below_the_running_node_too() {
        let root = Root::open(Path::new("/")).expect("opened");
        assert!(root.is_live() && root.number("/proc/sys/kernel/pid_max").expect("read") > 0);
        assert_eq!(root.read("/proc/self/exe"), Err(Unread::NotAFile("/proc/self/exe".into())));
        assert_eq!(root.read("/dev/zero"), Err(Unread::NotAFile("/dev/zero".into())));
    }
}
