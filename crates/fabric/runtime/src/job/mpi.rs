// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that `mpirun` starts: if a rank is killed, `mpirun` ends all others, and the job begins again from its last checkpoint
//! on disk.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use super::error::{LaunchError, system};
use crate::report::report_line;

/// The exit codes with which a shell, and `mpirun`, say that a signal has killed a program.
const KILLED: std::ops::RangeInclusive<i32> = 129..=159;

/// The signal that has killed a rank, or `mpirun` itself.
fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal().or_else(|| status.code().filter(|code| KILLED.contains(code)).map(|code| code - 128))
}

/// Runs a job to its end, and again if a rank is killed, up to `restarts` times. `command` starts it: from a checkpoint, if
/// that is `true`. Returns its exit code.
pub(crate) fn run(restarts: u32, command: impl Fn(bool) -> Command) -> Result<u8, LaunchError> {
    for restarted in 0.. {
        let mut command = command(restarted > 0);
        let name = command.get_program().display().to_string();
        let mut child = command.spawn().map_err(system(format!("starting {name}")))?;
        let status = child.wait().map_err(system(format!("waiting for {name}")))?;
        let Some(signal) = signal_of(status) else { return Ok(status.code().map_or(1, |code| code as u8)) };
        if restarted == restarts {
            let used = if restarts > 0 { format!(" (restarts used: {restarts})") } else { String::new() };
            report_line!("error: a rank was killed by signal {signal}; the job ends{used}");
            return Ok((128 + signal) as u8);
        }
        report_line!(
            "warning: a rank was killed by signal {signal}; restart {} of {restarts}",
            restarted + 1
        );
    }
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_begins_again_only_if_a_signal_has_killed_a_rank() {
        let folder = tempfile::tempdir().expect("a folder");
        let count = folder.path().join("count");
        // ends with these codes, one after the other
        let run = |restarts, codes: &str| {
            let _ = std::fs::remove_file(&count);
            let line = r#"printf x >> "$0"; set -- $1; n=$(wc -c < "$0"); shift $((n - 1)); exit $1"#;
            let command = |again: bool| {
                assert_eq!(again, count.exists());
                let mut command = Command::new("sh");
                command.args(["-c", line]).arg(&count).arg(codes);
                command
            };
            let code = run(restarts, command).expect("sh is there");
            (code, std::fs::metadata(&count).expect("it has run").len())
        };
        assert_eq!(run(5, "0"), (0, 1));
        assert_eq!(run(5, "1"), (1, 1), "the program has failed by itself");
        assert_eq!(run(5, "137 139 0"), (0, 3));
        assert_eq!(run(1, "137 137 0"), (137, 2));
        assert_eq!(run(0, "137"), (137, 1));
    }
}
