// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks as processes of this machine.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use colony_bench::Program;
use colony_node::parent::end_with_parent;
use colony_torus::{Dims, Window};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;

use crate::Failure;

/// Time for ranks to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(5);

/// The ranks; they end with it.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Runs this program again, as many times at once as there are ranks, with a window for all.
pub(crate) fn run(ranks: u32, program: Program) -> Result<(), Failure> {
    let least = program.min_ranks();
    if ranks < least {
        return Err((2, format!("{} needs at least {least} ranks and has {ranks}", program.name())));
    }
    let cannot = |what: &str, e: &dyn std::fmt::Display| (1, format!("cannot {what}: {e}"));
    let dims = Dims::of(ranks as usize).map_err(|e| cannot("place the ranks", &e))?;
    // a file without a name: nothing stays behind, however this ends
    let file = memfd_create(c"colony-torus", MFdFlags::MFD_CLOEXEC).map(File::from);
    let file = file.map_err(|e| cannot("make the window", &e))?;
    let window = Window::create_in(&file, dims).map_err(|e| cannot("make the window", &e))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let this = std::env::current_exe().map_err(|e| cannot("find this program", &e))?;
    let mut all = Ranks(Vec::new());
    for rank in 0..ranks {
        let mut command = Command::new(&this);
        command.args(arguments()).env("COLONY_TORUS", &path).env("COLONY_TORUS_DIMS", dims.to_string());
        command.env("COLONY_RANK", rank.to_string()).env("COLONY_SIZE", ranks.to_string());
        end_with_parent(&mut command, Signal::SIGKILL);
        all.0.push(command.spawn().map_err(|e| cannot("start a rank", &e))?);
    }
    wait(&mut all, &window)
}

/// The arguments of this process without `--ranks`.
fn arguments() -> Vec<std::ffi::OsString> {
    let mut kept = Vec::new();
    let mut all = std::env::args_os().skip(1);
    while let Some(argument) = all.next() {
        match argument.to_str() {
            // its value goes with it
            Some("--ranks") => drop(all.next()),
            Some(text) if text.starts_with("--ranks=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

/// Waits for all; the first that fails ends the others.
fn wait(ranks: &mut Ranks, window: &Window) -> Result<(), Failure> {
    let mut failure: Option<(Failure, Instant)> = None;
    while !ranks.0.is_empty() {
        let mut running = Vec::new();
        for mut rank in ranks.0.drain(..) {
            match rank.try_wait() {
                Ok(None) => running.push(rank),
                Ok(Some(status)) if status.success() => {}
                ended => {
                    window.abort();
                    failure.get_or_insert_with(|| (failed(ended), Instant::now()));
                }
            }
        }
        ranks.0 = running;
        if failure.as_ref().is_some_and(|(_, at)| at.elapsed() > GRACE) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    failure.map_or(Ok(()), |(failure, _)| Err(failure))
}

/// A rank's failure as that of all; one that ended by itself has said why.
fn failed(ended: std::io::Result<Option<ExitStatus>>) -> Failure {
    match ended {
        Ok(Some(status)) => match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => (code, String::new()),
            None => (1, format!("a rank ended with {status}")),
        },
        Ok(None) => (1, String::new()),
        Err(e) => (1, format!("cannot wait for a rank: {e}")),
    }
}
