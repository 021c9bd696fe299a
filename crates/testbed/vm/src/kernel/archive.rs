// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's archive, asked through a private state of apt: nothing of the host's own state is read or changed but the
//! address of its mirror.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::release;
use crate::cache::Lock;
use crate::{VmError, digest, tool};

/// Suites that have kernels: the stable release's own, and the newer ones that are rebuilt for it.
const SUITES: &str = "trixie trixie-backports";

/// Keyring and package of the keys that sign the archive's indexes.
const KEYRING: (&str, &str) = ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring");

/// Time for which the archive's indexes are taken for current.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// A package as the archive's signed index records it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Digest of its file.
    pub sha256: String,
    /// Its dependencies, as written.
    #[serde(skip)]
    depends: String,
}

/// The archive, with the folder of its indexes.
pub(super) struct Archive {
    folder: PathBuf,
}

impl Archive {
    /// The archive whose state is kept in `folder`. `sources` names it in apt's words; unless given it is the mirror
    /// this machine's own apt uses.
    ///
    /// # Errors
    /// Apt is not here, knows no mirror of Debian, or the key of the archive is missing.
    pub(super) fn open(folder: &Path, sources: Option<&str>) -> Result<Self, VmError> {
        let archive = Self { folder: folder.into() };
        for part in ["lists/partial", "cache/archives/partial", "sources", "empty"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).map_err(VmError::io(format!("the folder {}", part.display())))?;
        }
        let sources = match sources {
            Some(sources) => sources.to_owned(),
            None => official()?,
        };
        let _lock = archive.lock(|| {})?;
        let file = folder.join("sources/colony.sources");
        if fs::read_to_string(&file).ok().as_deref() != Some(&sources) {
            // indexes of another mirror are not this one's
            let _ = fs::remove_file(archive.stamp());
            fs::write(&file, sources).map_err(VmError::io(file.display().to_string()))?;
        }
        Ok(archive)
    }

    /// Fetches the indexes unless they are of today.
    pub(super) fn update(&self, notice: &mut dyn FnMut(&str)) -> Result<(), VmError> {
        // apt refuses a second one at the same time
        let _lock = self.lock(|| notice("waiting for another program that fetches the index"))?;
        let age = |at: SystemTime| at.elapsed().unwrap_or_default();
        let fetched = fs::metadata(self.stamp()).and_then(|m| m.modified());
        if fetched.is_ok_and(|at| age(at) < FRESH) {
            return Ok(());
        }
        notice("fetching the index of Debian's kernels");
        let mut command = self.apt("apt-get");
        command.args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]);
        tool::output(command, "apt-get", "apt", "fetching the archive's index")?;
        fs::write(self.stamp(), []).map_err(VmError::io("marking the index as fetched"))
    }

    fn lock(&self, waiting: impl FnOnce()) -> Result<Lock, VmError> {
        Lock::wait(&self.folder.join(".lock"), waiting)
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join("updated")
    }

    /// Releases of all cloud kernels, the newest last.
    pub(super) fn releases(&self) -> Result<Vec<String>, VmError> {
        let mut command = self.apt("apt-cache");
        command.args(["search", "--names-only", "^linux-image-[0-9].*-cloud-amd64$"]);
        let found = tool::output(command, "apt-cache", "apt", "looking for kernels")?;
        let text = String::from_utf8_lossy(&found);
        let name =
            |line: &str| Some(line.split_whitespace().next()?.strip_prefix("linux-image-")?.to_owned());
        let mut all: Vec<String> = text.lines().filter_map(name).collect();
        all.sort_by(|a, b| release::order(a, b));
        all.dedup();
        Ok(all)
    }

    /// The packages of a release that hold its kernel and modules; none where the archive has no such release.
    pub(super) fn packages(&self, release: &str) -> Result<Vec<Package>, VmError> {
        let suffix = format!("-{release}");
        let mut to_ask = vec![format!("linux-image{suffix}")];
        let mut all: Vec<Package> = Vec::new();
        while let Some(name) = to_ask.pop() {
            let mut command = self.apt("apt-cache");
            command.args(["show", "--no-all-versions", &name]);
            // it fails for a package that is not there
            let shown = tool::output(command, "apt-cache", "apt", "asking for a kernel");
            let Some(package) = shown.ok().and_then(|s| package(&String::from_utf8_lossy(&s))) else {
                continue;
            };
            // the newer kernels come in parts
            let parts = package.depends.split([',', '|']).filter_map(|d| d.split_whitespace().next());
            let parts = parts.filter(|d| d.starts_with("linux-") && d.ends_with(&suffix)).map(str::to_owned);
            to_ask.extend(parts.filter(|d| all.iter().all(|p| p.name != *d) && *d != name));
            if all.iter().all(|p| p.name != package.name) {
                all.push(package);
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Unpacks a package into `into`, after holding its file against the index once more.
    pub(super) fn unpack(&self, package: &Package, into: &Path) -> Result<(), VmError> {
        let folder = tempfile::tempdir_in(&self.folder).map_err(VmError::io("a folder for a package"))?;
        let mut command = self.apt("apt-get");
        command.args(["-qq", "download", &format!("{}={}", package.name, package.version)]);
        command.current_dir(folder.path());
        tool::output(command, "apt-get", "apt", &format!("fetching {}", package.name))?;
        let file = fs::read_dir(folder.path())
            .map_err(VmError::io("the folder of a package"))?
            .filter_map(|e| Some(e.ok()?.path()))
            .find(|p| p.extension().is_some_and(|e| e == "deb"))
            .ok_or_else(|| VmError::ToolFailed {
                tool: "apt-get",
                what: format!("fetching {}", package.name),
                reason: "it left no file".into(),
            })?;
        let data = fs::read(&file).map_err(VmError::io(file.display().to_string()))?;
        let found = digest::hex(&data);
        if found != package.sha256 {
            let reason = format!("its SHA-256 is {found}, the archive's index says {}", package.sha256);
            return Err(VmError::File { path: file, reason });
        }
        let mut command = Command::new("dpkg-deb");
        command.arg("-x").arg(&file).arg(into);
        tool::output(command, "dpkg-deb", "dpkg", &format!("unpacking {}", package.name)).map(drop)
    }

    /// Apt with a state of its own.
    fn apt(&self, tool: &str) -> Command {
        let option = |key: &str, part: &str| format!("{key}={}", self.folder.join(part).display());
        let mut command = Command::new(tool);
        for option in [
            option("Dir::State::lists", "lists"),
            option("Dir::Cache", "cache"),
            option("Dir::Etc::sourceparts", "sources"),
            option("Dir::Etc::preferencesparts", "empty"),
            "Dir::Etc::sourcelist=/dev/null".into(),
            "Dir::Etc::preferences=/dev/null".into(),
            "APT::Architecture=amd64".into(),
            "APT::Architectures=amd64".into(),
            "Acquire::Languages=none".into(),
            "Acquire::Retries=3".into(),
        ] {
            command.arg("-o").arg(option);
        }
        if nix::unistd::geteuid().is_root() {
            // its own user cannot write into this folder
            command.args(["-o", "APT::Sandbox::User=root"]);
        }
        command.env("LC_ALL", "C");
        command
    }
}

/// The archive in apt's words, on the mirror that this machine uses.
fn official() -> Result<String, VmError> {
    let (keyring, package) = KEYRING;
    if !Path::new(keyring).is_file() {
        return Err(VmError::Tool { tool: "apt-get", package, reason: format!("{keyring} is not there") });
    }
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(SITE)"]);
    let targets = tool::output(command, "apt-get", "apt", "asking for this machine's mirror")?;
    let text = String::from_utf8_lossy(&targets);
    let site = text.lines().find_map(|l| l.strip_prefix("Debian|Debian|main|")).ok_or_else(|| {
        VmError::NoKernel {
            wanted: "the archive".into(),
            reason:
                "this machine's apt knows no mirror of Debian (or has never been updated: apt-get update); \
                     name a kernel file instead"
                    .into(),
        }
    })?;
    Ok(format!("Types: deb\nURIs: {site}\nSuites: {SUITES}\nComponents: main\nSigned-By: {keyring}\n"))
}

/// The first package of what `apt-cache show` prints.
fn package(text: &str) -> Option<Package> {
    let field = |name: &str| {
        let lines = text.lines().take_while(|l| !l.is_empty());
        lines.filter_map(|l| l.split_once(": ")).find(|(n, _)| *n == name).map(|(_, v)| v.to_owned())
    };
    Some(Package {
        name: field("Package")?,
        version: field("Version")?,
        sha256: field("SHA256")?,
        depends: field("Depends").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_its_first_stanza() {
        let text =
            "Package: a\nVersion: 1\nDepends: b (= 1), c\nSHA256: 12\n\nPackage: a\nVersion: 0\nSHA256: 34\n";
        let found = package(text).expect("one");
        assert_eq!((found.name.as_str(), found.version.as_str(), found.sha256.as_str()), ("a", "1", "12"));
        assert_eq!(found.depends, "b (= 1), c");
        assert_eq!(package("Package: a\n\nVersion: 1\nSHA256: 1\n"), None);
    }
}
