// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of the control daemon.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::ClientError;
use crate::api::Problem;
use crate::folder::{SOCKET, UP, check_length};
use crate::server::Server;

/// Longest wait for a daemon that starts.
const START: Duration = Duration::from_secs(20);
/// Longest wait for the answer of a daemon on another host.
const ANSWER: Duration = Duration::from_secs(120);
/// Bytes of an answer in JSON, of the head of an answer and of an error at most.
const ANSWER_BYTES: usize = 64 << 20;
const HEAD_BYTES: usize = 64 << 10;
const ERROR_BYTES: usize = 4096;

/// Tries of a request while the daemon is killed and started again.
const TRIES: u32 = 10;
/// From a request that failed with the daemon to the next try, on this host and from another one.
const PAUSE: Duration = Duration::from_millis(20);
const FAR_PAUSE: Duration = Duration::from_millis(500);

/// The daemon of a client.
#[derive(Debug)]
enum Daemon {
    /// On this host, with its socket, its folder and its program.
    Local {
        socket: PathBuf,
        folder: PathBuf,
        program: PathBuf,
    },
    Far(Server),
}

/// A connection to either.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A client. Each request has a connection of its own. If the daemon is killed meanwhile, the client starts it again, or waits
/// for one on another host, and repeats the request: requests are idempotent.
#[derive(Debug)]
pub struct Client {
    daemon: Daemon,
    runtime: Runtime,
    /// Whether the daemon on another host has answered before.
    reached: AtomicBool,
    /// The daemon, if this client has started it.
    started: Mutex<Option<Child>>,
}

impl Client {
    /// A client of the daemon that serves this folder. `daemon` is its program.
    ///
    /// # Errors
    /// A path that is too long.
    pub fn new(folder: &Path, daemon: &Path) -> Result<Self, ClientError> {
        let folder = std::path::absolute(folder).map_err(ClientError::io("the folder of the machine"))?;
        check_length(&folder)?;
        Self::of(Daemon::Local { socket: folder.join(SOCKET), folder, program: daemon.to_owned() })
    }

    /// A client of a daemon on another host.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn far(server: Server) -> Result<Self, ClientError> {
        Self::of(Daemon::Far(server))
    }

    fn of(daemon: Daemon) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ClientError::io("starting the client"))?;
        Ok(Self { daemon, runtime, reached: AtomicBool::new(false), started: Mutex::default() })
    }

    /// Another client of the same daemon, for another thread.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn again(&self) -> Result<Self, ClientError> {
        match &self.daemon {
            Daemon::Local { folder, program, .. } => Self::new(folder, program),
            Daemon::Far(server) => {
                let again = Self::far(server.clone())?;
                again.reached.store(self.reached.load(Relaxed), Relaxed);
                Ok(again)
            }
        }
    }

    /// The daemon's socket; `None` for a daemon on another host.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match &self.daemon {
            Daemon::Local { socket, .. } => Some(socket),
            Daemon::Far(_) => None,
        }
    }

    /// Returns `true` if a daemon serves the folder.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.socket().is_some_and(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok())
    }

    /// Returns `true` if the machine has been set up and not been switched off, so that its daemon should run. Of a machine on
    /// another host, a client knows no more than whether its daemon has answered.
    #[must_use]
    pub fn is_up(&self) -> bool {
        match &self.daemon {
            Daemon::Local { folder, .. } => folder.join(UP).exists(),
            Daemon::Far(_) => self.reached.load(Relaxed),
        }
    }

    /// Starts the daemon, unless one serves the folder. It goes on when this process ends.
    ///
    /// # Errors
    /// The daemon's program is not there, or ends at once. A daemon on another host.
    pub fn start_daemon(&self) -> Result<(), ClientError> {
        self.start(false)
    }

    /// Starts the daemon; `again`: only if the machine is still up when no other daemon serves the folder.
    fn start(&self, again: bool) -> Result<(), ClientError> {
        if self.is_served() {
            return Ok(());
        }
        let Daemon::Local { folder, program, .. } = &self.daemon else {
            let text = "a machine is started on its own host only: `colony machine up` there";
            return Err(ClientError::Wrong(text.to_owned()));
        };
        std::fs::create_dir_all(folder).map_err(ClientError::io(folder.display().to_string()))?;
        let log = folder.join("log");
        let file = std::fs::File::options().append(true).create(true).open(&log);
        let file = file.map_err(ClientError::io(log.display().to_string()))?;
        let written = file.metadata().map_or(0, |meta| meta.len());
        let mut command = Command::new(program);
        command.arg("--folder").arg(folder).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(file).args(again.then_some("--if-up"));
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
            if has_ended && again && !self.is_up() {
                return Ok(());
            }
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
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// Ends the daemon that this client has started, unless a machine is up: a machine that is refused leaves nothing behind.
    /// Commands start a daemon again whose machine another client has set up meanwhile.
    pub fn end_unused_daemon(&self) {
        let child = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut child) = child.filter(|_| !self.is_up()) else { return };
        // a signal: it removes its socket
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        if nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).is_ok() {
            let _ = child.wait();
        }
    }

    /// Waits until a daemon that ends has removed its socket.
    pub(crate) fn wait_gone(&self) {
        let began = Instant::now();
        while self.socket().is_some_and(Path::exists) && began.elapsed() < START {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts the daemon again if it was killed. One on another host is started by others.
    ///
    /// # Errors
    /// As [`Client::start_daemon`].
    pub fn revive(&self) -> Result<(), ClientError> {
        match &self.daemon {
            Daemon::Local { .. } if self.is_up() => self.start(true),
            _ => Ok(()),
        }
    }

    /// Does a request, again if the daemon is killed meanwhile.
    fn repeat<T>(&self, request: impl AsyncFn() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut tries = 1;
        loop {
            match self.runtime.block_on(request()) {
                Err(ClientError::Disconnected(_)) if tries < TRIES && self.is_up() => {
                    tries += 1;
                    std::thread::sleep(if self.socket().is_some() { PAUSE } else { FAR_PAUSE });
                    // a daemon that is killed as it starts is started again
                    self.revive().or_else(|error| if tries < TRIES { Ok(()) } else { Err(error) })?;
                }
                ended => return ended,
            }
        }
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, ClientError> {
        let (socket, folder) = match &self.daemon {
            Daemon::Local { socket, folder, .. } => (socket, folder.display()),
            Daemon::Far(server) => return Ok(Box::new(server.connect(self.reached.load(Relaxed)).await?)),
        };
        let stream = UnixStream::connect(socket).await.map_err(|source| match source.kind() {
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
        })?;
        Ok(Box::new(stream))
    }

    /// The answer to a request, whose body is still to come.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        self.in_time(self.send_now(method, path, body)).await
    }

    /// Waits for an answer: of a daemon on another host, no longer than a limit.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let Daemon::Far(server) = &self.daemon else { return answer.await };
        timeout(ANSWER, answer).await.unwrap_or_else(|_| {
            let (at, limit) = (server.authority(), ANSWER.as_secs());
            Err(ClientError::Failed(format!("{at} has not answered within {limit} s")))
        })
    }

    async fn send_now(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES)
            .handshake(stream)
            .await
            .map_err(|e| self.failed(&e))?;
        tokio::spawn(connection);
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", "application/json");
        request = match &self.daemon {
            Daemon::Local { .. } => request.header("host", "colony"),
            Daemon::Far(server) => {
                request.header("host", server.authority()).header("authorization", server.bearer())
            }
        };
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|e| ClientError::Wrong(e.to_string()))?;
        let response = sender.send_request(request).await.map_err(|e| self.failed(&e))?;
        let status = response.status();
        if status.is_success() {
            self.reached.store(true, Relaxed);
            return Ok(response);
        }
        let problem = self.whole(response).await.map(|bytes| serde_json::from_slice(&bytes));
        let text = match problem {
            Ok(Ok(Problem { error })) => error.chars().take(ERROR_BYTES).collect(),
            _ => format!("the control daemon answers with status {status}"),
        };
        Err(if status.is_server_error() { ClientError::Failed(text) } else { ClientError::Wrong(text) })
    }

    /// The body of an answer.
    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
        body.map(Collected::to_bytes).map_err(|e| match e.downcast::<hyper::Error>() {
            Ok(error) => self.failed(&error),
            Err(_) => ClientError::Failed(format!("the answer has more than {} MiB", ANSWER_BYTES >> 20)),
        })
    }

    /// What has gone wrong with a connection.
    fn failed(&self, error: &hyper::Error) -> ClientError {
        match &self.daemon {
            Daemon::Far(server) if error.is_parse() || error.is_parse_too_large() => ClientError::Failed(
                format!("{} does not speak as a control daemon: {error}", server.authority()),
            ),
            _ => ClientError::Disconnected(error.to_string()),
        }
    }

    /// Does a request whose answer is JSON.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ClientError> {
        self.repeat(async || {
            let send = self.send_now(method.clone(), path, body.clone());
            let bytes = self.in_time(async { self.whole(send.await?).await }).await?;
            serde_json::from_slice(&bytes).map_err(|e| {
                ClientError::Failed(format!(
                    "the answer is not understood: {e}; is the daemon of another version?"
                ))
            })
        })
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
            let frame = frame.map_err(|e| self.failed(&e))?;
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
