// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of a machine, from the start of the emulator to its end.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use colony_init::wire::{Decoder, Finished, Frame};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use super::emulator::{self, Emulator, QUESTIONS, cpu_ns, read_now};
use super::{Boot, Event, Outcome, Prepared};
use crate::{Cause, Failure, VmError};

/// Bytes of the console and of the emulator's own messages that are kept: enough for what a kernel says of a hundred tasks.
const TAIL: usize = 64 << 10;

/// How long a silent guest may answer all questions, and how long it may pause before the next one.
const ANSWERS: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(1);

/// The end of a text that may be long.
#[derive(Default)]
struct Tail(VecDeque<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let excess = self.0.len().saturating_sub(TAIL);
        self.0.drain(..excess);
    }

    /// As text that cannot move a terminal's cursor.
    fn text(&self) -> String {
        let bytes: Vec<u8> =
            self.0.iter().copied().filter(|&b| b == b'\n' || b == b'\t' || b >= b' ').collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Output received so far.
#[derive(Default)]
struct Received {
    decoder: Decoder,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    file: Option<PathBuf>,
    kernel: String,
    boot: Boot,
    finished: Option<Finished>,
    console: Tail,
    emulator: Tail,
}

impl Received {
    /// Takes bytes of the port; an error is the end of the machine.
    fn port(
        &mut self,
        bytes: &[u8],
        cpu_ns: impl Fn() -> u64,
        listen: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Cause> {
        self.decoder.push(bytes);
        while let Some(frame) = self.decoder.next_frame().map_err(|e| Cause::Trouble(e.to_string()))? {
            match frame {
                Frame::Started(started) => {
                    self.kernel = started.kernel;
                    self.boot = Boot { uptime_ns: started.uptime_ns, host_cpu_ns: cpu_ns() };
                    listen(Event::Started(self.boot));
                }
                Frame::Stdout(bytes) => {
                    listen(Event::Stdout(&bytes));
                    self.stdout.extend(bytes);
                }
                Frame::Stderr(bytes) => {
                    listen(Event::Stderr(&bytes));
                    self.stderr.extend(bytes);
                }
                Frame::File(path) => {
                    self.files.insert(path.clone(), Ok(Vec::new()));
                    self.file = Some(path);
                }
                Frame::FileData(bytes) => {
                    let file = self.file.as_ref().and_then(|f| self.files.get_mut(f));
                    if let Some(Ok(data)) = file {
                        data.extend(bytes);
                    }
                }
                Frame::NoFile { path, reason } => drop(self.files.insert(path, Err(reason))),
                Frame::Finished(finished) => self.finished = Some(finished),
                Frame::Trouble(reason) => return Err(Cause::Trouble(reason)),
            }
        }
        Ok(())
    }

    fn failure(self, cause: Cause, name: &str) -> VmError {
        VmError::Failed(Box::new(Failure {
            cause,
            name: name.into(),
            console: self.console.text(),
            emulator: self.emulator.text(),
            stdout: self.stdout,
            stderr: self.stderr,
        }))
    }
}

/// Deadlines of a session: for the job, and for silence of the guest.
struct Deadlines {
    timeout: Duration,
    silence: Duration,
    start: Instant,
    heard: Instant,
    /// The silence after which the guest was asked what it does, and what it was not asked yet.
    asked: Option<(Duration, &'static [u8])>,
}

impl Deadlines {
    fn new(timeout: Duration, silence: Duration) -> Self {
        let now = Instant::now();
        Self { timeout, silence, start: now, heard: now, asked: None }
    }

    /// The next question to a guest that is silent, which has some time to answer it; `None` after the last one.
    fn next_question(&mut self) -> Option<u8> {
        if self.asked.is_none() {
            *self = Self { asked: Some((self.silence, QUESTIONS)), ..Self::new(ANSWERS, PAUSE) };
        }
        let (_, questions) = self.asked.as_mut()?;
        let (&first, rest) = questions.split_first()?;
        (*questions, self.heard) = (rest, Instant::now());
        Some(first)
    }

    /// Time left until the next deadline, or the cause if one has passed.
    fn left(&self) -> Result<Duration, Cause> {
        self.left_now().map_err(|cause| self.asked.map_or(cause, |(silence, _)| Cause::Silent(silence)))
    }

    fn left_now(&self) -> Result<Duration, Cause> {
        let total = self.timeout.saturating_sub(self.start.elapsed());
        let quiet = self.silence.saturating_sub(self.heard.elapsed());
        match (total.is_zero(), quiet.is_zero()) {
            (true, _) => Err(Cause::Timeout(self.timeout)),
            (_, true) => Err(Cause::Silent(self.silence)),
            _ => Ok(total.min(quiet)),
        }
    }
}

/// Runs the machine to the end of its program, or until it fails. Where the program came to its end the machine is
/// still there, and is switched off when the guard is dropped.
pub(super) fn run(
    prepared: Prepared,
    stop: Option<&EventFd>,
    listen: &mut dyn FnMut(Event<'_>),
) -> Result<(Outcome, Guarded), VmError> {
    let name = prepared.vm.name.clone();
    let image_bytes = prepared.image_bytes;
    let mut deadlines = Deadlines::new(prepared.vm.timeout, prepared.vm.silence);
    let mut emulator = Guarded(emulator::start(prepared)?);
    let mut received = Received::default();
    let end = listen_to(&mut emulator.0, stop, &mut deadlines, &mut received, listen)?;
    let host_cpu_ns = cpu_ns(&emulator.0.child);
    match (end, received.finished) {
        (End::Done, Some(guest)) => {
            let outcome = Outcome {
                exit: guest.exit,
                stdout: received.stdout,
                stderr: received.stderr,
                files: received.files,
                console: received.console.text(),
                kernel: received.kernel,
                guest,
                boot: received.boot,
                host_cpu_ns,
                image_bytes,
            };
            Ok((outcome, emulator))
        }
        (End::Done, None) => Err(received.failure(Cause::Ended("without a word".into()), &name)),
        (End::Cause(cause), _) => Err(received.failure(cause, &name)),
    }
}

/// The end of a session.
enum End {
    Done,
    Cause(Cause),
}

/// Listens to the guest's port, its console and the emulator's own words until one of them says that it is over.
fn listen_to(
    emulator: &mut Emulator,
    stop: Option<&EventFd>,
    deadlines: &mut Deadlines,
    received: &mut Received,
    listen: &mut dyn FnMut(Event<'_>),
) -> Result<End, VmError> {
    let (Some(console), Some(words)) = (emulator.child.stdout.take(), emulator.child.stderr.take()) else {
        return Ok(End::Cause(Cause::Ended("it has no console".into())));
    };
    let mut buffer = vec![0; 64 << 10];
    let mut open = [true; 3];
    while open != [false; 3] {
        let left = match deadlines.left() {
            Ok(left) => left,
            Err(cause @ Cause::Silent(_)) => match deadlines.next_question() {
                Some(question) => {
                    emulator.ask(question);
                    continue;
                }
                None => return Ok(End::Cause(cause)),
            },
            Err(cause) => return Ok(End::Cause(cause)),
        };
        let files = [emulator.port.as_fd(), console.as_fd(), words.as_fd()];
        let ready = wait(files, open, stop, left)?;
        if ready.stop {
            return Ok(End::Cause(Cause::Stopped));
        }
        for i in 0..3 {
            if !ready.files[i] {
                continue;
            }
            let Some(n) = read_now(files[i], &mut buffer) else {
                open[i] = false;
                continue;
            };
            deadlines.heard = Instant::now();
            let bytes = &buffer[..n];
            match i {
                0 => match received.port(bytes, || cpu_ns(&emulator.child), listen) {
                    Err(cause) => return Ok(End::Cause(cause)),
                    Ok(()) if received.finished.is_some() => return Ok(End::Done),
                    Ok(()) => {}
                },
                1 => received.console.push(bytes),
                _ => received.emulator.push(bytes),
            }
        }
    }
    Ok(End::Cause(how_it_ended(emulator, received)))
}

/// The sources that can be read.
struct Ready {
    files: [bool; 3],
    stop: bool,
}

/// Waits until one of those `files` that are `open` has something to read.
fn wait(
    files: [BorrowedFd<'_>; 3],
    open: [bool; 3],
    stop: Option<&EventFd>,
    left: Duration,
) -> Result<Ready, VmError> {
    let places: Vec<usize> = (0..3).filter(|&i| open[i]).collect();
    // a closed file would be ready for ever
    let mut fds: Vec<PollFd<'_>> = places.iter().map(|&i| PollFd::new(files[i], PollFlags::POLLIN)).collect();
    fds.extend(stop.map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)));
    let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::Error::EINTR) => {}
        Err(e) => return Err(VmError::os("waiting for a machine")(e)),
    }
    let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
    let mut ready = Ready { files: [false; 3], stop: fds.get(places.len()).is_some_and(is_ready) };
    for (&i, fd) in places.iter().zip(&fds) {
        ready.files[i] = is_ready(fd);
    }
    Ok(ready)
}

fn how_it_ended(emulator: &mut Emulator, received: &Received) -> Cause {
    if received.console.text().contains("Kernel panic") {
        return Cause::Panic;
    }
    Cause::Ended(emulator.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string()))
}

/// Kills the emulator when done with it, on every path.
pub(super) struct Guarded(Emulator);

impl Drop for Guarded {
    fn drop(&mut self) {
        // both fail only where it has ended already
        let _ = self.0.child.kill();
        let _ = self.0.child.wait();
    }
}
