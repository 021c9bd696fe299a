// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine this process runs on.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use colony_ledger::{Released, lock_file};
use colony_node::NodeError;
use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};
use nix::fcntl::OFlag;

use crate::node::Node;

/// The largest setting, bytes. A longer one is refused: a part of it cannot be restored.
const LARGEST_SETTING: u64 = 1 << 20;
/// The largest journal, bytes: a quarter of a million steps. A larger one is refused before the node is changed.
const LARGEST_JOURNAL: u64 = 64 << 20;
/// The longest wait for another process that changes settings: as long as one command may take.
const LOCK_TIMEOUT: Duration = COMMAND_TIMEOUT;
/// Time after which a command is killed.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The machine this process runs on, with its journals in a folder of root's alone.
#[derive(Debug)]
pub struct Linux {
    root: PathBuf,
    folder: PathBuf,
}

impl Linux {
    /// Folder of the journals. It is in memory: journals mean nothing after the boot.
    pub const FOLDER: &str = "/run/colony-tune";

    /// The machine, with the journals in [`Linux::FOLDER`].
    #[must_use]
    pub fn new() -> Self {
        Self { root: PathBuf::from("/"), folder: Self::FOLDER.into() }
    }

    /// Files below `root` in place of the machine's `/proc` and `/sys`, with journals in `folder`: for trials. Commands and tasks
    /// would be this machine's, so they are refused.
    #[must_use]
    pub fn below(root: &Path, folder: &Path) -> Self {
        Self { root: root.to_owned(), folder: folder.to_owned() }
    }

    /// Waits until no other process changes settings through a journal of this folder, and keeps others out while the lock
    /// is held. Makes the folder.
    ///
    /// # Errors
    /// The folder cannot be made, or belongs to another user; another process still holds the lock after a minute.
    pub fn lock(&self) -> io::Result<File> {
        if let Some(parent) = self.folder.parent() {
            fs::create_dir_all(parent).map_err(|e| self.at(e))?;
        }
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(self.at(e)),
            _ => self.check_folder()?,
        }
        lock_file(&self.folder.join("lock"), LOCK_TIMEOUT)
    }

    fn at(&self, e: io::Error) -> io::Error {
        io::Error::new(e.kind(), format!("{}: {e}", self.folder.display()))
    }

    /// Another user may be able to make the folder first.
    fn check_folder(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.folder)?;
        let own =
            found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o077 == 0;
        if own {
            return Ok(());
        }
        let text = format!("{} is no folder of this user alone; remove it", self.folder.display());
        Err(io::Error::new(ErrorKind::PermissionDenied, text))
    }

    /// Returns `true` for files below another root.
    fn is_trial(&self) -> bool {
        self.root != Path::new("/")
    }

    /// Refuses what would reach this machine from a trial below another root.
    fn refuse_in_a_trial(&self, what_happens: &str) -> io::Result<()> {
        if !self.is_trial() {
            return Ok(());
        }
        let text = format!("{what_happens} on this machine, not on the files below {}", self.root.display());
        Err(io::Error::new(ErrorKind::Unsupported, text))
    }

    fn setting(&self, file: &str) -> PathBuf {
        self.root.join(file.trim_start_matches('/'))
    }

    /// Files of journals, each with its number and name, in order.
    fn files(&self) -> io::Result<Vec<(u64, String, PathBuf)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let parsed = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".json")?.split_once('.'));
            let parsed = parsed.and_then(|(number, name)| Some((number.parse().ok()?, name.to_owned())));
            files.extend(parsed.map(|(number, name)| (number, name, path.clone())));
        }
        files.sort();
        Ok(files)
    }

    /// The journal of a transaction that has one.
    fn journal_of(&self, name: &str) -> io::Result<PathBuf> {
        let missing = || io::Error::other(format!("the transaction {name} has no journal"));
        self.file_of(name)?.ok_or_else(missing)
    }

    fn file_of(&self, name: &str) -> io::Result<Option<PathBuf>> {
        Ok(self.files()?.into_iter().find(|(_, n, _)| n == name).map(|(_, _, path)| path))
    }
}

impl Default for Linux {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads a file of at most `largest` bytes, and never waits for the other side of a pipe.
fn read_file(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let mut bytes = Vec::new();
    file.take(largest + 1).read_to_end(&mut bytes)?;
    check_size(bytes.len(), largest)?;
    Ok(bytes)
}

fn check_size(size: usize, largest: u64) -> io::Result<()> {
    if size as u64 <= largest {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {largest} bytes")))
}

/// Returns an error if the task has ended, or its number is another task's by now.
fn check_task(task: TaskId) -> io::Result<()> {
    let found = task::stat(task.tid).map_err(|e| answer(&e))?;
    if found.start_ticks == task.start_ticks && !found.has_ended() {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::NotFound, format!("task {} has ended", task.tid)))
}

/// The kernel's answer in an error about a task.
fn answer(error: &NodeError) -> io::Error {
    let kind = match error {
        _ if error.is_no_task() => ErrorKind::NotFound,
        NodeError::System { source, .. } => source.kind(),
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

impl Node for Linux {
    fn read(&self, file: &str) -> io::Result<String> {
        let bytes = read_file(&self.setting(file), LARGEST_SETTING)?;
        // a value with replaced bytes could not be restored
        String::from_utf8(bytes).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let nonblock = OFlag::O_NONBLOCK.bits();
        let mut file =
            OpenOptions::new().write(true).truncate(true).custom_flags(nonblock).open(self.setting(file))?;
        // one call: the kernel takes each as a value of its own
        file.write_all(format!("{value}\n").as_bytes())
    }

    fn affinity(&self, task: TaskId) -> io::Result<CpuSet> {
        self.refuse_in_a_trial("a task runs")?;
        let cpus = cpu::affinity(task.tid).map_err(|e| answer(&e))?;
        // checked last: the CPUs are those of this task only if it still has its number
        check_task(task)?;
        Ok(cpus)
    }

    fn bind(&self, transaction: &str, task: TaskId, cpus: &CpuSet) -> io::Result<()> {
        self.refuse_in_a_trial("a task runs")?;
        check_task(task)?;
        colony_ledger::bind(&self.journal_of(transaction)?, task, cpus)
    }

    fn unbind(&self, transaction: &str, task: TaskId, chosen_too: bool) -> io::Result<Released> {
        self.refuse_in_a_trial("a task runs")?;
        colony_ledger::unbind(&self.journal_of(transaction)?, task, chosen_too)
    }

    fn run(&self, command: &[String]) -> io::Result<()> {
        self.refuse_in_a_trial("a command runs")?;
        let Some((program, arguments)) = command.split_first() else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "there is no command"));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let begun = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if begun.elapsed() > COMMAND_TIMEOUT => {
                    child.kill()?;
                    child.wait()?;
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        "it did not end within a minute, and was killed",
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if status.success() {
            return Ok(());
        }
        let mut said = Vec::new();
        if let Some(stderr) = child.stderr.take() {
            // what it started may hold the pipe open
            rest_of(stderr, &mut said);
        }
        let said = String::from_utf8_lossy(&said);
        Err(io::Error::other(format!("{status}: {}", said.trim().lines().next_back().unwrap_or_default())))
    }

    fn boot(&self) -> io::Result<String> {
        const FILE: &str = "/proc/sys/kernel/random/boot_id";
        match self.read(FILE) {
            Ok(id) => Ok(id.trim().to_owned()),
            // a folder of files has no boot
            Err(e) if e.kind() == ErrorKind::NotFound && self.is_trial() => Ok(String::new()),
            Err(e) => Err(io::Error::new(e.kind(), format!("{FILE}: {e}"))),
        }
    }

    fn journals(&self) -> io::Result<Vec<String>> {
        Ok(self.files()?.into_iter().map(|(_, name, _)| name).collect())
    }

    fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(path) = self.file_of(name)? else { return Ok(None) };
        self.check_folder()?;
        read_file(&path, LARGEST_JOURNAL).map(Some)
    }

    fn journal_file(&self, name: &str) -> String {
        let found = self.file_of(name).ok().flatten();
        found.unwrap_or_else(|| self.folder.join(format!("*.{name}.json"))).display().to_string()
    }

    fn save(&self, name: &str, journal: &[u8]) -> io::Result<()> {
        // a journal that cannot be read again would undo nothing
        check_size(journal.len(), LARGEST_JOURNAL)?;
        let files = self.files()?;
        let path = match files.iter().find(|(_, n, _)| n == name) {
            Some((_, _, path)) => path.clone(),
            None => {
                colony_node::file::remove_unfinished(&self.folder)?;
                let number = files.last().map_or(1, |(number, _, _)| number + 1);
                self.folder.join(format!("{number:06}.{name}.json"))
            }
        };
        colony_node::file::replace(&path, journal)
    }

    fn discard(&self, name: &str) -> io::Result<()> {
        match self.file_of(name)?.map(fs::remove_file) {
            Some(Err(e)) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

/// Reads what is in a pipe now.
fn rest_of(mut pipe: std::process::ChildStderr, into: &mut Vec<u8>) {
    use nix::fcntl::{FcntlArg, fcntl};
    if fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok() {
        // an error says that nothing is there now
        let _ = pipe.by_ref().take(4096).read_to_end(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, OnFailure, Step, apply, list, recover, revert};

    fn trial() -> (tempfile::TempDir, Linux) {
        let dir = tempfile::tempdir().expect("temp dir");
        fs::create_dir_all(dir.path().join("proc/sys/kernel/random")).expect("a folder");
        fs::write(dir.path().join("proc/sys/kernel/random/boot_id"), "b\n").expect("a file");
        fs::write(dir.path().join("proc/sys/kernel/a"), "1\n").expect("a file");
        let linux = Linux::below(dir.path(), &dir.path().join("journals"));
        (dir, linux)
    }

    fn step() -> Vec<Step> {
        vec![Step::new("a", Action::Write { file: "/proc/sys/kernel/a".into(), value: "0".into() })]
    }

    #[test]
    fn a_setting_is_written_and_restored_and_no_journal_is_left() {
        let (dir, linux) = trial();
        let _lock = linux.lock().expect("a folder");
        assert_eq!(recover(&linux).expect("nothing").len(), 0);
        apply(&linux, "t", step(), OnFailure::Undo).expect("applied");
        assert_eq!(linux.read("/proc/sys/kernel/a").expect("there").trim(), "0");
        assert_eq!(list(&linux).expect("one").len(), 1);
        revert(&linux, "t", false).expect("reverted");
        assert_eq!(linux.read("/proc/sys/kernel/a").expect("there").trim(), "1");
        let left: Vec<_> = fs::read_dir(dir.path().join("journals")).expect("there").collect();
        assert_eq!(left.len(), 1, "only the lock: {left:?}");
    }

    #[test]
    fn a_journal_of_another_boot_is_removed_and_changes_nothing() {
        let (dir, linux) = trial();
        let _lock = linux.lock().expect("a folder");
        apply(&linux, "t", step(), OnFailure::Undo).expect("applied");
        fs::write(dir.path().join("proc/sys/kernel/random/boot_id"), "c\n").expect("a file");
        assert!(list(&linux).expect("readable").is_empty());
        assert_eq!(linux.read("/proc/sys/kernel/a").expect("there").trim(), "0");
        assert!(linux.journals().expect("readable").is_empty());
    }

    #[test]
    fn a_folder_open_to_others_is_refused_and_nothing_is_changed() {
        let (dir, linux) = trial();
        DirBuilder::new().mode(0o777).create(dir.path().join("journals")).expect("a folder");
        fs::set_permissions(dir.path().join("journals"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .expect("own");
        let error = linux.lock().expect_err("open to others").to_string();
        assert!(error.contains("remove it"), "{error}");
    }

    #[test]
    fn a_failed_command_tells_its_last_words_and_one_that_is_missing_its_name() {
        let linux = Linux::new();
        let run = |words: &[&str]| linux.run(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        run(&["true"]).expect("done");
        let error = run(&["sh", "-c", "echo first >&2; echo no such swap >&2; exit 3"])
            .expect_err("failed")
            .to_string();
        assert!(error.contains("exit status: 3: no such swap"), "{error}");
        assert_eq!(run(&["/no/program"]).expect_err("missing").kind(), ErrorKind::NotFound);
        run(&[]).expect_err("no command");
    }

    #[test]
    fn a_trial_runs_no_command_and_binds_no_task_of_this_machine() {
        let (_dir, linux) = trial();
        let own = TaskId::of(std::process::id().cast_signed()).expect("alive");
        let refused = |e: io::Error| assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
        refused(linux.run(&["true".to_owned()]).expect_err("a trial"));
        refused(linux.affinity(own).expect_err("a trial"));
        refused(linux.bind("t", own, &CpuSet::default()).expect_err("a trial"));
        refused(linux.unbind("t", own, false).expect_err("a trial"));
    }

    #[test]
    fn a_task_is_bound_and_restored_and_neither_one_that_ended_nor_its_successor() {
        let usable = cpu::usable().expect("linux");
        if usable.len() < 2 {
            return colony_testing::skip("a task of one CPU cannot be moved");
        }
        if !colony_testing::machine::has_undo_folder() {
            return;
        }
        let one: CpuSet = usable.first().into_iter().collect();
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep is there");
        let task = TaskId::of(child.id().cast_signed()).expect("alive");
        let (dir, _) = trial();
        let linux = Linux { root: "/".into(), folder: dir.path().join("journals") };
        let _lock = linux.lock().expect("a folder");
        let action = Action::Affinity { task, name: "sleep".into(), cpus: one.clone() };
        let before = cpu::affinity(task.tid).expect("alive");
        apply(&linux, "t", vec![Step::new("rt-tasks", action.clone())], OnFailure::Undo).expect("applied");
        assert_eq!(cpu::affinity(task.tid).expect("alive"), one);
        revert(&linux, "t", false).expect("reverted");
        assert_eq!(cpu::affinity(task.tid).expect("alive"), before);
        // the number is another task's by now
        let earlier = TaskId { start_ticks: task.start_ticks - 1, ..task };
        for operation in [linux.affinity(earlier).map(drop), linux.bind("t", earlier, &one)] {
            assert_eq!(operation.expect_err("another task").kind(), ErrorKind::NotFound);
        }
        assert_eq!(cpu::affinity(task.tid).expect("alive"), before);
        apply(&linux, "t", vec![Step::new("rt-tasks", action)], OnFailure::Undo).expect("applied");
        child.kill().and_then(|()| child.wait()).expect("ours");
        let reverted = revert(&linux, "t", false).expect("an ended task is done");
        assert_eq!(reverted.gone.len(), 1, "{reverted:?}");
    }

    #[test]
    fn a_journal_or_a_setting_that_is_too_large_is_an_error_and_stays() {
        let (dir, linux) = trial();
        let _lock = linux.lock().expect("a folder");
        apply(&linux, "t", step(), OnFailure::Undo).expect("applied");
        let journal = linux.file_of("t").expect("readable").expect("one");
        let file = OpenOptions::new().write(true).open(&journal).expect("ours");
        file.set_len(LARGEST_JOURNAL + 1).expect("sparse");
        let error = list(&linux).expect_err("too large").to_string();
        assert!(error.contains("larger than") && journal.exists(), "{error}");
        fs::write(dir.path().join("proc/sys/kernel/a"), vec![b'x'; LARGEST_SETTING as usize + 1])
            .expect("ours");
        assert_eq!(linux.read("/proc/sys/kernel/a").expect_err("too large").kind(), ErrorKind::FileTooLarge);
        fs::write(dir.path().join("proc/sys/kernel/a"), [0xff, 0xfe]).expect("ours");
        assert_eq!(linux.read("/proc/sys/kernel/a").expect_err("no text").kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_journal_of_another_version_is_an_error_and_stays() {
        let (_dir, linux) = trial();
        let _lock = linux.lock().expect("a folder");
        apply(&linux, "t", step(), OnFailure::Undo).expect("applied");
        let journal = linux.file_of("t").expect("readable").expect("one");
        let text = fs::read_to_string(&journal).expect("ours");
        // also one with a change that this version does not know
        let newer = text.replace("colony.tune/2", "colony.tune/3");
        for newer in [newer.replace("\"write\"", "\"unheard-of\""), newer] {
            fs::write(&journal, newer).expect("ours");
            let error = list(&linux).expect_err("another version").to_string();
            assert!(error.contains("another version") && journal.exists(), "{error}");
        }
        fs::write(&journal, text).expect("ours");
        revert(&linux, "t", false).expect("reverted");
    }

    #[test]
    fn a_damaged_journal_is_an_error_that_names_it_and_stays() {
        let (dir, linux) = trial();
        let _lock = linux.lock().expect("a folder");
        apply(&linux, "t", step(), OnFailure::Undo).expect("applied");
        let journal = linux.file_of("t").expect("readable").expect("one");
        let text = fs::read_to_string(&journal).expect("ours");
        let damaged = [
            String::new(),
            text[..text.len() / 2].to_owned(),
            "\0".repeat(text.len()),
            text.replace("\"write\"", "\"wrjte\""),
            text.replace("/proc/sys", "/etc/sys"),
            text.replace("\"name\": \"t\"", "\"name\": \"u\""),
        ];
        for bytes in damaged {
            fs::write(&journal, &bytes).expect("ours");
            let refused = [
                list(&linux).map(drop),
                recover(&linux).map(drop),
                revert(&linux, "t", true).map(drop),
                apply(&linux, "t", step(), OnFailure::Undo).map(drop),
            ];
            for error in refused.map(|result| result.expect_err("damaged")) {
                let text = error.to_string();
                let named =
                    text.contains(journal.to_str().expect("plain")) && text.contains("remove this file");
                assert!(matches!(error, crate::TuneError::Damaged { .. }) && named, "{text}");
            }
            assert_eq!(fs::read_to_string(&journal).expect("it stays"), bytes);
        }
        fs::write(&journal, text).expect("ours");
        revert(&linux, "t", false).expect("reverted");
        assert_eq!(fs::read_to_string(dir.path().join("proc/sys/kernel/a")).expect("there"), "1\n");
    }

    #[test]
    fn a_journal_that_cannot_be_read_now_is_not_called_damaged_and_stays() {
        let (_dir, linux) = trial();
        let _lock = linux.lock().expect("a folder");
        let journal = linux.folder.join("000001.t.json");
        fs::create_dir(&journal).expect("a folder in place of the journal");
        for error in [list(&linux).map(drop), apply(&linux, "t", step(), OnFailure::Undo).map(drop)] {
            let error = error.expect_err("unreadable");
            assert!(matches!(error, crate::TuneError::Journal { .. }) && journal.exists(), "{error}");
        }
    }

    #[test]
    fn a_pipe_in_place_of_a_setting_keeps_nobody_waiting() {
        let (dir, linux) = trial();
        nix::unistd::mkfifo(&dir.path().join("proc/pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(linux.read("/proc/pipe").expect("no writer"), "");
        linux.write("/proc/pipe", "1").expect_err("no reader");
    }
}
