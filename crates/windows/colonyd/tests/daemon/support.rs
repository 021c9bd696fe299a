// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon for a test, and what to ask it with.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use colony_client::Client;
use colony_node::NodeError;
use colony_node::class::{self, Class};
use colony_testing::is_gone;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Somebody with no rights.
pub(crate) const NOBODY: u32 = 65534;

/// Time that any operation may take on a machine that is busy with other things.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The reason for which these tests cannot run here.
fn missing() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("not root");
    }
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.is_err().then_some("/dev/fuse cannot be opened")
}

/// Returns `true` if these tests can run here; otherwise the skip is recorded with its reason.
pub(crate) fn possible() -> bool {
    match missing() {
        None => true,
        Some(why) => {
            colony_testing::skip(why);
            false
        }
    }
}

/// Returns `true` if tasks may be given a real-time class; otherwise the skip is recorded with its reason.
pub(crate) fn real_time() -> bool {
    match std::thread::spawn(|| class::set(0, Class::Fifo(1))).join().expect("no panic") {
        Ok(()) => true,
        // an answer of the kernel: a group without real-time bandwidth refuses root, too
        Err(NodeError::System { source, .. }) if source.raw_os_error() == Some(nix::libc::EPERM) => {
            colony_testing::skip("this user may not have a real-time class here");
            false
        }
        Err(e) => panic!("a real-time class: {e}"),
    }
}

/// Waits until `done`; panics with `what` if that never comes.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A running daemon in a place of its own.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) mount: PathBuf,
    folder: TempDir,
}

impl Daemon {
    /// Starts one on the last CPU, with `config` added to its configuration. The agent keeps its windows on every
    /// kernel: a scheduler in this one would schedule the whole machine, and is for virtual machines to test.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("temp dir");
        let mount = folder.path().join("colony");
        Self::start_at(folder, mount, config)
    }

    pub(crate) fn start_at(folder: TempDir, mount: PathBuf, config: &str) -> Self {
        let file = folder.path().join("colonyd.toml");
        let last = colony_node::cpu::usable().expect("linux").iter().last().expect("a CPU");
        std::fs::write(&file, format!("cpus = \"{last}\"\nbackend = \"agent\"\n{config}")).expect("writable");
        let mut child = program()
            .args([OsStr::new("--config"), file.as_os_str(), OsStr::new("--mount"), mount.as_os_str()])
            .stderr(std::fs::File::create(folder.path().join("log")).expect("writable"))
            .spawn()
            .expect("colonyd starts");
        wait_until("colonyd shows its files", || {
            if let Some(status) = child.try_wait().expect("ours") {
                let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
                panic!("colonyd ended with {status}: {log}");
            }
            Client::at(&mount).is_some()
        });
        Self { child, mount, folder }
    }

    /// The next daemon at the same place, after this one has ended.
    pub(crate) fn again(mut self, config: &str) -> Self {
        wait_until("the mount is gone", || is_gone(&self.mount));
        let other = tempfile::tempdir().expect("temp dir");
        // what is dropped here must not unmount the next one's files
        let mount = std::mem::replace(&mut self.mount, other.path().join("colony"));
        let folder = std::mem::replace(&mut self.folder, other);
        Self::start_at(folder, mount, config)
    }

    /// The folder of its configuration and its log.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn client(&self) -> Client {
        Client::at(&self.mount).expect("it runs")
    }

    /// A shell with `$M` as the mount point.
    pub(crate) fn shell(&self, script: &str) -> Output {
        self.shell_as(None, script)
    }

    /// A shell of another user.
    pub(crate) fn shell_as(&self, uid: Option<u32>, script: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("M", &self.mount).env("LC_ALL", "C");
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        command.output().expect("sh")
    }

    /// The text of a file.
    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.mount.join(file)).expect("readable")
    }

    /// The error number a write gets.
    pub(crate) fn errno(&self, file: &str, text: &str) -> Option<i32> {
        use std::io::Write;
        let mut open = match std::fs::OpenOptions::new().write(true).open(self.mount.join(file)) {
            Ok(open) => open,
            Err(e) => return e.raw_os_error(),
        };
        open.write_all(text.as_bytes()).err().and_then(|e| e.raw_os_error())
    }

    /// What the daemon has written to its standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> ExitStatus {
        kill(self.pid(), signal).expect("ours");
        self.child.wait().expect("ours")
    }

    pub(crate) fn guard(&self) -> Pid {
        let children = colony_node::task::children(self.pid().as_raw());
        let is_guard = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.starts_with(b"colonyd-guard\0"))
        };
        Pid::from_raw(children.into_iter().find(is_guard).expect("a guard"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill(self.pid(), Signal::SIGTERM);
            let _ = self.child.wait();
        }
        // a test that failed half-way must not leave a mount in a folder that is about to be removed
        while nix::mount::umount2(&self.mount, nix::mount::MntFlags::MNT_DETACH).is_ok() {}
    }
}

/// The daemon's program, with nothing to say and nobody to tell.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colonyd"));
    command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET").env_remove("COLONY_LOG");
    command
}

/// Returns `true` if a file system is mounted at `path`.
pub(crate) fn mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("linux");
    mounts.lines().any(|l| l.split(' ').nth(4) == path.to_str())
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
