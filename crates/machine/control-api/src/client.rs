// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of the control daemon.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::ClientError;
use crate::api::{
    Event, Job, JobRequest, Machine, MachineRequest, Node, Partition, PartitionRequest, Problem,
    SignalRequest,
};
use crate::folder::{SOCKET, UP, check_length};

/// Longest wait for a daemon that starts.
const START: Duration = Duration::from_secs(20);

/// Tries of a request while the daemon is killed and started again.
const TRIES: u32 = 10;
/// From a request that failed with the daemon to the next try.
const PAUSE: Duration = Duration::from_millis(20);

/// A client. Each request has a connection of its own. If the daemon is killed meanwhile, the client starts it again and repeats
/// the request: requests are idempotent.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    folder: PathBuf,
    /// The daemon's program.
    daemon: PathBuf,
    runtime: Runtime,
}

impl Client {
    /// A client of the daemon that serves this folder. `daemon` is its program.
    ///
    /// # Errors
    /// A path that is too long.
    pub fn new(folder: &Path, daemon: &Path) -> Result<Self, ClientError> {
        let folder = std::path::absolute(folder).map_err(ClientError::io("the folder of the machine"))?;
        check_length(&folder)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ClientError::io("starting the client"))?;
        Ok(Self { socket: folder.join(SOCKET), folder, daemon: daemon.to_owned(), runtime })
    }

    /// Another client of the same daemon, for another thread.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn again(&self) -> Result<Self, ClientError> {
        Self::new(&self.folder, &self.daemon)
    }

    /// The daemon's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns `true` if a daemon serves the folder.
    #[must_use]
    pub fn is_served(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
    }

    /// Returns `true` if the machine has been set up and not been switched off, so that its daemon should run.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.folder.join(UP).exists()
    }

    /// Starts the daemon, unless one serves the folder. It goes on when this process ends.
    ///
    /// # Errors
    /// The daemon's program is not there, or ends at once.
    pub fn start_daemon(&self) -> Result<(), ClientError> {
        if self.is_served() {
            return Ok(());
        }
        let program = &self.daemon;
        std::fs::create_dir_all(&self.folder).map_err(ClientError::io(self.folder.display().to_string()))?;
        let log = self.folder.join("log");
        let file = std::fs::File::options().append(true).create(true).open(&log);
        let file = file.map_err(ClientError::io(log.display().to_string()))?;
        let written = file.metadata().map_or(0, |meta| meta.len());
        let mut command = Command::new(program);
        command.arg("--folder").arg(&self.folder).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(file);
        // SAFETY: between fork and exec only one system call is made, and nothing is allocated.
        unsafe {
            use std::os::unix::process::CommandExt as _;
            command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?));
        }
        let started = command.spawn().map_err(ClientError::io(format!("starting {}", program.display())));
        let mut child = started?;
        let began = Instant::now();
        while !self.is_served() {
            let has_ended = child.try_wait().is_ok_and(|status| status.is_some());
            // another process may have started a daemon meanwhile
            if (has_ended && !self.is_served()) || began.elapsed() > START {
                let said = std::fs::read(&log).unwrap_or_default();
                let said = String::from_utf8_lossy(said.get(written as usize..).unwrap_or_default())
                    .trim()
                    .to_owned();
                return Err(ClientError::Failed(format!("the control daemon does not start: {said}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts the daemon again if it was killed.
    ///
    /// # Errors
    /// As [`Client::start_daemon`].
    pub fn revive(&self) -> Result<(), ClientError> {
        if self.is_up() { self.start_daemon() } else { Ok(()) }
    }

    /// Does a request, again if the daemon is killed meanwhile.
    fn repeat<T>(&self, request: impl AsyncFn() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut tries = 1;
        loop {
            match self.runtime.block_on(request()) {
                Err(ClientError::Disconnected(_)) if tries < TRIES && self.is_up() => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                    // a daemon that is killed as it starts is started again
                    self.revive().or_else(|error| if tries < TRIES { Ok(()) } else { Err(error) })?;
                }
                ended => return ended,
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|source| {
            let folder = self.folder.display();
            match source.kind() {
                // the last: the daemon dies while it has not accepted the connection yet
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
                    if self.is_up() =>
                {
                    ClientError::Disconnected(source.to_string())
                }
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::Wrong(format!(
                    "the machine of {folder} is off: `colony machine up` starts it, and --machine names another folder"
                )),
                _ => ClientError::Io { what: format!("the control daemon of {folder}"), source },
            }
        })?;
        let failed = |e: &dyn std::error::Error| ClientError::Disconnected(e.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "colony")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| ClientError::Wrong(e.to_string()))?;
        let response = sender.send_request(request).await.map_err(|e| failed(&e))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|e| failed(&e))?.to_bytes();
        let problem = serde_json::from_slice(&bytes).map(|problem: Problem| problem.error);
        let text = problem.unwrap_or_else(|_| format!("the control daemon answers with status {status}"));
        Err(if status.is_server_error() { ClientError::Failed(text) } else { ClientError::Wrong(text) })
    }

    /// Does a request whose answer is JSON.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ClientError> {
        self.repeat(async || {
            let response = self.send(method.clone(), path, body.clone()).await?;
            let bytes = response.into_body().collect().await;
            let bytes = bytes.map_err(|e| ClientError::Disconnected(e.to_string()))?;
            serde_json::from_slice(&bytes.to_bytes()).map_err(|e| {
                ClientError::Failed(format!(
                    "the answer is not understood: {e}; is the daemon of another version?"
                ))
            })
        })
    }

    /// The machine.
    ///
    /// # Errors
    /// As all requests: [`ClientError`].
    pub fn machine(&self) -> Result<Machine, ClientError> {
        self.ask(Method::GET, "/v1/machine", Vec::new())
    }

    /// Sets up a machine, and begins to boot a partition of all its nodes if that is asked for.
    ///
    /// # Errors
    /// As all requests.
    pub fn set_up(&self, request: &MachineRequest) -> Result<Machine, ClientError> {
        self.ask(Method::POST, "/v1/machine", json(request)?)
    }

    /// Switches the machine off; the daemon ends.
    ///
    /// # Errors
    /// As all requests.
    pub fn down(&self) -> Result<(), ClientError> {
        self.ask::<()>(Method::DELETE, "/v1/machine", Vec::new())?;
        let began = Instant::now();
        while self.socket.exists() && began.elapsed() < START {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Makes a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn add_partition(&self, request: &PartitionRequest) -> Result<Partition, ClientError> {
        self.ask(Method::POST, "/v1/partitions", json(request)?)
    }

    /// A partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn partition(&self, name: &str) -> Result<Partition, ClientError> {
        self.ask(Method::GET, &format!("/v1/partitions/{}", escaped(name)), Vec::new())
    }

    /// Removes a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn remove_partition(&self, name: &str) -> Result<(), ClientError> {
        self.ask(Method::DELETE, &format!("/v1/partitions/{}", escaped(name)), Vec::new())
    }

    /// The nodes of a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn nodes(&self, partition: &str) -> Result<Vec<Node>, ClientError> {
        self.ask(Method::GET, &format!("/v1/partitions/{}/nodes", escaped(partition)), Vec::new())
    }

    /// Begins to boot a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn boot(&self, partition: &str) -> Result<Partition, ClientError> {
        self.ask(Method::POST, &format!("/v1/partitions/{}/boot", escaped(partition)), Vec::new())
    }

    /// Begins to switch a partition off.
    ///
    /// # Errors
    /// As all requests.
    pub fn free(&self, partition: &str) -> Result<Partition, ClientError> {
        self.ask(Method::POST, &format!("/v1/partitions/{}/free", escaped(partition)), Vec::new())
    }

    /// Adds a job to the queue of its partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn submit(&self, request: &JobRequest) -> Result<Job, ClientError> {
        self.ask(Method::POST, "/v1/jobs", json(request)?)
    }

    /// A job.
    ///
    /// # Errors
    /// As all requests.
    pub fn job(&self, id: u64) -> Result<Job, ClientError> {
        self.ask(Method::GET, &format!("/v1/jobs/{id}"), Vec::new())
    }

    /// The last jobs, the newest first.
    ///
    /// # Errors
    /// As all requests.
    pub fn jobs(&self, limit: u32) -> Result<Vec<Job>, ClientError> {
        self.ask(Method::GET, &format!("/v1/jobs?limit={limit}"), Vec::new())
    }

    /// Sends a signal to a job.
    ///
    /// # Errors
    /// As all requests.
    pub fn signal(&self, job: u64, signal: i32) -> Result<(), ClientError> {
        self.ask(Method::POST, &format!("/v1/jobs/{job}/signal"), json(&SignalRequest { signal })?)
    }

    /// Events: `query` is that of `GET /v1/ras`.
    ///
    /// # Errors
    /// As all requests.
    pub fn ras(&self, query: &[(&str, String)]) -> Result<Vec<Event>, ClientError> {
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        self.ask(Method::GET, &format!("/v1/ras?{}", query.join("&")), Vec::new())
    }

    /// Copies the output of a job until the job has ended.
    ///
    /// # Errors
    /// As all requests, and errors of the writers.
    pub fn follow(&self, job: u64, stdout: impl Write, stderr: impl Write) -> Result<(), ClientError> {
        let (out, err) = (Followed::new(stdout), Followed::new(stderr));
        self.repeat(async || {
            let copies = (self.copy(job, "stdout", &out), self.copy(job, "stderr", &err));
            let (one, other) = tokio::join!(copies.0, copies.1);
            one.and(other)
        })
    }

    /// Copies the rest of an output.
    async fn copy<W: Write>(&self, job: u64, stream: &str, to: &Followed<W>) -> Result<(), ClientError> {
        let path = format!("/v1/jobs/{job}/{stream}?from={}", to.copied.get());
        let mut body = self.send(Method::GET, &path, Vec::new()).await?.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| ClientError::Disconnected(e.to_string()))?;
            if let Ok(data) = frame.into_data() {
                to.write(&data).map_err(ClientError::io("writing the output of the job"))?;
            }
        }
        Ok(())
    }
}

/// An output that is copied, and how much of it has been.
struct Followed<W> {
    to: RefCell<W>,
    copied: Cell<u64>,
}

impl<W: Write> Followed<W> {
    fn new(to: W) -> Self {
        Self { to: RefCell::new(to), copied: Cell::new(0) }
    }

    fn write(&self, data: &[u8]) -> io::Result<()> {
        let mut to = self.to.borrow_mut();
        to.write_all(data)?;
        self.copied.set(self.copied.get() + data.len() as u64);
        to.flush()
    }
}

/// A part of a path or of a query, with all but letters, digits and some marks as `%XX`.
pub(crate) fn escaped(text: &str) -> String {
    let mut all = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => all.push(char::from(byte)),
            _ => all.push_str(&format!("%{byte:02X}")),
        }
    }
    all
}

/// The body of a request.
pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(value).map_err(|e| ClientError::Wrong(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_part_of_a_path() {
        assert_eq!(escaped("R00-M0"), "R00-M0");
        assert_eq!(escaped("../a b?"), "..%2Fa%20b%3F");
    }
}
