// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that are not waited for in silence or for ever: a process that holds one may be stopped (`SIGSTOP`, a suspended job).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use colony_node::task;
use nix::sys::stat::{major, minor};

/// Time after which a wait is in the log.
const SILENCE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Locks a file for this process alone until the file is dropped; makes the file if it is not there.
///
/// # Errors
/// [`TimedOut`](io::ErrorKind::TimedOut) if another process still holds the lock when `timeout` is over: the error names that
/// process. Otherwise the file system's answer.
pub fn lock_file(path: &Path, timeout: Duration) -> io::Result<File> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(at)?;
    let since = Instant::now();
    let mut pause = Duration::from_micros(100);
    let mut is_silent = true;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(at(e)),
            Err(TryLockError::WouldBlock) => {}
        }
        let waited = since.elapsed();
        if waited >= timeout {
            let text = format!(
                "{} is locked by {}; waited {:.1} s for it",
                path.display(),
                holder(&file),
                waited.as_secs_f64()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        if waited >= SILENCE && std::mem::take(&mut is_silent) {
            tracing::warn!("waiting for {}, which is locked by {}", path.display(), holder(&file));
        }
        std::thread::sleep(pause.min(timeout - waited));
        pause = PAUSE.min(pause * 2);
    }
}

/// The process that holds the lock of a file, in words.
fn holder(file: &File) -> String {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = file.metadata().ok().and_then(|found| holder_of(&locks, found.dev(), found.ino()));
    let Some(pid) = pid else { return "another process".into() };
    let name = task::name(pid).unwrap_or_default();
    match task::stat(pid) {
        Ok(stat) if stat.is_stopped() => {
            format!("process {pid} ({name}), which is stopped: kill -CONT {pid} lets it go on")
        }
        Ok(_) => format!("process {pid} ({name})"),
        Err(_) => format!("process {pid}, which has ended, or one that it has started"),
    }
}

/// The process that has locked the whole of a file (`flock(2)`), by the text of `/proc/locks`.
fn holder_of(locks: &str, device: u64, inode: u64) -> Option<i32> {
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let held = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // a line with an arrow is of a process that waits
        let [_, "FLOCK", _, _, pid, of, ..] = words[..] else { return None };
        pid.parse().ok().filter(|pid| of == file && *pid > 0)
    };
    locks.lines().find_map(held)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_holder_is_found_among_other_locks_and_those_that_wait() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 11 00:1a:77 0 EOF
2: FLOCK  ADVISORY  WRITE 22 00:1a:77 0 EOF
2: -> FLOCK  ADVISORY  WRITE 33 00:1a:77 0 EOF
3: FLOCK  ADVISORY  WRITE 44 fd:01:77 0 EOF
4: FLOCK  ADVISORY  WRITE 0 00:1a:78 0 EOF
";
        assert_eq!(holder_of(locks, nix::sys::stat::makedev(0, 0x1a), 77), Some(22));
        assert_eq!(holder_of(locks, nix::sys::stat::makedev(0xfd, 1), 77), Some(44));
        assert_eq!(holder_of(locks, nix::sys::stat::makedev(0, 0x1a), 78), None, "in another namespace");
        assert_eq!(holder_of("no such text", 1, 2), None);
    }

    #[test]
    fn a_wait_for_a_lock_of_a_stopped_process_ends_with_the_timeout_and_names_it() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("lock");
        let held = lock_file(&path, Duration::ZERO).expect("free");
        // a child that has the open file keeps the lock; its holder is who took it
        let error = lock_file(&path, Duration::from_millis(20)).expect_err("held").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        let mut other = Command::new("flock");
        other.arg("--close").arg(&path).args(["sh", "-c", "echo locked; kill -STOP $PPID; sleep 0.1"]);
        let mut other = other.stdout(Stdio::piped()).spawn().expect("flock of util-linux");
        let mut line = [0; 7];
        let stdout = other.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(stdout, &mut line).expect("it has locked");
        let pid = other.id();
        let tid = pid.cast_signed();
        while !task::stat(tid).is_ok_and(|stat| stat.state == b'T') {
            std::thread::sleep(Duration::from_millis(1));
        }
        let began = Instant::now();
        let error = lock_file(&path, Duration::from_millis(50)).expect_err("held");
        assert!(began.elapsed() >= Duration::from_millis(50));
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(&format!("kill -CONT {pid}")), "{error}");
        let pid = nix::unistd::Pid::from_raw(tid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).expect("ours");
        lock_file(&path, Duration::from_secs(60)).expect("free again");
        other.wait().expect("ours");
    }
}
