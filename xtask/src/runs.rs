// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of a checkout: one at a time for a folder of results, and each removes what a killed run before it has left.
//!
//! A run that is killed leaves processes and temporary files behind. Its steps end with it (`PR_SET_PDEATHSIG`), but not what the
//! steps have started. So everything that a run starts has the run's folder of results in its environment, as Jenkins marks the
//! processes of a build, and its temporary files are in one folder, whose name is in a file. The next run with the same
//! folder of results ends these processes and removes that folder.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use colony_node::pidfd::Pidfd;
use colony_node::task;
use colony_testing::machine::{self, MachineLock};
use nix::mount::{MntFlags, umount2};
use serde::{Deserialize, Serialize};

/// The environment variable with the folder of results, in every process of a run.
const MARK: &str = "COLONY_TEST_RUN";

/// Processes of an earlier run that do not end for this long after a SIGKILL are an error.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest wait for jobs that another user runs on this machine.
const JOBS_TIMEOUT: Duration = Duration::from_secs(3600);

/// A run, as long as it lasts.
#[derive(Debug)]
pub(crate) struct OwnRun {
    /// The file beside the folder of results. The lock on it is this run's, and [`Record`] is its content until the run ends.
    record: File,
    mark: String,
    temporary: PathBuf,
}

/// What the next run must know of this one if this one is killed.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    /// The folder of temporary files.
    temporary: PathBuf,
}

impl OwnRun {
    /// Waits until no other run has this folder of results, removes what earlier ones have left, and begins a run.
    ///
    /// # Errors
    /// Files that cannot be written or removed, or processes that do not end.
    pub(crate) fn begin(results: &Path) -> Result<Self> {
        let parent = results.parent().context("a folder of results has a name")?;
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let parent = parent.canonicalize().with_context(|| format!("cannot find {}", parent.display()))?;
        let results = parent.join(results.file_name().context("a folder of results has a name")?);
        let mark = results.to_str().context("the name of the folder of results is no text")?.to_owned();
        let path = PathBuf::from(format!("{mark}.run.json"));
        let mut record = lock(&path)?;
        let mut text = String::new();
        record.read_to_string(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
        tell_ended("an earlier run", &end_processes(&mark)?);
        if let Ok(earlier) = serde_json::from_str::<Record>(&text) {
            eprintln!(
                "the run before this one (process {}) did not end in order: {} is removed",
                earlier.pid,
                earlier.temporary.display()
            );
            remove(&earlier.temporary)?;
        }
        let temporary = tempfile::Builder::new().prefix("colony-").tempdir();
        let temporary = temporary.context("cannot create a folder for temporary files")?.keep();
        let run = Self { record, mark, temporary };
        run.note()?;
        // as /tmp: some tests are other users
        fs::set_permissions(&run.temporary, fs::Permissions::from_mode(0o1777))
            .context("cannot open the folder for temporary files to other users")?;
        Ok(run)
    }

    fn note(&self) -> Result<()> {
        let record = Record { pid: std::process::id(), temporary: self.temporary.clone() };
        let text = serde_json::to_vec(&record).context("the record of a run")?;
        self.write(&text).context("cannot write the record of a run")
    }

    fn write(&self, text: &[u8]) -> std::io::Result<()> {
        self.record.set_len(0)?;
        let mut record = &self.record;
        record.rewind()?;
        record.write_all(text)
    }

    /// The variables by which the processes of this run are known.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let temporary = self.temporary.to_string_lossy().into_owned();
        vec![(MARK.to_owned(), self.mark.clone()), ("TMPDIR".to_owned(), temporary)]
    }

    /// Ends the run: ends what its steps have left running, and removes its temporary files.
    ///
    /// # Errors
    /// As [`OwnRun::begin`].
    pub(crate) fn end(&self) -> Result<()> {
        tell_ended("tests of this run", &end_processes(&self.mark)?);
        remove(&self.temporary)?;
        self.write(b"").context("cannot write the record of a run")
    }

    /// Reserves the scheduling of this machine for the step `step` until the lock is dropped. Waits for other runs of tests, and for
    /// jobs of Colony on this machine that are not of this run.
    ///
    /// # Errors
    /// Another run or job that does not end within an hour.
    pub(crate) fn scheduling(&self, step: &str) -> Result<MachineLock> {
        let told = |who: &str| eprintln!("{step} waits for {who}, whose tests use this machine's scheduling");
        let lock =
            MachineLock::wait(machine::SCHEDULING, told).with_context(|| format!("{step} cannot run"))?;
        let since = Instant::now();
        let mut told = false;
        loop {
            let jobs: Vec<i32> = machine::jobs().into_iter().filter(|&pid| !self.is_ours(pid)).collect();
            let Some(pid) = jobs.first() else { return Ok(lock) };
            let who = format!("process {pid} ({})", task::name(*pid).unwrap_or_default());
            if since.elapsed() > JOBS_TIMEOUT {
                bail!(
                    "{step} cannot run while {who} has changed this machine's scheduling: end that job first"
                );
            }
            if !std::mem::replace(&mut told, true) {
                eprintln!(
                    "{step} waits for {who}, a job of Colony that has changed this machine's scheduling"
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn is_ours(&self, pid: i32) -> bool {
        has_mark(pid, &self.mark)
    }
}

/// The file of the record, locked.
fn lock(path: &Path) -> Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let mut text = String::new();
        let _ = file.read_to_string(&mut text);
        let who =
            serde_json::from_str::<Record>(&text).map_or(String::new(), |r| format!(" (process {})", r.pid));
        eprintln!("waiting for the end of another run in this checkout{who}");
        file.rewind().with_context(|| format!("cannot read {}", path.display()))?;
    }
    // a second time by the same descriptor changes nothing
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Returns `true` if the process has this mark in its environment.
fn has_mark(pid: i32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
}

/// Prints the names of processes that were killed, and whose they were.
fn tell_ended(whose: &str, ended: &BTreeMap<i32, String>) {
    if !ended.is_empty() {
        let names: Vec<String> = ended.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
        eprintln!("processes that {whose} had left running are ended: {}", names.join(", "));
    }
}

/// Kills all processes with this mark and waits for their end. Returns their names by number.
fn end_processes(mark: &str) -> Result<BTreeMap<i32, String>> {
    let since = Instant::now();
    let mut ended = BTreeMap::new();
    loop {
        // the descriptor first: another process may get the number before the environment is read
        let marked = task::processes().into_iter().filter_map(|pid| {
            let process = Pidfd::open(u32::try_from(pid).ok()?).ok()?;
            (has_mark(pid, mark) && !process.has_ended()).then_some((pid, process))
        });
        let marked: Vec<(i32, Pidfd)> = marked.collect();
        if marked.is_empty() {
            return Ok(ended);
        }
        if since.elapsed() > END_TIMEOUT {
            let pids: Vec<String> = marked.iter().map(|(pid, _)| pid.to_string()).collect();
            bail!(
                "processes of an earlier run do not end: {}. They may wait for a device or a file server",
                pids.join(", ")
            );
        }
        for (pid, process) in marked {
            ended.insert(pid, task::name(pid).unwrap_or_default());
            process.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Removes a folder of temporary files, after the mounts in it.
fn remove(folder: &Path) -> Result<()> {
    for mount in mounts_below(folder, &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()) {
        umount2(&mount, MntFlags::MNT_DETACH)
            .with_context(|| format!("cannot unmount {}", mount.display()))?;
    }
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Mount points below a folder, the last mounted first, of the text of `mountinfo` (proc(5)).
fn mounts_below(folder: &Path, mountinfo: &str) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split_whitespace().nth(4));
    // blanks and backslashes are octal numbers
    let plain = |text: &str| PathBuf::from(text.replace("\\040", " ").replace("\\134", "\\"));
    let below = points.map(plain).filter(|point| point.starts_with(folder));
    below.collect::<Vec<_>>().into_iter().rev().collect()
}

/// Makes the process of a command end with this one.
pub(crate) fn end_with_this(command: &mut Command) {
    colony_node::parent::end_with_parent(command, nix::sys::signal::Signal::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process in a session of its own, as a daemon is, that a step of `run` starts.
    fn daemon(run: &OwnRun) -> i32 {
        let mut shell = Command::new("setsid");
        shell.args(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"]).envs(run.environment());
        let text = crate::output_of(shell.stdin(std::process::Stdio::null())).expect("it prints");
        text.trim().parse().expect("a number")
    }

    fn lives(pid: i32) -> bool {
        task::stat(pid).is_ok_and(|stat| !stat.has_ended())
    }

    /// Ends as a killed process does: nothing is removed.
    fn killed(run: OwnRun) -> PathBuf {
        let temporary = run.temporary.clone();
        drop(run);
        temporary
    }

    #[test]
    fn a_run_removes_what_killed_runs_before_it_have_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let (results, other) = (folder.path().join("test"), folder.path().join("test.other"));
        let bystander = OwnRun::begin(&other).expect("a run");
        let of_bystander = daemon(&bystander);
        for _ in 0..5 {
            let run = OwnRun::begin(&results).expect("a run");
            let left = daemon(&run);
            fs::write(run.temporary.join("a file"), "").expect("a file");
            let temporary = killed(run);
            assert!(lives(left) && temporary.join("a file").exists());
            let next = OwnRun::begin(&results).expect("the next run");
            assert!(!lives(left) && !temporary.exists());
            let temporary = next.temporary.clone();
            next.end().expect("it ends");
            assert!(!temporary.exists());
        }
        assert!(lives(of_bystander), "a process of another run");
        bystander.end().expect("it ends");
        assert!(!lives(of_bystander));
    }

    #[test]
    fn a_second_run_waits_for_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let results = folder.path().join("test");
        let first = OwnRun::begin(&results).expect("a run");
        let temporary = first.temporary.clone();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let second = OwnRun::begin(&results).expect("a run");
                // the first one has ended in order
                let had_ended = !temporary.exists();
                second.end().expect("it ends");
                had_ended
            });
            first.end().expect("it ends");
            drop(first);
            assert!(second.join().expect("no panic"));
        });
    }

    #[test]
    fn mounts_are_undone_from_the_last_to_the_first() {
        let text = "22 1 0:21 / /tmp/a rw shared:1 - tmpfs tmpfs rw\n23 22 0:22 / /tmp/a/b\\040c rw - tmpfs t rw\n\
                    24 1 0:23 / /tmp/ab rw - tmpfs t rw\n";
        let expected = [PathBuf::from("/tmp/a/b c"), PathBuf::from("/tmp/a")];
        assert_eq!(mounts_below(Path::new("/tmp/a"), text), expected);
    }
}
