// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon as a service: a control system tells it over a local socket what to do, in lines of JSON.
//!
//! | line | answer |
//! |---|---|
//! | `{"launch": {"spec": {…}, "nodes": [0, 1]}}`, with three descriptors for the streams, or none | `{"job": 1}` |
//! | `{"personality": {"node": 0, "encoded": "434f…"}}`: 256 bytes in hexadecimal | `{"done": true}` |
//! | `{"signal": {"job": 1, "signal": 15}}` | `{"done": true}` |
//! | `{"wait": {"job": 1}}` | `{"outcome": {…}}` |
//! | `{"nodes": {}}` | `{"nodes": [{"number": 0, "state": "free"}, …]}` |
//! | `{"renew": {"node": 0}}`: a new link for a node that is lost | `{"done": true}` |
//!
//! An error is `{"error": "…"}`. A client that may connect may run jobs as any user that the daemon can become: the
//! socket is its owner's only.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Ciod, CiodError, Job, JobError, JobSpec, Listener, NodeLink, NodeState, Streams, node};
use colony_node::rights;

/// Bytes of a line at most.
const LINE: usize = 16 << 20;

/// Jobs that have ended and are remembered, though nobody asks how.
const UNASKED: usize = 1000;

/// A request of a control system.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// Start a job on these nodes.
    Launch {
        /// Its description.
        spec: Box<JobSpec>,
        /// Numbers of the nodes.
        nodes: Vec<u32>,
    },
    /// Give a node its personality.
    Personality {
        /// Number of the node.
        node: u32,
        /// The encoded personality in hexadecimal digits.
        encoded: String,
    },
    /// Send a signal to all processes of a job.
    Signal {
        /// Its number.
        job: u64,
        /// Linux signal number.
        signal: i32,
    },
    /// Wait for the end of a job, which is forgotten then.
    Wait {
        /// Its number.
        job: u64,
    },
    /// List the nodes with their states.
    Nodes {},
    /// A new link for a node that is lost.
    Renew {
        /// Its number.
        node: u32,
    },
}

/// A service; it ends with its process.
pub struct Service {
    ciod: Ciod,
    folder: PathBuf,
    window: u64,
    /// Sockets at which virtual machines find the windows of the nodes.
    listeners: Mutex<BTreeMap<u32, Listener>>,
    jobs: Mutex<(u64, BTreeMap<u64, Arc<Job>>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// A service for so many nodes, which find their windows at `folder/node-N`.
    ///
    /// # Errors
    /// [`CiodError`].
    pub fn new(ciod: Ciod, nodes: u32, window: u64, folder: PathBuf) -> Result<Arc<Self>, CiodError> {
        let service = Self { ciod, folder, window, listeners: Mutex::default(), jobs: Mutex::default() };
        for n in 0..nodes {
            service.attach(&mut lock(&service.listeners), n)?;
        }
        Ok(Arc::new(service))
    }

    /// Attaches a node, and listens for its virtual machine.
    fn attach(&self, listeners: &mut BTreeMap<u32, Listener>, number: u32) -> Result<(), CiodError> {
        let link = self.ciod.attach(number, self.window)?;
        // the old socket first, for the new one has the same place
        listeners.remove(&number);
        let path = self.folder.join(format!("node-{number}"));
        let listener =
            link.listen(&path).map_err(CiodError::system(format!("the socket {}", path.display())))?;
        listeners.insert(number, listener);
        Ok(())
    }

    /// Serves who connects to `path`, each in its own thread.
    ///
    /// # Errors
    /// If the socket cannot be made; otherwise it does not return.
    pub fn run(self: &Arc<Self>, path: &Path) -> io::Result<()> {
        let socket = node::private_socket(path)?;
        while let Some(stream) = node::accept(&socket) {
            let service = self.clone();
            // without a thread, who asks hears that nobody is there
            let _ = Builder::new().spawn(move || {
                // who hangs up is gone; its jobs go on
                let _ = service.serve(&stream);
            });
        }
        Ok(())
    }

    fn serve(&self, mut stream: &UnixStream) -> io::Result<()> {
        let mut lines = Lines::default();
        while let Some((line, fds)) = lines.next(stream)? {
            let answer = serde_json::from_slice(&line).map_err(|e| e.to_string());
            let answer = answer.and_then(|ask| self.answer(ask, fds));
            let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
            writeln!(stream, "{answer}")?;
        }
        Ok(())
    }

    fn answer(&self, ask: Ask, fds: Vec<OwnedFd>) -> Result<Value, String> {
        let text = |e: &dyn std::error::Error| e.to_string();
        match ask {
            Ask::Launch { spec, nodes } => {
                let streams = streams(fds).map_err(|e| text(&e))?;
                let job = self.ciod.launch(*spec, &nodes, streams).map_err(|e| text(&e))?;
                Ok(json!({ "job": self.add(job) }))
            }
            Ask::Personality { node, encoded } => {
                let bytes = bytes(&encoded).ok_or("a personality is given in hexadecimal digits")?;
                let personality = colony_model::Personality::decode(&bytes).map_err(|e| text(&e))?;
                self.ciod.give(node, &personality).map_err(|e| text(&e))?;
                Ok(json!({ "done": true }))
            }
            Ask::Signal { job, signal } => {
                self.job(job)?.signal(signal).map_err(|e| text(&e))?;
                Ok(json!({ "done": true }))
            }
            Ask::Wait { job: number } => {
                let job = self.job(number)?;
                let outcome = job.wait();
                lock(&self.jobs).1.remove(&number);
                Ok(json!({ "outcome": outcome, "code": outcome.code(), "text": outcome.to_string() }))
            }
            Ask::Nodes {} => {
                let state = |link: &NodeLink| match link.state() {
                    NodeState::Free => "free",
                    NodeState::Busy => "busy",
                    NodeState::Lost => "lost",
                };
                let all = self.ciod.nodes();
                let all: Vec<_> =
                    all.iter().map(|link| json!({ "number": link.number(), "state": state(link) })).collect();
                Ok(json!({ "nodes": all }))
            }
            Ask::Renew { node } => {
                // locked from here on: of two requests, the second finds the new link
                let mut listeners = lock(&self.listeners);
                match self.ciod.node(node).map(|link| link.state()) {
                    None => return Err(JobError::NoNode(node).to_string()),
                    Some(NodeState::Lost) => self.attach(&mut listeners, node).map_err(|e| text(&e))?,
                    Some(_) => return Err(format!("node {node} is not lost")),
                }
                Ok(json!({ "done": true }))
            }
        }
    }

    /// Keeps a job until somebody asks how it ended; its nodes are free when it has, whoever asks.
    fn add(&self, job: Job) -> u64 {
        let job = Arc::new(job);
        let (next, jobs) = &mut *lock(&self.jobs);
        let ended = jobs.iter().filter(|(_, job)| job.has_ended()).map(|(&n, _)| n);
        let ended: Vec<u64> = ended.collect();
        for old in &ended[..ended.len().saturating_sub(UNASKED)] {
            jobs.remove(old);
        }
        *next += 1;
        jobs.insert(*next, job);
        *next
    }

    fn job(&self, number: u64) -> Result<Arc<Job>, String> {
        lock(&self.jobs).1.get(&number).cloned().ok_or(format!("there is no job {number}"))
    }
}

/// Bytes from hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |&d: &u8| char::from(d).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8);
    digits.as_bytes().chunks(2).map(pair).collect()
}

/// The streams of a job from what came with its line.
fn streams(fds: Vec<OwnedFd>) -> io::Result<Streams> {
    let none =
        || Ok::<_, io::Error>(std::fs::File::options().read(true).write(true).open("/dev/null")?.into());
    match <[OwnedFd; 3]>::try_from(fds) {
        Ok([stdin, stdout, stderr]) => Ok(Streams { stdin, stdout, stderr }),
        Err(fds) if fds.is_empty() => Ok(Streams { stdin: none()?, stdout: none()?, stderr: none()? }),
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "a job has three streams, or none")),
    }
}

/// Lines of a stream, with the descriptors that came with them.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Lines {
    fn next(&mut self, stream: &UnixStream) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&b| b == b'\n') {
                let rest = self.bytes.split_off(end + 1);
                let line = std::mem::replace(&mut self.bytes, rest);
                return Ok(Some((line, std::mem::take(&mut self.fds))));
            }
            if self.bytes.len() > LINE || self.fds.len() > 3 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut some = [0; 4096];
            let (count, fds) = rights::receive(stream, &mut some)?;
            self.fds.extend(fds);
            if count == 0 {
                return Ok(None);
            }
            self.bytes.extend_from_slice(&some[..count]);
        }
    }
}
