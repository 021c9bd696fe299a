// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program itself: output forwarded, orphans waited for, files sent.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::Scope;

use colony_init::job::Job;
use colony_init::wire::{Exit, Finished, Frame, Started};
use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitStatus, wait};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::{Failed, Port};

/// Bytes read at once from a program or a file.
const PIECE: usize = 64 << 10;

/// Runs the job to its end and sends all it wrote.
pub(crate) fn run(job: &Job, port: &Port) -> Result<Finished, Failed> {
    let (program, arguments) = job.argv.split_first().ok_or("the job names no program")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .env("TERM", "dumb")
        .envs(job.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&job.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let kernel = nix::sys::utsname::uname().map_err(|e| format!("uname: {e}"))?;
    let kernel = kernel.release().to_string_lossy().into_owned();
    port.send(&Frame::Started(Started { uptime_ns: uptime_ns(), kernel }))?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return not_started(program, &e, port),
    };
    let exit = std::thread::scope(|scope| {
        forward(scope, child.stdout.take(), Frame::Stdout, port);
        forward(scope, child.stderr.take(), Frame::Stderr, port);
        wait_for(&child)
    })?;
    let finished = finished(exit)?;
    for path in &job.collect {
        collect(path, port)?;
    }
    Ok(finished)
}

/// As a shell puts it: 127 for a program that is not there, 126 for one that cannot be run.
fn not_started(program: &str, e: &std::io::Error, port: &Port) -> Result<Finished, Failed> {
    port.send(&Frame::Stderr(format!("colony-init: {program}: {e}\n").into_bytes()))?;
    finished(Exit::Code(if e.kind() == ErrorKind::NotFound { 127 } else { 126 }))
}

fn finished(exit: Exit) -> Result<Finished, Failed> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|e| format!("getrusage: {e}"))?;
    let ns = |t: nix::sys::time::TimeVal| u64::try_from(t.num_nanoseconds()).unwrap_or(0);
    Ok(Finished {
        exit,
        uptime_ns: uptime_ns(),
        user_ns: ns(usage.user_time()),
        system_ns: ns(usage.system_time()),
        max_resident_bytes: u64::try_from(usage.max_rss()).unwrap_or(0) << 10,
    })
}

fn uptime_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .and_then(|t| u64::try_from(t.num_nanoseconds()).ok())
        .unwrap_or(0)
}

fn forward<'s>(
    scope: &'s Scope<'s, '_>,
    from: Option<impl Read + Send + 's>,
    frame: fn(Vec<u8>) -> Frame,
    port: &'s Port,
) {
    let Some(mut from) = from else { return };
    scope.spawn(move || {
        let mut piece = vec![0; PIECE];
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => {
                    if port.send(&frame(piece[..n].to_vec())).is_err() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    });
}

/// Waits for the program, and on the way for every orphan, since the first process inherits them. What is
/// left when the program has ended is killed: it would hold the program's output open.
fn wait_for(child: &Child) -> Result<Exit, Failed> {
    let child = i32::try_from(child.id()).map_err(|e| e.to_string())?;
    let exit = loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == child => break Exit::Code(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == child => {
                break Exit::Signal(signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(format!("waiting for the program: {e}")),
        }
    };
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while !matches!(wait(), Err(Errno::ECHILD)) {}
    Ok(exit)
}

fn collect(path: &Path, port: &Port) -> Result<(), Failed> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) => return port.send(&Frame::NoFile { path: path.into(), reason: e.to_string() }),
    };
    port.send(&Frame::File(path.into()))?;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(n) => port.send(&Frame::FileData(piece[..n].to_vec()))?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return port.send(&Frame::NoFile { path: path.into(), reason: e.to_string() }),
        }
    }
}
