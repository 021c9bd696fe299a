// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the node in Slurm, by `scontrol show node`. The command may take its time, or never end: it runs beside the
//! looks, and is killed at its timeout.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::finding::Finding;
use super::rules::HealthRules;

/// The name of this source.
pub(super) const SOURCE: &str = "slurm";

/// The longest time that `scontrol` may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of its output that are read.
const LARGEST: u64 = 64 << 10;

/// The state of the node in Slurm.
#[derive(Debug)]
pub(super) struct Slurm {
    program: PathBuf,
    node: String,
    period: Duration,
    /// When to ask next.
    due: Duration,
    /// The command that runs, and when it began.
    running: Option<(Child, Duration)>,
    /// The last answer: the reason of a drain, if the node drains.
    answer: Option<Option<String>>,
    /// A failure was logged, and no answer has come since.
    has_failed: bool,
}

impl Slurm {
    /// The node of these rules. `None` if Slurm is not to be asked.
    pub(super) fn new(rules: &HealthRules) -> Option<Self> {
        let program = rules.scontrol.clone()?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let short = || host.trim().split('.').next().unwrap_or_default().to_owned();
        let node = rules.slurm_node.clone().unwrap_or_else(short);
        let period = Duration::from_nanos(rules.slurm_period_ns);
        Some(Self {
            program,
            node,
            period,
            due: Duration::ZERO,
            running: None,
            answer: None,
            has_failed: false,
        })
    }

    /// Returns `true` if Slurm has answered.
    pub(super) fn is_watched(&self) -> bool {
        self.answer.is_some()
    }

    /// Goes on with the command, or begins the next one. If Slurm does not answer, its last answer holds.
    pub(super) fn look(&mut self, now: Duration) -> Option<Finding> {
        if let Some((child, since)) = self.running.take() {
            match finish(child, now.saturating_sub(since)) {
                Ok(Step::Runs(child)) => self.running = Some((child, since)),
                Ok(Step::Ended(status, output)) => self.take(status, &output),
                Err(error) => self.fail(&error.to_string()),
            }
        }
        if self.running.is_none() && now >= self.due {
            self.due = now + self.period;
            match self.start() {
                Ok(child) => self.running = Some((child, now)),
                Err(error) => self.fail(&error.to_string()),
            }
        }
        let reason = self.answer.clone().flatten()?;
        let text = if reason.is_empty() {
            "Slurm drains this node".to_owned()
        } else {
            format!("Slurm drains this node: {reason:.200}")
        };
        Some(Finding { source: SOURCE, part: "drain".to_owned(), text })
    }

    fn start(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(["--oneliner", "show", "node", &self.node]).current_dir("/");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        if let Some(output) = &child.stdout {
            // a process that the command leaves behind may keep the pipe open
            fcntl(output.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(child)
    }

    fn take(&mut self, status: ExitStatus, output: &str) {
        if !status.success() {
            return self.fail(&format!("it ended with {status}"));
        }
        match drain(output) {
            Some(answer) => {
                self.answer = Some(answer);
                self.has_failed = false;
            }
            None => self.fail("its output has no `State=`"),
        }
    }

    /// Logs the first of several failures.
    fn fail(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let program = self.program.display();
            tracing::warn!("drains by Slurm are not seen: {program} show node {}: {why}", self.node);
        }
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.running {
            end(child);
        }
    }
}

/// The state of a command.
enum Step {
    Runs(Child),
    Ended(ExitStatus, String),
}

/// Looks at a command that has run for `age`.
fn finish(mut child: Child, age: Duration) -> io::Result<Step> {
    let Some(status) = child.try_wait()? else {
        if age <= TIMEOUT {
            return Ok(Step::Runs(child));
        }
        end(&mut child);
        return Err(io::Error::new(ErrorKind::TimedOut, "it has not ended within 5 s"));
    };
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        match output.take(LARGEST).read_to_end(&mut bytes) {
            // all that the command has written is in the pipe
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(Step::Ended(status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Kills a command.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The reason of a drain in the output of `scontrol show node`: `Some(None)` if the node does not drain, `None` if the
/// output is of another kind.
fn drain(output: &str) -> Option<Option<String>> {
    let state = output.split_whitespace().find_map(|word| word.strip_prefix("State="))?;
    // IDLE+DRAIN, MIXED+DRAIN*, DRAINED
    if !state.split('+').any(|part| part.starts_with("DRAIN")) {
        return Some(None);
    }
    let reason = output.split_once("Reason=").map(|(_, rest)| rest).unwrap_or_default();
    // followed by the user and the time, and by other fields on further lines
    let reason = reason.split(['[', '\n']).next().unwrap_or_default();
    Some(Some(reason.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules, and a program that stands in for `scontrol`.
    fn slurm(folder: &tempfile::TempDir, script: &str) -> Slurm {
        let program = folder.path().join("scontrol");
        // by another process: one that is forked here meanwhile would keep the file open for writing, and so not executable
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut sh = std::process::Command::new("sh");
        let written = sh.args(["-c", write]).arg(&program).arg(script).status().expect("sh");
        assert!(written.success());
        let rules = HealthRules {
            scontrol: Some(program),
            slurm_node: Some("node7".to_owned()),
            ..HealthRules::default()
        };
        Slurm::new(&rules).expect("asked")
    }

    /// Looks at `now` until the command has ended.
    fn look(slurm: &mut Slurm, now: u64) -> Option<Finding> {
        loop {
            let found = slurm.look(Duration::from_secs(now));
            if slurm.running.is_none() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_drained_node_warns_with_the_reason_until_it_is_resumed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let state = dir.path().join("state");
        let write = |text: &str| std::fs::write(&state, text).expect("room");
        let mut slurm = slurm(&dir, &format!("echo \"NodeName=$4 $(cat {})\"", state.display()));
        write("State=IDLE Reason=");
        assert_eq!((look(&mut slurm, 0), slurm.is_watched()), (None, true));
        write("State=MIXED+DRAIN ThreadsPerCore=1 Reason=bad DIMM [root@2026-01-01T00:00:00]");
        assert_eq!(look(&mut slurm, 30), None, "asked once a minute");
        let found = look(&mut slurm, 60).expect("a warning");
        assert_eq!(found.text, "Slurm drains this node: bad DIMM");
        write("State=IDLE");
        assert!(look(&mut slurm, 61).is_some());
        assert_eq!(look(&mut slurm, 120), None);
    }

    #[test]
    fn a_command_that_fails_or_does_not_end_leaves_the_last_answer() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mode = dir.path().join("mode");
        let write = |text: &str| std::fs::write(&mode, text).expect("room");
        let mut slurm = slurm(&dir, &format!("eval \"$(cat {})\"", mode.display()));
        write("echo State=DRAINED");
        assert_eq!(look(&mut slurm, 0).expect("a warning").text, "Slurm drains this node");
        for (now, line) in [(60, "exit 1"), (120, "echo nothing"), (180, "kill -9 $$")] {
            write(line);
            assert!(look(&mut slurm, now).is_some() && slurm.has_failed, "{line}");
        }
        write("exec sleep 1000");
        assert!(slurm.look(Duration::from_secs(240)).is_some());
        let pid = slurm.running.as_ref().expect("it runs").0.id();
        assert!(slurm.look(Duration::from_secs(245)).is_some() && slurm.running.is_some());
        assert!(slurm.look(Duration::from_secs(246)).is_some() && slurm.running.is_none(), "the timeout");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it was killed and waited for");
        // a process that is left behind has the pipe open
        write("sleep 1000 & echo $! > pid; echo State=IDLE");
        let left = dir.path().join("pid");
        write(&format!("sleep 1000 & echo $! > {}; echo State=IDLE", left.display()));
        assert_eq!((look(&mut slurm, 300), slurm.has_failed), (None, false));
        let pid = std::fs::read_to_string(&left).expect("written");
        let pid = nix::unistd::Pid::from_raw(pid.trim().parse().expect("a number"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("ours");
    }

    #[test]
    fn without_scontrol_nothing_is_watched() {
        assert!(Slurm::new(&HealthRules::default()).is_none());
        let rules = HealthRules { scontrol: Some("/nonexistent/scontrol".into()), ..HealthRules::default() };
        let mut slurm = Slurm::new(&rules).expect("asked");
        assert_eq!((slurm.look(Duration::ZERO), slurm.is_watched()), (None, false));
    }

    proptest! {
        #[test]
        fn no_output_panics(text in "(State=|Reason=|IDLE|DRAIN|\\+|\\[|\n| |é){0,20}") {
            let _ = drain(&text);
        }
    }
}
