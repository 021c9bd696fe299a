// SPDX-License-Identifier: MIT OR Apache-2.0
//! The owner's end of the stream to a Linux I/O node: passes the frames of its jobs to and from their relays.
//!
//! The I/O node is trusted in nothing: what it sends about a job goes to that job's relay, which is the user, and what it
//! sends about nodes changes only what is known of its own nodes.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use super::wire::{Failed, Frame, Hello, Kind, VERSION, wrong};
use crate::NodeLink;

/// Bytes that wait for a relay at most: what may be under way, and reports.
const QUEUE: usize = 16 << 20;

/// The link to an I/O node. Clones are the same link.
#[derive(Clone, Debug)]
pub struct IoLink(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    port: UnixStream,
    /// One frame at a time.
    writer: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    kernel: Option<String>,
    /// The reason why it is not used any more.
    over: Option<String>,
    nodes: BTreeMap<u32, NodeLink>,
    /// Nodes that have a new link there.
    renewed: Vec<u32>,
    relays: BTreeMap<u32, Relay>,
    last_job: u32,
}

/// The way to the relay of a job.
#[derive(Debug)]
struct Relay {
    queue: Sender<Frame>,
    /// Bytes in it.
    waits: Arc<AtomicUsize>,
    socket: UnixStream,
}

impl IoLink {
    /// On the owner's end of the stream.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(port: UnixStream) -> io::Result<Self> {
        let reads = port.try_clone()?;
        let shared = Arc::new(Shared {
            port,
            writer: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = shared.clone();
        Builder::new().name("io-node".into()).spawn(move || own.listen(reads))?;
        Ok(Self(shared))
    }

    /// The I/O node serves this node: what it reports of it goes to this link.
    pub fn attach(&self, node: NodeLink) {
        self.0.lock().nodes.insert(node.number(), node);
    }

    /// Release of its kernel, once it is ready.
    #[must_use]
    pub fn kernel(&self) -> Option<String> {
        self.0.lock().kernel.clone()
    }

    /// The reason why the link is not used any more, if that is so.
    #[must_use]
    pub fn over(&self) -> Option<String> {
        self.0.lock().over.clone()
    }

    /// Waits until the I/O node is ready; `false` if it is not within this time, or has ended.
    #[must_use]
    pub fn wait_ready(&self, limit: Duration) -> bool {
        self.0.wait(limit, |s| s.kernel.is_some() || s.over.is_some()).kernel.is_some()
    }

    /// Lets the I/O node make a new link with a node whose emulator was ended, and waits for it.
    ///
    /// # Errors
    /// If it does not within this time, or has ended.
    pub fn renew(&self, node: NodeLink, limit: Duration) -> io::Result<()> {
        let number = node.number();
        {
            let mut state = self.0.lock();
            state.renewed.retain(|n| *n != number);
            state.nodes.remove(&number);
        }
        self.0.send(&Frame::numbers(0, Kind::Renew, &[number]))?;
        let mut state = self.0.wait(limit, |s| s.renewed.contains(&number) || s.over.is_some());
        if !state.renewed.contains(&number) {
            let why = state.over.clone().unwrap_or_else(|| "the I/O node does not answer".into());
            return Err(io::Error::other(why));
        }
        state.nodes.insert(number, node);
        Ok(())
    }

    /// Ends all that uses it.
    pub fn close(&self) {
        let _ = self.0.port.shutdown(Shutdown::Both);
        self.0.end("it was switched off");
    }

    /// The socket for the relay of a new job, and this end of it: shutting that down ends the job there, whatever the relay does.
    pub(crate) fn open(&self) -> io::Result<(UnixStream, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (queue, frames) = channel();
        let waits = Arc::new(AtomicUsize::new(0));
        let relay = Relay { queue, waits: waits.clone(), socket: ours.try_clone()? };
        let (reads, writes) = (ours.try_clone()?, ours.try_clone()?);
        let job = {
            let mut state = self.0.lock();
            if let Some(why) = &state.over {
                return Err(io::Error::other(why.clone()));
            }
            state.last_job = state.last_job.wrapping_add(1).max(1);
            let job = state.last_job;
            state.relays.insert(job, relay);
            job
        };
        Builder::new().name(format!("io-out {job}")).spawn(move || pass(&frames, &waits, writes))?;
        let shared = self.0.clone();
        Builder::new().name(format!("io-in {job}")).spawn(move || shared.hear_relay(job, reads))?;
        Ok((theirs, ours))
    }
}

/// Passes frames to a relay until there are no more.
fn pass(frames: &Receiver<Frame>, waits: &AtomicUsize, mut relay: UnixStream) {
    while let Ok(frame) = frames.recv() {
        waits.fetch_sub(frame.bytes.len(), Ordering::Relaxed);
        if frame.write(&mut relay).is_err() {
            break;
        }
    }
    let _ = relay.shutdown(Shutdown::Both);
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, limit: Duration, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |s| !until(s));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn send(&self, frame: &Frame) -> io::Result<()> {
        let _one = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut &self.port)
    }

    fn end(&self, why: &str) {
        let mut state = self.lock();
        state.over.get_or_insert_with(|| why.to_owned());
        // their queues end, and so they do
        state.relays.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the frames of the I/O node until it ends, or breaks a rule.
    fn listen(&self, mut port: UnixStream) {
        let why = loop {
            match Frame::read(&mut port).and_then(|frame| frame.map(|f| self.hear(f)).transpose()) {
                Ok(Some(())) => {}
                Ok(None) => break "it has ended".to_owned(),
                Err(e) => break e.to_string(),
            }
        };
        let _ = port.shutdown(Shutdown::Both);
        self.end(&why);
    }

    fn hear(&self, frame: Frame) -> io::Result<()> {
        let mut state = self.lock();
        if state.kernel.is_none() != (frame.kind == Kind::Hello) {
            return Err(wrong("it greets first, and once"));
        }
        match frame.kind {
            Kind::Hello => {
                let hello: Hello = frame.value()?;
                if hello.version != VERSION {
                    return Err(wrong(format!("its version is {}, and this is {VERSION}", hello.version)));
                }
                state.kernel = Some(hello.kernel.chars().take(100).collect());
            }
            Kind::Asked => {
                let [node] = frame.get()?;
                state.nodes.get(&node).inspect(|link| link.set_asked());
            }
            Kind::Failed => {
                let failed: Failed = frame.value()?;
                let why = failed.why.chars().take(200).collect();
                state.nodes.get(&failed.node).inspect(|link| link.set_failed(why));
            }
            Kind::Renewed => {
                let [node] = frame.get()?;
                if !state.renewed.contains(&node) && state.renewed.len() < crate::io_node::MOST_NODES {
                    state.renewed.push(node);
                }
            }
            Kind::Report | Kind::Stdout | Kind::Stderr | Kind::InputTaken | Kind::FileCall | Kind::Over => {
                let is_last = frame.kind == Kind::Over;
                let job = frame.job;
                // one that has ended meanwhile hears nothing more
                let Some(relay) = state.relays.get(&job) else { return Ok(()) };
                let waits = relay.waits.fetch_add(frame.bytes.len(), Ordering::Relaxed);
                if waits > QUEUE {
                    let _ = relay.socket.shutdown(Shutdown::Both);
                    return Err(wrong("more output than it may send"));
                }
                // a relay that has ended has closed its socket, which its other thread sees
                let _ = relay.queue.send(frame);
                if is_last {
                    state.relays.remove(&job);
                }
            }
            other => return Err(wrong(format!("{other:?} from an I/O node"))),
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Passes the frames of a relay on, once the I/O node is ready, and ends the job with it.
    fn hear_relay(&self, job: u32, mut relay: UnixStream) {
        while self
            .wait(Duration::from_secs(3600), |s| s.kernel.is_some() || s.over.is_some())
            .kernel
            .is_none()
        {
            if self.lock().over.is_some() {
                return;
            }
        }
        use Kind::{Closed, Data, File, FileReply, Input, Launch, Order, Taken, Task};
        while let Ok(Some(frame)) = Frame::read(&mut relay) {
            let is_its = matches!(
                frame.kind,
                Closed | Data | File | Task | Launch | Order | Input | Taken | FileReply
            );
            if !is_its || self.send(&Frame { job, ..frame }).is_err() {
                break;
            }
        }
        let _ = relay.shutdown(Shutdown::Both);
        self.lock().relays.remove(&job);
        let _ = self.send(&Frame::new(job, Kind::End, []));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    /// A link, and the I/O node at its other end.
    fn link() -> (IoLink, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        (IoLink::new(ours).expect("a link"), theirs)
    }

    fn say(mut node: &UnixStream, frame: &Frame) {
        // the owner may have hung up
        let _ = frame.write(&mut node);
    }

    fn hello() -> Frame {
        Frame::json(0, Kind::Hello, &Hello { version: VERSION.into(), kernel: "6.1".into() }).expect("JSON")
    }

    /// The reason why the link ends when the I/O node says this.
    fn end(said: &[Frame]) -> String {
        let (link, node) = link();
        said.iter().for_each(|frame| say(&node, frame));
        drop(link.0.wait(LONG, |s| s.over.is_some()));
        assert!(link.open().is_err(), "no new jobs");
        link.over().expect("it ends")
    }

    #[test]
    fn an_io_node_that_breaks_a_rule_is_given_up_with_the_reason() {
        let version = Hello { version: "other".into(), kernel: String::new() };
        let other = Frame::json(0, Kind::Hello, &version).expect("JSON");
        assert!(end(&[other]).contains("its version is other"));
        assert!(end(&[Frame::numbers(0, Kind::Asked, &[0])]).contains("greets first"));
        assert!(end(&[hello(), hello()]).contains("greets first, and once"));
        assert!(end(&[hello(), Frame::new(1, Kind::Launch, [])]).contains("Launch from an I/O node"));
        assert!(end(&[hello(), Frame::new(0, Kind::Asked, [1, 2, 3])]).contains("Asked of 3 bytes"));
        assert!(end(&[hello(), Frame::new(0, Kind::Failed, *b"{")]).contains("EOF"));
        let (link, node) = link();
        drop(node);
        drop(link.0.wait(LONG, |s| s.over.is_some()));
        assert_eq!(link.over().as_deref(), Some("it has ended"));
    }

    #[test]
    fn only_its_own_nodes_change_by_what_it_says() {
        let (link, node) = link();
        let own = NodeLink::new(3, 16 << 20, 16 << 20, 0).expect("a link");
        link.attach(own.clone());
        say(&node, &hello());
        assert!(link.wait_ready(LONG));
        assert_eq!(link.kernel().as_deref(), Some("6.1"));
        let failed = Failed { node: 3, why: "x".repeat(5000) };
        for frame in [
            Frame::numbers(0, Kind::Asked, &[99]),
            Frame::numbers(0, Kind::Asked, &[3]),
            Frame::json(0, Kind::Failed, &failed).expect("JSON"),
            Frame::new(77, Kind::Stdout, *b"of no job"),
            Frame::numbers(0, Kind::Renewed, &[5]),
        ] {
            say(&node, &frame);
        }
        drop(link.0.wait(LONG, |s| s.renewed.contains(&5)));
        assert!(own.has_asked());
        assert_eq!(own.failed().map(str::len), Some(200), "no longer than a line");
        let answers = std::thread::spawn(move || {
            let frame = Frame::read(&mut &node).expect("a frame").expect("one");
            assert_eq!((frame.kind, frame.get::<1>().expect("a number")), (Kind::Renew, [3]));
            say(&node, &Frame::numbers(0, Kind::Renewed, &[3]));
            node
        });
        let new = NodeLink::new(3, 16 << 20, 16 << 20, 0).expect("a link");
        link.renew(new.clone(), LONG).expect("renewed");
        let node = answers.join().expect("no panic");
        say(&node, &Frame::numbers(0, Kind::Asked, &[3]));
        drop(node);
        drop(link.0.wait(LONG, |s| s.over.is_some()));
        assert!(new.has_asked() && new.failed().is_none(), "the old link is forgotten");
        assert!(link.renew(new, LONG).is_err(), "it has ended");
    }

    #[test]
    fn jobs_speak_with_their_relays_and_end_with_them() {
        let (link, node) = link();
        let [one, other] = [link.open().expect("a relay").0, link.open().expect("a relay").0];
        say(&one, &Frame::new(99, Kind::Task, *b"early"));
        say(&node, &hello());
        let frame = Frame::read(&mut &node).expect("a frame").expect("one");
        assert_eq!((frame.job, frame.kind), (1, Kind::Task), "the job is the link's to say");
        say(&node, &Frame::new(2, Kind::Stdout, *b"second"));
        say(&node, &Frame::new(1, Kind::Report, *b"first"));
        let heard = Frame::read(&mut &one).expect("a frame").expect("one");
        assert_eq!((heard.kind, &heard.bytes[..]), (Kind::Report, &b"first"[..]));
        assert_eq!(Frame::read(&mut &other).expect("a frame").expect("one").bytes, b"second");
        // a relay that ends, and one that says what none may say
        drop(one);
        say(&other, &Frame::numbers(0, Kind::Renew, &[3]));
        let mut ended: Vec<(u32, Kind)> = (0..2)
            .map(|_| Frame::read(&mut &node).expect("a frame").expect("one"))
            .map(|f| (f.job, f.kind))
            .collect();
        ended.sort_by_key(|(job, _)| *job);
        assert_eq!(ended, [(1, Kind::End), (2, Kind::End)]);
        assert!(Frame::read(&mut &other).expect("the end").is_none());
        let (third, own) = link.open().expect("a relay");
        own.shutdown(Shutdown::Both).expect("it is there");
        let ended = Frame::read(&mut &node).expect("a frame").expect("one");
        assert_eq!((ended.job, ended.kind), (3, Kind::End), "whatever the relay does");
        let (fourth, _own) = link.open().expect("a relay");
        link.close();
        assert!(
            matches!(Frame::read(&mut &third), Ok(None)) && matches!(Frame::read(&mut &fourth), Ok(None)),
            "it ends with the link"
        );
    }

    #[test]
    fn a_flood_of_output_ends_the_link_and_not_the_owner() {
        let (link, node) = link();
        let _relay = link.open().expect("a relay");
        say(&node, &hello());
        let frame = Frame::new(1, Kind::Stdout, vec![0; super::super::wire::MOST]);
        for _ in 0..=QUEUE / frame.bytes.len() + 2 {
            say(&node, &frame);
        }
        drop(link.0.wait(LONG, |s| s.over.is_some()));
        assert!(link.over().is_some_and(|why| why.contains("more output")));
    }
}
