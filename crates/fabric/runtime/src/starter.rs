// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that start the ranks of a job: here, on other hosts by `ssh`, or by Slurm.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::checkpoint::options::RESTART;
use crate::job::session::Session;
use crate::launch::{Launch, LaunchError};
use crate::place::DOMAINS;
use crate::transport::sockets::entry::{
    HOST, LAUNCHER, LAUNCHER_PROCESS, OVER_MPI, RANK, RESTARTS, SECRET, SIZE, START,
};

/// Variables of the launcher's environment that ranks on other hosts get: options of the runtime, not those of a job or of
/// a host.
pub(crate) fn options() -> BTreeMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_option =
            name.starts_with("COLONY_") && !name.starts_with(LAUNCHER) && name != DOMAINS && is_name;
        is_option.then_some((name, value))
    });
    variables.collect()
}

pub(crate) fn utf8(word: &OsStr) -> Result<&str, LaunchError> {
    word.to_str().ok_or_else(|| LaunchError::Wrong(format!("{} is not UTF-8", word.display())))
}

/// A word for a shell on another host.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Launch {
    /// The name under which the ranks reach this host.
    pub(crate) fn reached_as(&self) -> String {
        let given = self.this_host.clone().filter(|_| !self.is_local() || self.mpi);
        let own = || nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let name = given.or_else(|| if self.slurm || self.mpi { own() } else { None });
        name.unwrap_or_else(|| "127.0.0.1".to_owned())
    }

    /// The number of commands: one a rank, or one for all ranks by Slurm.
    pub(crate) fn commands(&self) -> u32 {
        if self.slurm { 1 } else { self.ranks }
    }

    /// The command that starts a rank, or all ranks by Slurm.
    pub(crate) fn command(
        &self,
        (rank, start): (u32, u32),
        host: Option<&str>,
        session: &Session,
    ) -> Result<Command, LaunchError> {
        if self.slurm {
            return self.by_slurm(session);
        }
        let (rank, size, start) = (rank.to_string(), self.ranks.to_string(), start.to_string());
        let Some(host) = host else {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).envs([(LAUNCHER, &session.launcher), (RANK, &rank), (SIZE, &size)]);
            command.envs(session.restart.iter().map(|folder| (RESTART, folder)));
            // a rank of another job may have started this launcher
            for name in [RESTARTS, START, OVER_MPI, LAUNCHER_PROCESS] {
                command.env_remove(name);
            }
            if self.restarts > 0 {
                command.env(RESTARTS, "1").env(START, &start);
            }
            return Ok(command);
        };
        if host.is_empty() || host.starts_with('-') {
            return Err(LaunchError::Wrong(format!("`{host}` is no host")));
        }
        let line = self.line(session, &quoted(host), &quoted(&rank), &start)?;
        let mut command = Command::new("ssh");
        // a host without power does not answer
        let patience = ["-o", "ConnectTimeout=10"].iter().take(if self.restarts > 0 { 2 } else { 0 });
        command.args(["-o", "BatchMode=yes"]).args(patience).args(["--", host, &line]).stdin(Stdio::piped());
        Ok(command)
    }

    /// One step with a task for each rank. Its standard input, with the secret, goes to all tasks.
    fn by_slurm(&self, session: &Session) -> Result<Command, LaunchError> {
        if std::env::var_os("SLURM_JOB_ID").is_none() {
            return Err(LaunchError::Wrong(
                "this process is in no allocation of Slurm (SLURM_JOB_ID is not set): start it by `salloc` or `sbatch`"
                    .to_owned(),
            ));
        }
        let line = self.line(session, "\"$SLURMD_NODENAME\"", "\"$SLURM_PROCID\"", "0")?;
        let mut command = Command::new("srun");
        let tasks = format!("--ntasks={}", self.ranks);
        command
            .args([&tasks, "--kill-on-bad-exit=1", "--input=all", "sh", "-c", &line])
            .stdin(Stdio::piped());
        Ok(command)
    }

    /// The line that a shell on another host runs. The secret goes through standard input: arguments can be read by everyone on
    /// the host. `host` and `rank` are words of the shell.
    fn line(&self, session: &Session, host: &str, rank: &str, start: &str) -> Result<String, LaunchError> {
        let (launcher, size) = (quoted(&session.launcher), self.ranks);
        let restarts =
            if self.restarts > 0 { format!(" {RESTARTS}=1 {START}={start}") } else { String::new() };
        let mut line = format!(
            "IFS= read -r {SECRET}; export {SECRET} {HOST}={host} {LAUNCHER}={launcher} {RANK}={rank} \
             {SIZE}={size}{restarts}"
        );
        let mut options: BTreeMap<String, String> = options();
        if let Some(folder) = &session.restart {
            options.insert(RESTART.to_owned(), utf8(folder.as_os_str())?.to_owned());
        }
        for (name, value) in options {
            line.push_str(&format!(" {name}={}", quoted(&value)));
        }
        line.push_str("; exec");
        for word in std::iter::once(&self.program).chain(&self.arguments) {
            line.push(' ');
            line.push_str(&quoted(utf8(word)?));
        }
        Ok(line)
    }
}
