// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a launch to its end, or ending it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use colony_node::parent::end_with_parent;
use colony_node::task;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::plan::Launch;
use crate::{BenchError, BenchResult};

impl Launch {
    /// Runs it and reads the result.
    ///
    /// Nothing is left behind: the launcher runs in a process group of its own, ends with the calling
    /// thread (`kill -9` of this process included), and is ended, ranks and all, on a timeout.
    ///
    /// # Errors
    /// [`BenchError`] says what was tried and what came of it.
    pub fn run(&self) -> Result<BenchResult, BenchError> {
        self.run_while(|| true)
    }

    /// As [`run`](Self::run), but ends the run when `go_on`, asked about every 20 ms, says no: for a caller
    /// that handles Ctrl-C itself.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`BenchError::Interrupted`].
    pub fn run_while(&self, go_on: impl FnMut() -> bool) -> Result<BenchResult, BenchError> {
        let mut command = self.command()?;
        let text = text(&command);
        // On other hosts the folder would have to exist, too.
        let session = self.hostfile.is_none().then(|| private_session(&mut command)).transpose();
        let _session = session.map_err(|source| BenchError::Spawn { command: text.clone(), source })?;
        let (status, stdout, stderr) = Running::start(command, &text)?.wait(&text, self.timeout, go_on)?;
        if !status.success() {
            return Err(BenchError::Failed { command: text, status, stderr: tail(&stderr) });
        }
        let result = match &self.out {
            Some(path) => BenchResult::read(path)?,
            None => BenchResult::parse(json_in(&stdout), &format!("the output of `{text}`"))?,
        };
        if result.ranks != self.ranks {
            let (wanted, got, library) = (self.ranks, result.ranks, result.mpi.library);
            return Err(BenchError::WorldSize { command: text, wanted, got, library });
        }
        Ok(result)
    }
}

/// The last line that is a JSON object: launchers may say something before it.
fn json_in(stdout: &str) -> &str {
    stdout.lines().rev().map(str::trim).find(|l| l.starts_with('{')).unwrap_or(stdout)
}

/// The last lines of `text`, enough for an error.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Gives Open MPI a folder of its own for this job, unless the user has chosen one. By default all jobs of a user share
/// a folder of `TMPDIR`, which a job that ends removes while the next one starts in it: `mpirun` then fails without a word.
fn private_session(command: &mut Command) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("colony-mpi-").tempdir()?;
    // Open MPI 4, and the runtime of Open MPI 5
    for variable in ["OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"] {
        if std::env::var_os(variable).is_none() {
            command.env(variable, folder.path());
        }
    }
    Ok(folder)
}

/// A command as one would type it.
pub(super) fn text(command: &Command) -> String {
    let word = |w: &std::ffi::OsStr| {
        let w = w.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:%+@".contains(c);
        if !w.is_empty() && w.chars().all(plain) {
            w.into_owned()
        } else {
            format!("'{}'", w.replace('\'', r"'\''"))
        }
    };
    let words: Vec<String> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(word).collect();
    words.join(" ")
}

/// A command that runs in a process group of its own, its output being collected.
struct Running {
    child: Child,
    stdout: std::thread::JoinHandle<String>,
    stderr: std::thread::JoinHandle<String>,
}

impl Running {
    const POLL: Duration = Duration::from_millis(20);
    /// Time for a launcher to end its ranks before all of them are killed.
    const GRACE: Duration = Duration::from_secs(3);

    fn start(mut command: Command, text: &str) -> Result<Self, BenchError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // the end of this thread ends the launcher, which then ends its ranks
        end_with_parent(&mut command, Signal::SIGTERM);
        let mut child =
            command.spawn().map_err(|source| BenchError::Spawn { command: text.to_owned(), source })?;
        let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
        Ok(Self { child, stdout, stderr })
    }

    fn wait(
        mut self,
        text: &str,
        timeout: Option<Duration>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<(ExitStatus, String, String), BenchError> {
        let command = || text.to_owned();
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(source) => {
                    self.end();
                    return Err(BenchError::Spawn { command: command(), source });
                }
            }
            if let Some(after) = timeout.filter(|t| started.elapsed() >= *t) {
                self.end();
                return Err(BenchError::Timeout { command: command(), after });
            }
            if !go_on() {
                self.end();
                return Err(BenchError::Interrupted { command: command() });
            }
            std::thread::sleep(Self::POLL);
        };
        let said = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
        Ok((status, said(self.stdout), said(self.stderr)))
    }

    /// Ends the launcher and all that descends from it: asked first, then killed.
    fn end(&mut self) {
        let root = self.child.id() as i32;
        let mut family = Family::of(root);
        let _ = killpg(Pid::from_raw(root), Signal::SIGTERM);
        for limit in [Self::GRACE, Self::GRACE] {
            let since = Instant::now();
            // reaping the launcher also turns it from a zombie into nothing
            while { self.child.try_wait().is_ok() && family.lives() } && since.elapsed() < limit {
                std::thread::sleep(Self::POLL);
            }
            family.kill();
        }
        let _ = self.child.wait();
    }
}

/// Processes that descend from one, known by their start too: a number can be given away again.
///
/// Ranks may have process groups of their own, and lose their parent when the launcher dies.
struct Family(Vec<(i32, u64)>);

impl Family {
    fn of(root: i32) -> Self {
        let known = |pid| Some((pid, task::stat(pid).ok()?.start_ticks));
        Self(task::tree(root).into_iter().filter_map(known).collect())
    }

    fn living(&self) -> impl Iterator<Item = i32> {
        let lives = |&&(pid, start): &&(i32, u64)| {
            task::stat(pid).is_ok_and(|now| now.start_ticks == start && now.state != b'Z')
        };
        self.0.iter().filter(lives).map(|&(pid, _)| pid)
    }

    fn lives(&self) -> bool {
        self.living().next().is_some()
    }

    /// Kills those that live, and what they have started since.
    fn kill(&mut self) {
        let grown: Vec<_> = self.living().flat_map(|pid| Self::of(pid).0).collect();
        self.0.extend(grown);
        for pid in self.living() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // what was read before an error is still worth showing
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_status_and_errors_come_back() {
        let running = Running::start(shell("echo out; echo err >&2; exit 3"), "x").expect("sh");
        let (status, out, err) = running.wait("x", None, || true).expect("ends");
        assert_eq!((status.code(), out.as_str(), err.as_str()), (Some(3), "out\n", "err\n"));
        assert!(Running::start(Command::new("/nowhere"), "x").is_err());
    }

    #[test]
    fn each_job_has_a_session_folder_of_its_own_while_it_runs() {
        let script =
            "echo $OMPI_MCA_orte_tmpdir_base $PRTE_MCA_prte_tmpdir_base; test -d $OMPI_MCA_orte_tmpdir_base";
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut command = shell(script);
            let session = private_session(&mut command).expect("a folder");
            let running = Running::start(command, "x").expect("sh");
            let (status, out, _) = running.wait("x", None, || true).expect("ends");
            assert!(status.success(), "{out}");
            seen.push(out);
            let path = session.path().to_owned();
            drop(session);
            assert!(!path.exists());
        }
        assert_ne!(seen[0], seen[1]);
    }

    #[test]
    fn a_timeout_ends_the_whole_tree_even_processes_that_ignore_the_request() {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        let script = format!(
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {}; sleep 60; sleep 60' & sleep 60; sleep 60",
            file.path().display()
        );
        let running = Running::start(shell(&script), "x").expect("sh");
        let root = running.child.id() as i32;
        let error = running.wait("x", Some(Duration::from_millis(500)), || true).expect_err("too long");
        assert!(matches!(error, BenchError::Timeout { .. }));
        let pid: i32 = std::fs::read_to_string(file.path()).expect("read").trim().parse().expect("a pid");
        for gone in [root, pid] {
            let alive = task::stat(gone).is_ok_and(|s| s.state != b'Z');
            assert!(!alive, "{gone} is still there");
        }
    }

    #[test]
    fn a_caller_can_interrupt() {
        let running = Running::start(shell("sleep 60"), "x").expect("sh");
        let mut asked = 0;
        let error = running.wait("x", None, || {
            asked += 1;
            asked < 3
        });
        assert!(matches!(error, Err(BenchError::Interrupted { .. })));
    }

    #[test]
    fn the_result_is_found_behind_chatter() {
        assert_eq!(json_in("a warning\n{\"a\":1}\r\n"), "{\"a\":1}");
        assert_eq!(json_in("only chatter"), "only chatter");
        assert_eq!(tail("a\n\nb\n"), "a\nb");
    }
}
