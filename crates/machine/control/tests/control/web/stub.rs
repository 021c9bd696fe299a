// SPDX-License-Identifier: MIT OR Apache-2.0
//! A control daemon whose partition is played by the test: a prepared database names the test as the process that owns the
//! nodes, and a thread answers for them. So states and events are what a test wants, without an emulator.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use colony_control_api::Client;
use colony_control_api::api::{IoNodeKind, MachineRequest, Network, NetworkRequest, NodeRequest};
use colony_node::task::TaskId;
use serde_json::{Value, json};

pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_colony-control");

/// What a partition would know.
#[derive(Debug, Default)]
struct Played {
    nodes: Mutex<Vec<String>>,
    jobs: Mutex<Vec<u64>>,
    /// Every start of a job.
    launched: Mutex<Vec<u64>>,
    news: Mutex<Vec<Value>>,
    added: Condvar,
    /// Questions about the state are not answered, as by a process that hangs.
    hangs: AtomicBool,
    /// Questions about the state that came meanwhile.
    unanswered: AtomicUsize,
}

/// A daemon that ends with the test.
pub(crate) struct Daemon {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) client: Client,
    child: Child,
    played: Arc<Played>,
}

pub(crate) fn run(folder: &Path) -> Child {
    let mut command = Command::new(DAEMON);
    command.arg("--folder").arg(folder).stdin(Stdio::null()).spawn().expect("it runs")
}

impl Daemon {
    /// A machine that is off.
    pub(crate) fn off() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let child = run(folder.path());
        let client = Client::new(folder.path(), Path::new(DAEMON)).expect("a client");
        let mut daemon = Self { folder, client, child, played: Arc::default() };
        daemon.wait();
        daemon
    }

    /// A machine whose partition of all nodes is ready.
    pub(crate) fn ready(shape: &str, pset: u32) -> Self {
        let mut daemon = Self::off();
        let shape: colony_model::Shape = shape.parse().expect("a shape");
        daemon.client.set_up(&MachineRequest { shape, partition: None, allocation: None }).expect("set up");
        let nodes = NodeRequest {
            pset,
            cpus: 1,
            memory_mib: 16,
            io_nodes: IoNodeKind::default(),
            io_exports: vec![],
        };
        let request = json!({ "shape": shape.to_string(), "origin": [0, 0, 0], "nodes": nodes });
        let name =
            daemon.client.add_partition(&serde_json::from_value(request).expect("right")).expect("made").name;
        daemon.kill();
        *daemon.played.nodes.lock().expect("ours") = vec!["ready".to_owned(); shape.nodes() as usize];
        let place = daemon.folder.path().join("partitions").join(&name);
        std::fs::create_dir_all(&place).expect("made");
        let listener = UnixListener::bind(place.join("socket")).expect("a socket");
        let played = daemon.played.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let played = played.clone();
                std::thread::spawn(move || played.answer(stream));
            }
        });
        let own = TaskId::of(std::process::id().cast_signed()).expect("this process");
        let database =
            rusqlite::Connection::open(daemon.folder.path().join("machine.db")).expect("a database");
        let text = "UPDATE partitions SET state = 'ready', boot_s = 1.5, pid = ?, pid_start = ?";
        database.execute(text, rusqlite::params![own.tid, own.start_ticks]).expect("stored");
        daemon.revive();
        daemon
    }

    fn wait(&mut self) {
        while !self.client.is_served() {
            let ended = self.child.try_wait().expect("ours");
            assert!(ended.is_none(), "the daemon has ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the daemon again that was killed.
    pub(crate) fn revive(&mut self) {
        self.child = run(self.folder.path());
        self.wait();
    }

    pub(crate) fn listen(&self) -> Network {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        self.client.open_network(&NetworkRequest { listen, certificate: None, key: None }).expect("opened")
    }

    pub(crate) fn token(&self) -> String {
        self.client.token(false).expect("a token").token
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("api")
    }

    /// A node has another state.
    pub(crate) fn set(&self, node: usize, state: &str) {
        self.played.nodes.lock().expect("ours")[node] = state.to_owned();
    }

    /// From now on, the partition does not answer questions about its state, or answers them again.
    pub(crate) fn hang(&self, hangs: bool) {
        self.played.hangs.store(hangs, Ordering::SeqCst);
    }

    /// Questions about the state that the partition has not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.played.unanswered.load(Ordering::SeqCst)
    }

    /// An event of a node happens.
    pub(crate) fn event(&self, node: usize, severity: &str, code: &str, message: &str) {
        let event =
            json!({ "severity": severity, "node": node, "code": code, "message": message, "job": null });
        self.played.add(json!({ "ras": event }));
    }

    /// A job is over, with this code; whether a rank had begun, and whether the machine has failed.
    pub(crate) fn end_job(&self, job: u64, code: i32, has_begun: bool, by_machine: bool) {
        let error = (code != 0).then_some("node 3 died");
        let ended = json!({ "job": job, "code": code, "error": error, "has_begun": has_begun, "by_machine": by_machine });
        self.played.add(json!({ "job-ended": ended }));
    }

    /// Waits until so many jobs have been started, each start counted.
    pub(crate) fn wait_launched(&self, launches: usize) {
        let began = std::time::Instant::now();
        while self.played.launched.lock().expect("ours").len() < launches {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.played.launched.lock().expect("ours"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All starts of jobs so far, in order.
    pub(crate) fn launched(&self) -> Vec<u64> {
        self.played.launched()
    }

    /// The jobs that have been started.
    pub(crate) fn jobs(&self) -> Vec<u64> {
        self.played.jobs.lock().expect("ours").clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Played {
    fn launched(&self) -> Vec<u64> {
        self.launched.lock().expect("ours").clone()
    }

    /// Something happens.
    fn add(&self, what: Value) {
        let mut news = self.news.lock().expect("ours");
        let (number, time) = (news.len() + 1, colony_control_api::api::now());
        news.push(json!({ "number": number, "time": time, "news": what }));
        self.added.notify_all();
    }

    /// The daemon has stored the news up to this number: the jobs whose ends are among them are not known any more.
    fn forget(&self, number: usize) {
        let (news, launched) = (self.news.lock().expect("ours"), self.launched());
        let ends =
            |job: u64| news.iter().take(number).filter(|n| n["news"]["job-ended"]["job"] == job).count();
        let starts = |job: u64| launched.iter().filter(|other| **other == job).count();
        self.jobs.lock().expect("ours").retain(|job| ends(*job) < starts(*job));
    }

    fn answer(&self, stream: UnixStream) {
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        while let Some(Ok(line)) = lines.next() {
            let ask: Value = serde_json::from_str(&line).expect("JSON");
            if let Some(after) = ask["listen"]["after"].as_u64() {
                return self.tell(stream, after as usize);
            }
            if let Some(job) = ask["launch"]["job"].as_u64() {
                self.jobs.lock().expect("ours").push(job);
                self.launched.lock().expect("ours").push(job);
                self.add(json!({ "job-began": { "job": job } }));
            }
            if let Some(number) = ask["stored"]["news"].as_u64() {
                self.forget(number as usize);
            }
            if ask == "status" && self.hangs.load(Ordering::SeqCst) {
                self.unanswered.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let nodes = self.nodes.lock().expect("ours").clone();
            let jobs = self.jobs.lock().expect("ours").clone();
            let status =
                json!({ "state": "ready", "error": null, "boot_s": 1.5, "nodes": nodes, "jobs": jobs });
            let answer = if ask == "status" { json!({ "status": status }) } else { json!("done") };
            if (&stream).write_all(format!("{answer}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn tell(&self, mut stream: UnixStream, mut told: usize) {
        loop {
            let news = self.news.lock().expect("ours");
            let news = self.added.wait_while(news, |news| news.len() <= told).expect("ours");
            let line = format!("{}\n", news[told]);
            drop(news);
            if stream.write_all(line.as_bytes()).is_err() {
                return;
            }
            told += 1;
        }
    }
}

/// A connection that hangs after this long is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// All that comes from a stream until its end.
pub(crate) fn rest(mut stream: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// What the local socket answers to bytes.
pub(crate) fn at_socket(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let _ = stream.write_all(bytes);
    rest(&mut stream as &mut dyn std::io::Read)
}
