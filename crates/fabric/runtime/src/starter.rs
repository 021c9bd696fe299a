// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that start the ranks of a job: here, on other hosts by `ssh`, or by Slurm.

use std::process::{Command, Stdio};

use crate::launch::{Launch, LaunchError};
use crate::transport::sockets::entry::{HOST, LAUNCHER, RANK, RESTARTS, SECRET, SIZE};

/// A word for a shell on another host.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Launch {
    /// The name under which the ranks reach this host.
    pub(crate) fn reached_as(&self) -> String {
        let given = self.this_host.clone().filter(|_| !self.is_local());
        let own = || nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let name = given.or_else(|| if self.slurm { own() } else { None });
        name.unwrap_or_else(|| "127.0.0.1".to_owned())
    }

    /// The number of commands: one a rank, or one for all ranks by Slurm.
    pub(crate) fn commands(&self) -> u32 {
        if self.slurm { 1 } else { self.ranks }
    }

    /// The command that starts a rank, or all ranks by Slurm.
    pub(crate) fn command(
        &self,
        rank: u32,
        host: Option<&str>,
        launcher: &str,
    ) -> Result<Command, LaunchError> {
        if self.slurm {
            return self.by_slurm(launcher);
        }
        let (rank, size) = (rank.to_string(), self.ranks.to_string());
        let Some(host) = host else {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).envs([(LAUNCHER, launcher), (RANK, &rank), (SIZE, &size)]);
            // a rank of another job may have started this launcher
            command.env_remove(RESTARTS);
            if self.restarts > 0 {
                command.env(RESTARTS, "1");
            }
            return Ok(command);
        };
        if host.is_empty() || host.starts_with('-') {
            return Err(LaunchError::Wrong(format!("`{host}` is no host")));
        }
        let line = self.line(launcher, &quoted(host), &quoted(&rank))?;
        let mut command = Command::new("ssh");
        // a host without power does not answer
        let patience = ["-o", "ConnectTimeout=10"].iter().take(if self.restarts > 0 { 2 } else { 0 });
        command.args(["-o", "BatchMode=yes"]).args(patience).args(["--", host, &line]).stdin(Stdio::piped());
        Ok(command)
    }

    /// One step with a task for each rank. Its standard input, with the secret, goes to all tasks.
    fn by_slurm(&self, launcher: &str) -> Result<Command, LaunchError> {
        if std::env::var_os("SLURM_JOB_ID").is_none() {
            return Err(LaunchError::Wrong(
                "this process is in no allocation of Slurm (SLURM_JOB_ID is not set): start it by `salloc` or `sbatch`"
                    .to_owned(),
            ));
        }
        let line = self.line(launcher, "\"$SLURMD_NODENAME\"", "\"$SLURM_PROCID\"")?;
        let mut command = Command::new("srun");
        let tasks = format!("--ntasks={}", self.ranks);
        command
            .args([&tasks, "--kill-on-bad-exit=1", "--input=all", "sh", "-c", &line])
            .stdin(Stdio::piped());
        Ok(command)
    }

    /// The line that a shell on another host runs. The secret goes through standard input: arguments can be read by everyone on
    /// the host. `host` and `rank` are words of the shell.
    fn line(&self, launcher: &str, host: &str, rank: &str) -> Result<String, LaunchError> {
        let (launcher, size) = (quoted(launcher), self.ranks);
        let restarts = if self.restarts > 0 { format!(" {RESTARTS}=1") } else { String::new() };
        let mut line = format!(
            "IFS= read -r {SECRET}; export {SECRET} {HOST}={host} {LAUNCHER}={launcher} {RANK}={rank} \
             {SIZE}={size}{restarts}; exec"
        );
        for word in std::iter::once(&self.program).chain(&self.arguments) {
            let word = word
                .to_str()
                .ok_or_else(|| LaunchError::Wrong(format!("{} is not UTF-8", word.display())))?;
            line.push(' ');
            line.push_str(&quoted(word));
        }
        Ok(line)
    }
}
