// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes, with the wall-clock and processor time that each took.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::runs;

/// How long a process ran, and the processor time of the process and of every descendant that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

/// Processor time of a process that has ended and was not waited for yet: its own and that of its children.
fn cpu_time_of_zombie(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks_a_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    cpu_ticks(&stat).map(|ticks| Duration::from_millis(ticks * 1000 / ticks_a_second))
}

/// Sum of `utime`, `stime`, `cutime` and `cstime` in a line of `/proc/PID/stat` (proc(5), fields 14 to 17). The name in the
/// second field may contain blanks and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

/// Waits until a child ends, and leaves its zombie: nobody else can get its number before [`reap`].
///
/// # Errors
/// A child that somebody else has waited for.
pub(crate) fn wait_for_end(pid: u32) -> io::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed());
    while let Err(e) = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
        if e != nix::errno::Errno::EINTR {
            return Err(e.into());
        }
    }
    Ok(())
}

/// Waits until a child ends and returns how, with the times since `began`.
///
/// # Errors
/// As [`wait_for_end`].
pub(crate) fn reap(child: &mut Child, began: Instant) -> io::Result<(ExitStatus, Times)> {
    wait_for_end(child.id())?;
    let times = Times { wall: began.elapsed(), cpu: cpu_time_of_zombie(child.id()).unwrap_or_default() };
    Ok((child.wait()?, times))
}

/// Runs a command with standard output and standard error in the file `log`.
///
/// # Errors
/// A program that cannot be started, or a log that cannot be written.
pub(crate) fn run_logged(mut command: Command, log: &Path) -> Result<(ExitStatus, Times)> {
    let output = File::options()
        .append(true)
        .create(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))?;
    let errors = output.try_clone().context("cannot duplicate a file descriptor")?;
    let began = Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    runs::end_with_this(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    reap(&mut child, began).with_context(|| format!("cannot wait for {program}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_whatever_the_name_of_the_program() {
        let stat = "7 (a ) (b) S 1 7 7 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 1 0 5";
        assert_eq!(cpu_ticks(stat), Some(4330));
        assert_eq!(cpu_ticks("7 (a) S 1 2"), None);
    }

    #[test]
    fn processor_time_of_a_grandchild_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo done; exit 3"]);
        let (status, times) = run_logged(shell, &log).expect("sh runs");
        assert_eq!(status.code(), Some(3));
        assert_eq!(fs::read_to_string(&log).expect("written"), "done\n");
        assert!(times.cpu > Duration::ZERO && times.cpu <= times.wall * 2, "{times:?}");
    }
}
