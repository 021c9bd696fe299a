// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a program in this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::balancer::BalanceReport;
use crate::class::Classes;
use crate::core::{Core, Counts, Failure};
use crate::object::Context;
use crate::options::Options;
use crate::parcel::System;
use crate::port::{Mail, Port, Remote};
use crate::program::Program;
use crate::scheduler;
use crate::track::{Shared, Track};
use crate::transport::{Single, Transport};

/// The program's beginning, as a receiver of messages it is none.
#[derive(Debug)]
pub enum Main {}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The code that the program gave to `exit`.
    pub code: u8,
    /// Counts of each PE of this process.
    pub counts: Vec<Counts>,
    /// Load balancing, in the process of PE 0.
    pub balance: Vec<BalanceReport>,
}

/// A program that did not end by `exit`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The program or its input is wrong. Reported by the process in which it happened.
    #[error("{0}")]
    Program(String),
    /// Another process has failed, and has said why.
    #[error("{0}")]
    Lost(String),
}

/// The program's beginning.
type Begin = Box<dyn FnOnce(&mut Context<'_, Main>) + Send>;

/// The end of a PE: its result and its counts.
struct Ended {
    failure: Option<Failure>,
    exit: Option<u8>,
    counts: Counts,
    balance: Vec<BalanceReport>,
    track: Option<Track>,
}

impl Ended {
    /// A failure beside those of the PEs.
    fn failed(failure: Failure) -> Self {
        let failure = Some(failure);
        Self { failure, exit: None, counts: Counts::default(), balance: Vec::new(), track: None }
    }
}

/// The system refuses a thread. A compute node has two at most, of which one is for the network; nodes are alike, so
/// that rank 0 reports it for all.
fn no_thread((local, threads): (usize, u32), error: &std::io::Error, transport: &dyn Transport) -> Failure {
    let text = format!(
        "cannot start thread {local} of {threads}: {error}; use fewer threads, and on compute nodes one \
         (`colony cnk run --mode virtual-node` runs two processes on a node)"
    );
    if transport.name() == "torus" && transport.rank() > 0 {
        Failure::Lost(text)
    } else {
        Failure::Program(text)
    }
}

/// The text of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

/// Runs one PE.
fn run_pe(
    port: Port,
    classes: &'static Classes<Core>,
    options: &Options,
    recording: Option<Arc<Shared>>,
    main: Option<Begin>,
) -> (Ended, Remote) {
    let is_first = port.pe.is_multiple_of(port.threads);
    let track = Track::new(recording, port.pe, is_first, classes);
    let mut core = Core::new(port, classes, options, track);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        if core.pe() == 0 && core.track.is_on() {
            let run = core.track.run;
            core.post_to_others(|| System::Run { run });
        }
        if let Some(main) = main {
            main(&mut Context::new(&mut core, None));
        }
        scheduler::run(&mut core);
    }));
    if let Err(panic) = panicked {
        let what = core.show_running().unwrap_or_else(|| "the program's beginning".to_owned());
        core.fail_program(format!("{what} panicked: {}", panic_text(&*panic)));
    }
    if core.failure.is_some() {
        for sibling in &core.port.siblings {
            let _ = sibling.send(Mail::Stop);
        }
    }
    let Core { failure, exit, counts, balancer, port, mut track, .. } = core;
    track.end();
    (Ended { failure, exit, counts, balance: balancer.reports, track: Some(track) }, port.remote)
}

/// Runs a program in this process, which is one rank of `transport`. `main` is called on PE 0.
///
/// # Errors
/// [`RunError`]. The transport has been told to end the other processes.
pub fn run_on(
    program: Program,
    options: &Options,
    transport: Box<dyn Transport>,
    main: impl FnOnce(&mut Context<'_, Main>) + Send + 'static,
) -> Result<Outcome, RunError> {
    run_and_report(program, options, transport, main, |_| {})
}

/// The same, and calls `report` with a failure of this process before the other processes are told to end: MPI ends
/// this one too, so that nothing can be reported after.
///
/// # Errors
/// As [`run_on`].
pub fn run_and_report(
    program: Program,
    options: &Options,
    transport: Box<dyn Transport>,
    main: impl FnOnce(&mut Context<'_, Main>) + Send + 'static,
    report: impl FnOnce(&str),
) -> Result<Outcome, RunError> {
    let classes: &'static Classes<Core> = Box::leak(Box::new(program.into_classes()));
    let threads = options.threads.max(1);
    let (rank, ranks) = (transport.rank(), transport.size());
    let pes = ranks * threads;
    let mut transport = transport;
    let options = match options.with_environment(pes) {
        Ok(options) => options,
        Err(text) => return Err(refuse_environment(text, &mut *transport, report)),
    };
    let options = &options;
    let recording = options.timeline.clone().map(Shared::begin);
    let process = Process { rank, pes, classes, recording };
    let recording = process.recording.clone();
    let mut main: Option<Begin> = if rank == 0 { Some(Box::new(main)) } else { None };
    if threads == 1 {
        let port = Port::new(rank, (pes, 1), Vec::new(), None, Remote::Own(transport));
        return match run_pe(port, classes, options, recording, main) {
            (ended, Remote::Own(mut transport)) => process.end(vec![ended], &mut *transport, report),
            (ended, Remote::Thread(_)) => process.end(vec![ended], &mut Single, report),
        };
    }
    let (senders, receivers): (Vec<Sender<Mail>>, Vec<Receiver<Mail>>) =
        (0..threads).map(|_| channel()).unzip();
    let (frames, outgoing) = channel();
    let ended = std::thread::scope(|scope| {
        let mut handles = Vec::new();
        let mut refused = None;
        for (local, inbox) in receivers.into_iter().enumerate() {
            let (siblings, frames) = (senders.clone(), frames.clone());
            let pe = rank * threads + local as u32;
            let (main, recording) = (main.take(), recording.clone());
            let run = move || {
                let port = Port::new(pe, (pes, threads), siblings, Some(inbox), Remote::Thread(frames));
                run_pe(port, classes, options, recording, main).0
            };
            match std::thread::Builder::new().spawn_scoped(scope, run) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    refused = Some(no_thread((local, threads), &error, &*transport));
                    break;
                }
            }
        }
        drop(frames);
        let network = match refused {
            None => scheduler::run_transport(&mut *transport, &outgoing, &senders),
            Some(failure) => Err(failure),
        };
        if network.is_err() {
            for sender in &senders {
                let _ = sender.send(Mail::Stop);
            }
        }
        drop(outgoing);
        let mut ended: Vec<Ended> = handles.into_iter().filter_map(|h| h.join().ok()).collect();
        if let Err(failure) = network {
            ended.insert(0, Ended::failed(failure));
        }
        ended
    });
    drop(recording);
    process.end(ended, &mut *transport, report)
}

/// Ends the job because of a wrong variable. All ranks find it, so rank 0 reports it; another rank does if rank 0 has not
/// ended the job in time.
fn refuse_environment(text: String, transport: &mut dyn Transport, report: impl FnOnce(&str)) -> RunError {
    let began = Instant::now();
    while transport.rank() != 0 && began.elapsed() < Duration::from_secs(5) {
        if let Err(lost) = transport.poll(&mut |_, _| {}) {
            return RunError::Lost(lost.to_string());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    report(&text);
    transport.abort(1);
    RunError::Program(text)
}

/// A process of the job.
struct Process {
    rank: u32,
    pes: u32,
    classes: &'static Classes<Core>,
    recording: Option<Arc<Shared>>,
}

impl Process {
    /// Ends the process's part of the job.
    fn end(
        self,
        mut ended: Vec<Ended>,
        transport: &mut dyn Transport,
        report: impl FnOnce(&str),
    ) -> Result<Outcome, RunError> {
        let tracks = ended.iter_mut().filter_map(|ended| ended.track.take()).collect();
        // the first program failure says more than those that follow from it
        let failures = || ended.iter().filter_map(|e| e.failure.clone());
        let failure = failures().find(|f| matches!(f, Failure::Program(_))).or_else(|| failures().next());
        if let Some(failure) = failure {
            if let Failure::Program(text) = &failure {
                report(text);
            }
            // the time line shows what came before the failure; if it cannot be written, the failure says more
            let _ = self.write(tracks);
            return Err(match failure {
                Failure::Program(text) => {
                    transport.abort(1);
                    RunError::Program(text)
                }
                Failure::Lost(text) => RunError::Lost(text),
            });
        }
        transport.finish().map_err(|e| RunError::Lost(e.to_string()))?;
        if let Err(text) = self.write(tracks) {
            report(&text);
            return Err(RunError::Program(text));
        }
        Ok(Outcome {
            code: ended.iter().find_map(|e| e.exit).unwrap_or(0),
            counts: ended.iter().map(|e| e.counts).collect(),
            balance: ended.into_iter().flat_map(|e| e.balance).collect(),
        })
    }

    /// Writes the time line, if there is one.
    fn write(self, tracks: Vec<Track>) -> Result<(), String> {
        let Self { rank, pes, classes, recording } = self;
        recording.map_or(Ok(()), |recording| Shared::write(recording, (rank, pes), classes, tracks))
    }
}
