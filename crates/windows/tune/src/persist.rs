// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units of systemd that apply transactions again at every boot.
//!
//! A unit is a file and a link to it in the folder of `multi-user.target`, as `systemctl enable` makes it. Root runs what the unit names, so
//! the program, the profile and every folder above them must be files that root alone can change.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use colony_node::file::{remove_unfinished, replace_synced};
use colony_node::trust::{check_file, check_folder};

use crate::error::TuneError;
use crate::linux::Linux;
use crate::node::Node;
use crate::transaction::check_name;

/// The first line of every unit, by which units of other authors are told apart.
const MARK: &str = "# Written by colony tune apply --persist";
const PREFIX: &str = "colony-tune-";
const SUFFIX: &str = ".service";
/// The folder of the links to units that the boot starts.
const WANTS: &str = "multi-user.target.wants";

/// The folder of the units.
#[derive(Debug)]
pub struct Units {
    folder: PathBuf,
    /// The folder that exists if systemd has booted the machine (`sd_booted(3)`).
    booted: PathBuf,
    /// The user beside root whose files are trusted: in trials.
    owner: u32,
    /// Tells systemd about changes; `None` in trials.
    machine: Option<Linux>,
}

/// A unit that is not written yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    name: String,
    text: String,
}

impl Units {
    /// Folder of the units that an administrator adds.
    pub const FOLDER: &str = "/etc/systemd/system";

    /// The units of this machine.
    #[must_use]
    pub fn new() -> Self {
        let booted = PathBuf::from("/run/systemd/system");
        Self { folder: Self::FOLDER.into(), booted, owner: 0, machine: Some(Linux::new()) }
    }

    /// Units below another root, for trials: systemd is told nothing, and this user counts as root.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        let at = |folder: &str| root.join(folder.trim_start_matches('/'));
        let owner = nix::unistd::geteuid().as_raw();
        Self { folder: at(Self::FOLDER), booted: at("/run/systemd/system"), owner, machine: None }
    }

    /// Makes the unit of the transaction `name`, which runs `program` with `arguments` at every boot. Writes nothing. `read`: further
    /// files that the program reads, such as a profile.
    ///
    /// # Errors
    /// [`TuneError::Persist`]: systemd does not run; another user than root can change the program or a file that it reads; another
    /// author's unit has this name.
    pub fn plan(
        &self,
        name: &str,
        program: &Path,
        arguments: &[String],
        read: &[PathBuf],
    ) -> Result<Unit, TuneError> {
        check_name(name)?;
        if !self.booted.is_dir() {
            return Err(persist(
                "systemd does not run on this node, and only systemd applies settings at a boot",
            ));
        }
        for file in [program].into_iter().chain(read.iter().map(PathBuf::as_path)) {
            check_file(file, self.owner).map_err(|e| {
                persist(format!(
                    "root would use {} at every boot, and others may change it: {e}",
                    file.display()
                ))
            })?;
        }
        check_folder(&self.folder, self.owner).map_err(|e| persist(e.to_string()))?;
        let file = self.file(name);
        if file.symlink_metadata().is_ok() && !self.is_own(name)? {
            return Err(persist(format!("{} is not of colony tune; remove it first", file.display())));
        }
        let words = [program.to_str()].into_iter().chain(arguments.iter().map(|a| Some(a.as_str())));
        let words: Option<Vec<String>> = words.map(|word| word.and_then(quote)).collect();
        let Some(words) = words else {
            return Err(persist("a file or an option has characters that a unit of systemd cannot have"));
        };
        Ok(Unit { name: name.to_owned(), text: text(name, &words.join(" ")) })
    }

    /// Writes the unit and enables it. A failure leaves nothing.
    ///
    /// # Errors
    /// [`TuneError::Persist`].
    pub fn install(&self, unit: &Unit) -> Result<PathBuf, TuneError> {
        let file = self.file(&unit.name);
        let installed = self.write(unit).and_then(|()| self.reload());
        installed.map(|()| file.clone()).map_err(|e| {
            let left = self.remove(&unit.name).err().map(|e| format!("; {e}")).unwrap_or_default();
            persist(format!("{}: {e}{left}", file.display()))
        })
    }

    fn write(&self, unit: &Unit) -> io::Result<()> {
        remove_unfinished(&self.folder)?;
        // the unit first: a link alone would be an error at every boot
        replace_synced(&self.file(&unit.name), unit.text.as_bytes(), 0o644)?;
        let link = self.link(&unit.name);
        if let Some(wants) = link.parent() {
            fs::create_dir_all(wants)?;
            match symlink(Path::new("..").join(file_name(&unit.name)), &link) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
                _ => fs::File::open(wants)?.sync_all()?,
            }
        }
        Ok(())
    }

    /// Disables and removes the unit of the transaction `name`. Returns `false` if there is none.
    ///
    /// # Errors
    /// [`TuneError::Persist`]; what is left is removed by the next call.
    pub fn remove(&self, name: &str) -> Result<bool, TuneError> {
        check_name(name)?;
        if !self.folder.is_dir() {
            return Ok(false);
        }
        let file = self.file(name);
        let failed = |e: io::Error| persist(format!("{} cannot be removed: {e}", file.display()));
        remove_unfinished(&self.folder).map_err(failed)?;
        if !self.is_own(name)? {
            return Ok(false);
        }
        if let Some(machine) = &self.machine {
            // fails if the boot has not started the unit
            let _ = machine.run(&["systemctl".into(), "stop".into(), file_name(name)]);
        }
        for path in [self.link(name), file.clone()] {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
                _ => {}
            }
        }
        self.reload().map_err(failed).map(|()| true)
    }

    /// The transactions with a unit.
    ///
    /// # Errors
    /// [`TuneError::Persist`].
    pub fn names(&self) -> Result<Vec<String>, TuneError> {
        let failed = |e: io::Error| persist(format!("{}: {e}", self.folder.display()));
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.map_err(failed)?.file_name();
            let name = file.to_str().and_then(|f| f.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
            if let Some(name) = name.filter(|name| check_name(name).is_ok())
                && self.is_own(name)?
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(file_name(name))
    }

    fn link(&self, name: &str) -> PathBuf {
        self.folder.join(WANTS).join(file_name(name))
    }

    /// Returns `true` if the unit is there, and [`Units::install`] has written it.
    fn is_own(&self, name: &str) -> Result<bool, TuneError> {
        let path = self.file(name);
        let read = || -> io::Result<bool> {
            if !path.symlink_metadata()?.is_file() {
                return Ok(false);
            }
            let mut begin = Vec::new();
            fs::File::open(&path)?.take(MARK.len() as u64).read_to_end(&mut begin)?;
            Ok(begin == MARK.as_bytes())
        };
        match read() {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            own => own.map_err(|e| persist(format!("{}: {e}", path.display()))),
        }
    }

    fn reload(&self) -> io::Result<()> {
        let Some(machine) = &self.machine else { return Ok(()) };
        machine.run(&["systemctl".into(), "daemon-reload".into()])
    }
}

impl Default for Units {
    fn default() -> Self {
        Self::new()
    }
}

fn persist(reason: impl Into<String>) -> TuneError {
    TuneError::Persist(reason.into())
}

fn file_name(name: &str) -> String {
    format!("{PREFIX}{name}{SUFFIX}")
}

fn text(name: &str, command: &str) -> String {
    format!(
        "{MARK}\n\
         # colony tune revert {name} removes it.\n\
         [Unit]\n\
         Description=Colony: settings of the transaction {name}\n\
         # the settings of these services would replace those of the transaction\n\
         After=local-fs.target systemd-modules-load.service systemd-sysctl.service tuned.service irqbalance.service\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={command}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// A word of `ExecStart=` (`systemd.service(5)`): specifiers and variables are not expanded. `None` for a word with control characters.
fn quote(word: &str) -> Option<String> {
    if word.contains(char::is_control) {
        return None;
    }
    let escaped = word.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "/._-+=:,@%".contains(c));
    Some(if is_plain { escaped } else { format!("\"{escaped}\"") })
}
