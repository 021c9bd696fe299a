// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a machine's memory at its start: our first program, programs with their libraries, files, kernel
//! modules. It is made in memory for every start; nothing is kept that could grow old.

mod cpio;
mod elf;
mod module;
mod packages;
mod recipe;
mod sbom;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

pub use self::recipe::Recipe;
use crate::VmError;
use crate::kernel::Kernel;

/// The guest's first program.
static INIT: &[u8] = include_bytes!(env!("COLONY_INIT"));

/// Folders that are links into `/usr`, as on every current distribution.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Folders in which a guest looks for programs.
const PROGRAM_FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// The entry at a path of the guest.
#[derive(Debug, Clone)]
enum Entry {
    Folder { permissions: u32 },
    Bytes { data: Vec<u8>, permissions: u32 },
    Host { path: PathBuf },
    Link { target: PathBuf },
}

/// Something in an image.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Content<'a> {
    /// Path in the guest.
    pub path: &'a Path,
    /// Bytes of a file; of a program before its symbols are left out.
    pub bytes: u64,
    /// The file of the host that it is, or where a symbolic link points.
    pub from: Option<&'a Path>,
}

/// A guest's root file system, in the making.
#[derive(Debug, Clone, Default)]
pub struct Image {
    entries: BTreeMap<PathBuf, Entry>,
    /// Files of the host whose libraries belong into the image.
    programs: BTreeSet<PathBuf>,
    modules: Vec<String>,
    keep_symbols: bool,
}

impl Image {
    /// A system that can run static programs, and nothing else.
    #[must_use]
    pub fn new() -> Self {
        let mut image = Self::default();
        for folder in
            ["/dev", "/proc", "/sys", "/run", "/tmp", "/root", "/etc", "/usr/bin", "/usr/sbin", "/var"]
        {
            image.folder(folder);
        }
        for name in MERGED {
            image.folder(format!("/usr/{name}"));
            image.insert(Path::new("/").join(name), Entry::Link { target: format!("usr/{name}").into() });
        }
        image.bytes("/init", INIT, 0o755);
        image.bytes("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644);
        image.bytes("/etc/group", "root:x:0:\ntty:x:5:\n", 0o644);
        image
    }

    /// Adds busybox: a shell and some 270 programs, each under its name.
    ///
    /// # Errors
    /// There is no static busybox on this machine.
    pub fn busybox(&mut self) -> Result<&mut Self, VmError> {
        const TOOL: (&str, &str) = ("busybox", "busybox-static");
        let missing = |reason: String| VmError::Tool { tool: TOOL.0, package: TOOL.1, reason };
        let path = find_program(TOOL.0).ok_or_else(|| missing("it is not in PATH".into()))?;
        let mut list = std::process::Command::new(&path);
        list.arg("--list");
        let applets = crate::tool::output(list, TOOL.0, TOOL.1, "listing its programs")?;
        self.program(&path)?;
        for applet in String::from_utf8_lossy(&applets).lines().filter(|a| !a.is_empty()) {
            let place = Path::new("/usr/bin").join(applet);
            self.entries.entry(place).or_insert_with(|| Entry::Link { target: normal(&path) });
        }
        Ok(self)
    }

    /// Adds a program of the host with all libraries it needs, at its own path, and under its name in `/usr/bin`.
    /// A name without a slash is looked for beside the running program and in `PATH`.
    ///
    /// # Errors
    /// No such program, or a library that is missing.
    pub fn program(&mut self, program: impl AsRef<Path>) -> Result<&mut Self, VmError> {
        let program = program.as_ref();
        let found = if program.components().count() > 1 {
            std::path::absolute(program).ok().filter(|p| p.is_file())
        } else {
            program.to_str().and_then(find_program)
        };
        let path = found.ok_or_else(|| {
            VmError::Wrong(format!("there is no program {}; give its path", program.display()))
        })?;
        self.programs.insert(path.clone());
        let Some(name) = path.file_name() else { return Ok(self) };
        if program.components().count() == 1 && !in_program_folder(&path) {
            // one that was found by its name, beside this program: the image shall not depend on where that is
            let guest = Path::new("/usr/bin").join(name);
            return Ok(self.insert(guest, Entry::Host { path }));
        }
        self.named(name, &path);
        self.insert(path.clone(), Entry::Host { path });
        Ok(self)
    }

    /// Returns `true` if the image has a program of this name where guests look for programs.
    #[must_use]
    pub fn has_program(&self, name: &str) -> bool {
        PROGRAM_FOLDERS.iter().any(|f| self.entries.contains_key(&Path::new(f).join(name)))
    }

    /// Makes `path` reachable by `name` for whoever looks in the usual folders.
    fn named(&mut self, name: &OsStr, path: &Path) {
        if !in_program_folder(path) {
            self.insert(Path::new("/usr/bin").join(name), Entry::Link { target: normal(path) });
        }
    }

    /// Adds a file of the host at `guest`, with its permissions; where it is a library or a program, without what
    /// it needs.
    pub fn file(&mut self, host: impl Into<PathBuf>, guest: impl AsRef<Path>) -> &mut Self {
        self.insert(guest.as_ref().into(), Entry::Host { path: host.into() })
    }

    /// Adds a folder of the host at its own path with everything in it, and the libraries that its files need.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn tree(&mut self, folder: impl AsRef<Path>) -> Result<&mut Self, VmError> {
        let mut to_read = vec![folder.as_ref().to_path_buf()];
        while let Some(folder) = to_read.pop() {
            let what = || format!("the folder {}", folder.display());
            for entry in fs::read_dir(&folder).map_err(VmError::io(what()))? {
                let entry = entry.map_err(VmError::io(what()))?;
                let (path, kind) = (entry.path(), entry.file_type().map_err(VmError::io(what()))?);
                if kind.is_dir() {
                    self.folder(&path);
                    to_read.push(path);
                } else if kind.is_symlink() {
                    let target = fs::read_link(&path).map_err(VmError::io(path.display().to_string()))?;
                    self.insert(path, Entry::Link { target });
                } else if kind.is_file() {
                    self.programs.insert(path.clone());
                    self.insert(path.clone(), Entry::Host { path });
                }
            }
        }
        Ok(self)
    }

    /// Adds a file with this content.
    pub fn bytes(
        &mut self,
        guest: impl AsRef<Path>,
        data: impl Into<Vec<u8>>,
        permissions: u32,
    ) -> &mut Self {
        self.insert(guest.as_ref().into(), Entry::Bytes { data: data.into(), permissions })
    }

    /// Adds an empty folder.
    pub fn folder(&mut self, guest: impl AsRef<Path>) -> &mut Self {
        self.insert(guest.as_ref().into(), Entry::Folder { permissions: 0o755 })
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, guest: impl AsRef<Path>, target: impl Into<PathBuf>) -> &mut Self {
        self.insert(guest.as_ref().into(), Entry::Link { target: target.into() })
    }

    /// Loads a kernel module, with those it depends on, before the job starts.
    pub fn module(&mut self, name: impl Into<String>) -> &mut Self {
        self.modules.push(name.into());
        self
    }

    /// Keeps symbol tables and debugging information, which are left out of programs otherwise.
    pub const fn keep_symbols(&mut self) -> &mut Self {
        self.keep_symbols = true;
        self
    }

    fn insert(&mut self, guest: PathBuf, entry: Entry) -> &mut Self {
        self.entries.insert(normal(&guest), entry);
        self
    }

    /// The content of the image, in the order of paths. Libraries and modules are added when it is
    /// [completed](Image::complete).
    pub fn contents(&self) -> impl Iterator<Item = Content<'_>> {
        self.entries.iter().map(|(path, entry)| match entry {
            Entry::Folder { .. } => Content { path, bytes: 0, from: None },
            Entry::Bytes { data, .. } => Content { path, bytes: data.len() as u64, from: None },
            Entry::Host { path: host } => {
                Content { path, bytes: fs::metadata(host).map_or(0, |m| m.len()), from: Some(host) }
            }
            Entry::Link { target } => Content { path, bytes: 0, from: Some(target) },
        })
    }

    /// Adds all that the image's programs and modules need: libraries, other modules, folders.
    ///
    /// # Errors
    /// A library or module that is missing.
    pub fn complete(&mut self, kernel: &Kernel) -> Result<(), VmError> {
        self.add_libraries()?;
        self.add_modules(kernel)?;
        self.add_parents();
        Ok(())
    }

    /// Writes the image, completed, as the archive that `kernel` unpacks.
    ///
    /// # Errors
    /// A file of the host that cannot be read, a library or module that is missing.
    pub fn write<W: Write>(&self, kernel: &Kernel, out: W) -> Result<W, VmError> {
        let mut image = self.clone();
        image.complete(kernel)?;
        let mut archive = cpio::Writer::new(out);
        for (guest, entry) in &image.entries {
            image.write_entry(&mut archive, guest, entry)?;
        }
        archive.end().map_err(VmError::io("writing an image"))
    }

    fn add_libraries(&mut self) -> Result<(), VmError> {
        let mut finder = elf::Finder::default();
        let mut any = false;
        for program in std::mem::take(&mut self.programs) {
            for library in finder.closure(&program)? {
                any = true;
                self.entries.entry(normal(&library)).or_insert(Entry::Host { path: library });
            }
        }
        let cache = Path::new("/etc/ld.so.cache");
        if any && cache.is_file() {
            // the guest's loader then looks where the host's does; what is not in the guest it passes over
            self.insert(cache.into(), Entry::Host { path: cache.into() });
        }
        Ok(())
    }

    fn add_modules(&mut self, kernel: &Kernel) -> Result<(), VmError> {
        let modules = std::mem::take(&mut self.modules);
        if modules.is_empty() {
            return Ok(());
        }
        let folder = kernel.modules().ok_or_else(|| {
            VmError::Wrong(format!(
                "the kernel {} came without modules, which this image or network needs; take another kernel",
                kernel.release()
            ))
        })?;
        let mut list = String::new();
        for m in module::closure(folder, &modules)? {
            let path = format!("/usr/lib/modules/{}.ko", m.name);
            list.push_str(&path);
            list.push('\n');
            self.bytes(path, m.data, 0o644);
        }
        self.bytes(colony_init::MODULES_PATH, list, 0o644);
        Ok(())
    }

    fn add_parents(&mut self) {
        let parents: BTreeSet<PathBuf> =
            self.entries.keys().flat_map(|p| p.ancestors().skip(1).map(Path::to_path_buf)).collect();
        for parent in parents.into_iter().filter(|p| p != Path::new("/")) {
            self.entries.entry(parent).or_insert(Entry::Folder { permissions: 0o755 });
        }
    }

    /// Bytes of a file as the archive has them; `None` for what is no file.
    fn data_of<'a>(&self, entry: &'a Entry) -> Result<Option<Cow<'a, [u8]>>, VmError> {
        match entry {
            Entry::Folder { .. } | Entry::Link { .. } => Ok(None),
            Entry::Bytes { data, .. } => Ok(Some(Cow::Borrowed(data))),
            Entry::Host { path } => {
                let data = fs::read(path).map_err(VmError::io(path.display().to_string()))?;
                Ok(Some(Cow::Owned(if self.keep_symbols { data } else { elf::strip(data) })))
            }
        }
    }

    fn write_entry<W: Write>(
        &self,
        archive: &mut cpio::Writer<W>,
        guest: &Path,
        entry: &Entry,
    ) -> Result<(), VmError> {
        let name = guest.as_os_str().as_bytes();
        let data = self.data_of(entry)?.unwrap_or_default();
        let written = match entry {
            Entry::Folder { permissions } => archive.add(name, *permissions, &cpio::Kind::Folder),
            Entry::Bytes { permissions, .. } => archive.add(name, *permissions, &cpio::Kind::File(&data)),
            Entry::Link { target } => {
                archive.add(name, 0o777, &cpio::Kind::Link(target.as_os_str().as_bytes()))
            }
            Entry::Host { path } => {
                let what = || VmError::io(path.display().to_string());
                let permissions = fs::metadata(path).map_err(what())?.permissions().mode();
                archive.add(name, permissions, &cpio::Kind::File(&data))
            }
        };
        written.map_err(VmError::io(format!("writing {} into an image", guest.display())))
    }
}

/// An archive with only the job, to follow an image.
pub(crate) fn job_archive<W: Write>(
    job: &colony_init::job::Job,
    files: &[(PathBuf, Vec<u8>)],
    out: W,
) -> Result<W, VmError> {
    let mut image = Image::default();
    let text =
        serde_json::to_vec(job).map_err(std::io::Error::other).map_err(VmError::io("writing a job"))?;
    image.bytes(colony_init::JOB_PATH, text, 0o600);
    for (path, data) in files {
        image.bytes(path, data.as_slice(), 0o755);
    }
    image.add_parents();
    let mut archive = cpio::Writer::new(out);
    for (guest, entry) in &image.entries {
        image.write_entry(&mut archive, guest, entry)?;
    }
    archive.end().map_err(VmError::io("writing an image"))
}

/// The path without `.` and `..`, and through the links into `/usr`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let below = out.strip_prefix("/").unwrap_or(&out);
    let mut parts = below.components();
    let merged = parts.next().is_some_and(|first| MERGED.iter().any(|m| first.as_os_str() == *m));
    // the links themselves stay
    if merged && parts.next().is_some() { Path::new("/usr").join(below) } else { out }
}

/// Returns `true` if a guest finds a program at this path by its name.
fn in_program_folder(path: &Path) -> bool {
    let guest = normal(path);
    PROGRAM_FOLDERS.iter().any(|f| guest.parent() == Some(Path::new(f)))
}

/// A program by its name: beside the running one, else in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    // tests lie one folder below the programs they test
    let above =
        beside.as_deref().filter(|f| f.ends_with("deps")).and_then(Path::parent).map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = above.into_iter().chain(beside).chain(std::env::split_paths(&path));
    let runnable =
        |p: &PathBuf| fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    folders.map(|f| f.join(name)).find(runnable)
}
