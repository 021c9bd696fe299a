// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;
use std::path::Path;

use colony_node::NodeError;

use crate::limits::LimitError;

/// A failure to schedule a job.
#[derive(Debug, thiserror::Error)]
pub enum SchedError {
    /// The node said no.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// No real-time class: the agent cannot hold anything back.
    #[error(
        "the agent cannot use SCHED_FIFO: {0}; run as root, with CAP_SYS_NICE, or with a real-time limit \
         (ulimit -r 90); in a control group of cgroup v1 it also needs cpu.rt_runtime_us"
    )]
    NoRealTime(String),
    /// A configuration that cannot work.
    #[error("{what}; {advice}")]
    Config {
        /// The problem that was found.
        what: String,
        /// The remedy.
        advice: &'static str,
    },
    /// Windows that would starve the node.
    #[error("{0}; or only measure them (--backend none)")]
    Limits(#[from] LimitError),
    /// The process to join the job is gone or is none.
    #[error("process {0} cannot join the job: there is no such process; write the number of a running one")]
    NoProcess(i32),
    /// The scheduler in the kernel did not start.
    #[error(transparent)]
    Ext(#[from] crate::ext::ExtError),
    /// The guardian did not start, so the agent does not either.
    #[error(
        "the guardian, which puts tasks back if the agent dies, did not start: {0}; the agent does not run without it"
    )]
    Guardian(String),
    /// The program to run cannot be executed, or there is none.
    #[error("cannot run `{command}`: {source}; {}", advice(command, source))]
    Command {
        /// The program.
        command: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The system did not let a process for the program start; the program itself was not tried.
    #[error("cannot start a process for `{command}`: {source}")]
    Start {
        /// The program.
        command: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The BPF programs behind the proof did not load.
    #[error("the BPF proof did not start: {0}")]
    Bpf(String),
    /// `colonyd` did not take the job.
    #[error("colonyd: {0}; or run without it: --backend agent")]
    Daemon(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl SchedError {
    /// Returns `true` if the caller asked for something impossible (exit code 2), and `false` if the run has failed.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Limits(_) => true,
            Self::Ext(e) => matches!(e, crate::ext::ExtError::Config { .. }),
            Self::Node(e) => e.is_wrong_use(),
            _ => false,
        }
    }

    /// The exit code if the program did not start, as shells have it: 127 if there is no such program, 126 if there is one that
    /// cannot be executed. `None` for any other error.
    #[must_use]
    pub fn program_code(&self) -> Option<u8> {
        match self {
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => Some(127),
            Self::Command { .. } => Some(126),
            _ => None,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(nix::errno::Errno) -> Self {
        move |e| Self::System { what, source: e.into() }
    }
}

/// The remedy for a program that cannot be executed.
fn advice(command: &str, source: &io::Error) -> &'static str {
    let path = Path::new(command);
    let is_path = command.contains('/');
    match source.kind() {
        io::ErrorKind::NotFound if is_path && path.exists() => {
            "the file is there, so the interpreter is missing that its first line or its ELF header names"
        }
        io::ErrorKind::NotFound if is_path => "is it installed there?",
        io::ErrorKind::NotFound => "is it installed, in a folder of PATH?",
        io::ErrorKind::PermissionDenied if is_path && path.is_dir() => "it is a folder",
        io::ErrorKind::PermissionDenied => {
            "is it executable (chmod +x), and may programs of its file system run (noexec)?"
        }
        _ => "is it a program for this machine?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(command: &str, number: libc::c_int) -> SchedError {
        SchedError::Command { command: command.into(), source: io::Error::from_raw_os_error(number) }
    }

    #[test]
    fn a_program_that_does_not_start_has_the_exit_code_of_a_shell_and_a_remedy() {
        for (command, number, code, part) in [
            ("nothing-here", libc::ENOENT, 127, "in a folder of PATH"),
            ("/nothing/here", libc::ENOENT, 127, "is it installed there"),
            ("/etc/passwd", libc::ENOENT, 127, "the interpreter is missing"),
            ("/etc/passwd", libc::EACCES, 126, "chmod +x"),
            ("/etc", libc::EACCES, 126, "it is a folder"),
            ("/etc/passwd", libc::ENOEXEC, 126, "for this machine"),
        ] {
            let e = error(command, number);
            assert_eq!(e.program_code(), Some(code), "{e}");
            assert!(e.to_string().contains(part) && !e.is_wrong_use(), "{e}");
        }
        let source = io::Error::from_raw_os_error(libc::EAGAIN);
        assert_eq!(
            SchedError::Start { command: "x".into(), source }.program_code(),
            None,
            "no process was free"
        );
    }
}
