// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job in a Linux I/O node: its files, its worker, and what goes between the worker and the job's relay.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use super::Task;
use super::export::pass_requests;
use super::root::Root;
use super::served::Agent;
use super::wire::{Frame, Kind, PIECE, WINDOW, wrong};
use crate::config::Streams;
use crate::control::{self, Order, Report};
use crate::part::{self, Ended, Part};
use crate::spec::Files;
use crate::{JobError, NodeLink};

/// Where the files of jobs lie.
pub(super) const JOBS: &str = "/jobs";
/// Bytes of a task at most.
const TASK: usize = 64 << 20;

/// Something that a job hears.
pub(super) enum Event {
    Frame(Frame),
    Report(Report),
    /// The worker has ended, and has said nothing more.
    Silent,
    /// All of one output has been sent.
    Sent,
    /// Nothing is heard any more about files of the host.
    NoFiles(io::Error),
}

/// What a job hears, until nobody waits for it any more.
pub(super) struct Events {
    from: Receiver<Event>,
    is_over: bool,
}

impl Events {
    pub(super) fn new(from: Receiver<Event>) -> Self {
        Self { from, is_over: false }
    }

    /// The next event; `None` after the end.
    fn next(&mut self) -> Option<Event> {
        let event = if self.is_over { None } else { self.from.recv().ok() };
        let goes_on = |event: &Event| !matches!(event, Event::Frame(frame) if frame.kind == Kind::End);
        let event = event.filter(goes_on);
        self.is_over = event.is_none();
        event
    }
}

/// Runs a job from its first file to its end.
pub(super) fn run(agent: &Arc<Agent>, job: u32, own: &SyncSender<Event>, mut events: Events) {
    let last = match prepare(agent, job, &mut events) {
        Ok(Some((root, task))) => match Running::start(agent, job, own, root, task) {
            Ok(mut running) => running.serve(&mut events),
            Err(e) => Some(JobError::System(format!("starting the job in its I/O node: {e}"))),
        },
        Ok(None) => None,
        Err(e) => Some(JobError::System(format!("the files of the job in its I/O node: {e}"))),
    };
    agent.end_files(job);
    agent.report(job, &Report::Done(last));
    let _ = agent.send(&Frame::new(job, Kind::Over, []));
    // what is on its way for it is nobody's
    while events.next().is_some() {}
}

/// Takes the job's files and its task; `None` if nobody waits for the job any more.
fn prepare(agent: &Agent, job: u32, events: &mut Events) -> io::Result<Option<(Root, Task)>> {
    let mut root = Root::new(Path::new(JOBS).join(job.to_string()))?;
    let mut task: Option<Vec<u8>> = None;
    while let Some(Event::Frame(frame)) = events.next() {
        match (frame.kind, &mut task) {
            (Kind::File, None) => root.begin(&frame.value()?)?,
            (Kind::Data, None) => root.data(&frame.bytes)?,
            (Kind::Task, None) => task = Some(frame.bytes),
            (Kind::Data, Some(task)) if task.len() + frame.bytes.len() <= TASK => task.extend(frame.bytes),
            (Kind::Launch, Some(task)) => {
                let mut task: Task = serde_json::from_slice(task)?;
                let identity = &mut task.setup.identity;
                // the agent is root, whatever the owner of the partition is
                identity.take = true;
                let user = (identity.uid, identity.gid);
                root.finish(&task.setup.spec.directory, user, &task.seen)?;
                task.setup.spec.files = Files::Root(root.path().to_owned());
                task.setup.shares_output = false;
                for (node, record) in task.setup.nodes.iter_mut().zip(&task.records) {
                    let none = || io::Error::other(format!("the I/O node has no node {}", node.number));
                    let link = agent.link(node.number).ok_or_else(none)?;
                    (node.window, node.memory) = (link.window(), link.process_memory());
                    if let Ok(record) = record.as_slice().try_into() {
                        link.write_record(record)?;
                    }
                }
                return Ok(Some((root, task)));
            }
            // an order before the worker is there: its relay sends none
            (other, _) => return Err(wrong(format!("{other:?} before the job is launched"))),
        }
    }
    Ok(None)
}

/// Output that may be sent, bytes; none if no more is sent. Clones are the same.
#[derive(Clone)]
struct Credit(Arc<(Mutex<Option<usize>>, Condvar)>);

impl Credit {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(Some(WINDOW)), Condvar::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<usize>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something may be sent. Returns how much, or none if no more is sent.
    fn wait(&self) -> Option<usize> {
        let waited = self.0.1.wait_while(self.lock(), |left| *left == Some(0));
        *waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// So much was sent.
    fn spend(&self, bytes: usize) {
        let mut left = self.lock();
        *left = left.map(|left| left.saturating_sub(bytes));
    }

    /// So much was taken.
    fn add(&self, bytes: usize) {
        let mut left = self.lock();
        *left = left.map(|left| left.saturating_add(bytes).min(WINDOW));
        self.0.1.notify_all();
    }

    /// No more is sent.
    fn close(&self) {
        *self.lock() = None;
        self.0.1.notify_all();
    }
}

/// A job whose worker was started.
struct Running<'a> {
    agent: &'a Arc<Agent>,
    job: u32,
    part: Part,
    child: Option<Child>,
    links: Vec<NodeLink>,
    /// To the worker's standard input, until its end.
    input: Option<Sender<Vec<u8>>>,
    credits: [Credit; 2],
    lost: Vec<u32>,
    root: Root,
}

impl<'a> Running<'a> {
    fn start(
        agent: &'a Arc<Agent>,
        job: u32,
        own: &SyncSender<Event>,
        root: Root,
        task: Task,
    ) -> io::Result<Self> {
        serve_files(agent, job, own, &root)?;
        let setup = task.setup;
        let links: Vec<NodeLink> = setup.nodes.iter().filter_map(|node| agent.link(node.number)).collect();
        let (stdin, input) = io::pipe()?;
        let (stdout, out) = io::pipe()?;
        let (stderr, err) = io::pipe()?;
        let streams = Streams { stdin: stdin.into(), stdout: out.into(), stderr: err.into() };
        let (part, child) = Part::start(&agent.config, (0, links.clone()), setup, &streams, None, None)?;
        drop(streams);
        let (inputs, bytes) = channel();
        let credits = std::array::from_fn(|_| Credit::new());
        // what fails from here on leaves the worker to be killed with this value
        let running = Self {
            agent,
            job,
            part,
            child: Some(child),
            links,
            input: Some(inputs),
            credits,
            lost: Vec::new(),
            root,
        };
        running.spawn("input", move |agent| pass_input(agent, job, &bytes, input))?;
        for ((pipe, kind), credit) in
            [(stdout, Kind::Stdout), (stderr, Kind::Stderr)].into_iter().zip(&running.credits)
        {
            let (own, credit) = (own.clone(), credit.clone());
            running.spawn("output", move |agent| {
                pass_output(agent, Frame::new(job, kind, []), pipe, &credit);
                let _ = own.send(Event::Sent);
            })?;
        }
        let (own, control) = (own.clone(), running.part.control.try_clone()?);
        running.spawn("reports", move |_| pass_reports(&control, &own))?;
        Ok(running)
    }

    fn spawn(&self, name: &str, does: impl FnOnce(&Agent) + Send + 'static) -> io::Result<()> {
        let agent = self.agent.clone();
        Builder::new().name(format!("{name} {}", self.job)).spawn(move || does(&agent)).map(drop)
    }

    /// Passes orders and reports until the worker has ended and its output was sent. Returns the error of the job, if it has
    /// one.
    fn serve(&mut self, events: &mut Events) -> Option<JobError> {
        let (mut last, mut open) = (None, 2);
        while last.is_none() || open > 0 {
            match events.next() {
                Some(Event::Frame(frame)) if self.hear(&frame).is_ok() => {}
                Some(Event::Report(Report::Done(error))) => last = Some(self.done(error)),
                Some(Event::Report(report)) => self.tell(&report),
                Some(Event::Silent) if last.is_none() => last = Some(self.died()),
                Some(Event::Silent) => {}
                Some(Event::Sent) => open -= 1,
                Some(Event::NoFiles(why)) if last.is_none() => {
                    // the worker may wait for them
                    self.lose_all();
                    last = Some(Some(JobError::System(format!("the files of the host: {why}"))));
                    break;
                }
                Some(Event::NoFiles(_)) => {}
                Some(Event::Frame(_)) | None => break,
            }
        }
        if last.is_none() {
            // nobody waits for it any more, and its nodes may be anywhere
            self.lost = self.links.iter().map(NodeLink::number).collect();
        }
        self.finish();
        last.flatten()
    }

    /// Does what the relay says.
    fn hear(&mut self, frame: &Frame) -> io::Result<()> {
        match frame.kind {
            Kind::Order => match frame.value()? {
                Order::Setup(_) => return Err(wrong("a second description of the job")),
                order => {
                    // a worker that hears nothing any more has ended, which is heard of
                    let _ = control::send(&self.part.control, &order);
                }
            },
            Kind::Input if frame.bytes.is_empty() => self.input = None,
            Kind::Input => {
                let _ = self.input.as_ref().map(|input| input.send(frame.bytes.clone()));
            }
            Kind::Taken => {
                for (credit, more) in self.credits.iter().zip(frame.get::<2>()?) {
                    credit.add(more as usize);
                }
            }
            Kind::Closed => {
                let [number] = frame.get()?;
                self.credits.get(number as usize).ok_or_else(|| wrong("no such output"))?.close();
            }
            other => return Err(wrong(format!("{other:?} of a job that runs"))),
        }
        Ok(())
    }

    fn tell(&mut self, report: &Report) {
        if let Report::Lost { node } = report {
            self.lost.push(*node);
        }
        self.agent.report(self.job, report);
    }

    /// The worker has said its last word.
    fn done(&mut self, error: Option<JobError>) -> Option<JobError> {
        self.part.gone();
        if matches!(self.child.take().map(part::end), Some(Ended::Stuck)) {
            // it still has the nodes' memory
            self.lose_all();
        }
        error
    }

    /// The worker has ended without a word.
    fn died(&mut self) -> Option<JobError> {
        self.lose_all();
        let how = self
            .child
            .take()
            .map_or_else(|| "it was waited for".into(), |child| part::end(child).to_string());
        Some(JobError::WorkerDied(how))
    }

    fn lose_all(&mut self) {
        for node in self.links.iter().map(NodeLink::number).collect::<Vec<_>>() {
            if !self.lost.contains(&node) {
                self.tell(&Report::Lost { node });
            }
        }
    }

    /// Ends the worker, and leaves clean nodes.
    fn finish(&mut self) {
        self.input = None;
        // a worker that waits for the host ends with an error
        self.root.end_seen();
        self.agent.end_files(self.job);
        if let Some(child) = self.child.take() {
            part::end(child);
        }
        self.credits.iter().for_each(Credit::close);
        for link in self.links.clone() {
            if !self.lost.contains(&link.number()) && link.clear().is_err() {
                self.tell(&Report::Lost { node: link.number() });
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Passes on what the kernel asks for about files of the host.
fn serve_files(agent: &Arc<Agent>, job: u32, own: &SyncSender<Event>, root: &Root) -> io::Result<()> {
    for (number, device) in (0_u8..).zip(root.devices()) {
        agent.add_files(job, number, device.clone());
        let (agent, own) = (agent.clone(), own.clone());
        Builder::new().name(format!("files {job}")).spawn(move || {
            let send =
                |request: &[u8]| agent.send(&Frame::new(job, Kind::FileCall, [&[number], request].concat()));
            if let Err(why) = pass_requests(&device, send) {
                let _ = own.send(Event::NoFiles(why));
            }
        })?;
    }
    Ok(())
}

/// Passes reports of the worker on until it has ended.
fn pass_reports(control: &UnixStream, own: &SyncSender<Event>) {
    // there is no time in which a worker has to say something
    let _ = control.set_read_timeout(None);
    while let Ok(Some(report)) = control::receive::<Report>(control) {
        if own.send(Event::Report(report)).is_err() {
            return;
        }
    }
    let _ = own.send(Event::Silent);
}

/// Passes input on until its end, or the worker's.
fn pass_input(agent: &Agent, job: u32, bytes: &Receiver<Vec<u8>>, mut to: PipeWriter) {
    while let Ok(bytes) = bytes.recv() {
        let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if to.write_all(&bytes).is_err()
            || agent.send(&Frame::numbers(job, Kind::InputTaken, &[taken])).is_err()
        {
            return;
        }
    }
}

/// Sends output in frames like this one, as far as its reader takes it, until its end.
fn pass_output(agent: &Agent, mut frame: Frame, mut from: PipeReader, credit: &Credit) {
    let mut piece = vec![0; PIECE];
    loop {
        // without credit, the rest is nobody's
        let Some(left) = credit.wait() else { return };
        let count = match from.read(&mut piece[..left.min(PIECE)]) {
            Ok(0) => return,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        credit.spend(count);
        frame.bytes = piece[..count].to_vec();
        if agent.send(&frame).is_err() {
            return;
        }
    }
}
