// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions to the commands of a site's scheduler, which may take their time, or never end.

use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// The most bytes of the answer that are read.
const LARGEST: u64 = 4096;
/// Period of looks at the command.
const LOOK: Duration = Duration::from_millis(5);

/// A command that is killed if it has not ended by itself.
struct Asked(Child);

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The standard output of a command that succeeds within `limit`; otherwise the reason.
pub(super) fn ask(command: &mut Command, limit: Duration) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    answer(command, limit).map_err(|e| format!("{program}: {e}"))
}

fn answer(command: &mut Command, limit: Duration) -> io::Result<String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut asked = Asked(child);
    let output = asked.0.stdout.take();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = asked.0.try_wait()? {
            break status;
        }
        if began.elapsed() > limit {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("no answer within {} s", limit.as_secs()),
            ));
        }
        std::thread::sleep(LOOK);
    };
    if !status.success() {
        return Err(io::Error::other(status.to_string()));
    }
    let mut bytes = Vec::new();
    if let Some(output) = output {
        // a process that the command leaves behind may keep the pipe open; all that the command has written is in it
        fcntl(output.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        match output.take(LARGEST).read_to_end(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<String, String> {
        ask(Command::new("sh").arg("-c").arg(script), limit)
    }

    #[test]
    fn a_command_answers_or_the_reason_is_told() {
        let long = Duration::from_secs(100);
        assert_eq!(sh("echo 17; echo no >&2", long).as_deref(), Ok("17\n"));
        assert_eq!(sh("sleep 1000 & echo 18", long).as_deref(), Ok("18\n"), "its pipe stays open");
        assert!(sh("exit 3", long).is_err_and(|why| why.contains("sh: exit status: 3")));
        assert!(sh("exec sleep 1000", Duration::ZERO).is_err_and(|why| why.contains("no answer within")));
        let none = ask(&mut Command::new("/no/such/program"), long);
        assert!(none.is_err_and(|why| why.starts_with("/no/such/program: ")));
    }
}
