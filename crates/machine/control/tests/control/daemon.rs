// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control daemon as its operators and hostile clients meet it. Nodes are not booted here: the command's tests do that.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use colony_control_api::api::{
    Holder, IoNodeKind, MachineRequest, NodeRequest, PartitionRequest, RightsRequest,
};
use colony_control_api::{Client, ClientError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proptest::prelude::*;

const DAEMON: &str = env!("CARGO_BIN_EXE_colony-control");

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn run(folder: &Path) -> Output {
    Command::new(DAEMON).arg("--folder").arg(folder).stdin(Stdio::null()).output().expect("it runs")
}

/// A daemon that ends with the test.
struct Daemon {
    child: Child,
    client: Client,
    socket: PathBuf,
}

impl Daemon {
    fn start(folder: &Path) -> Self {
        let child =
            Command::new(DAEMON).arg("--folder").arg(folder).stdin(Stdio::null()).spawn().expect("it runs");
        let client = Client::new(folder, Path::new(DAEMON)).expect("a client");
        while !client.is_served() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, client, socket: folder.join("api") }
    }

    /// Sends bytes, and returns what comes back until the daemon closes the connection. The own end stays open: a client that
    /// closes it has hung up, and gets no answer if the daemon sees that first.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        // a daemon that has heard enough may have closed its end
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        self.raw(
            format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn error(result: Result<impl Sized, ClientError>) -> String {
    match result {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it succeeds"),
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_refused_with_the_reason() {
    let place = folder();
    let file = place.path().join("file");
    std::fs::write(&file, b"x").expect("written");
    let long = place.path().join("a".repeat(100));
    for (folder, said) in
        [(file.as_path(), "file"), (&long, "shorter path"), (Path::new("/proc/no"), "/proc/no")]
    {
        let output = run(folder);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && text.contains(said), "{text}");
    }
    let daemon = Daemon::start(place.path());
    let text = String::from_utf8_lossy(&run(place.path()).stderr).into_owned();
    assert!(text.contains("serves") && text.contains("already"), "{text}");
    drop(daemon);
    // without the log of a daemon before, which would repair it
    let place = folder();
    let damaged = b"SQLite format 3\0 and then nothing of the kind, for long";
    std::fs::write(place.path().join("machine.db"), damaged).expect("written");
    let text = String::from_utf8_lossy(&run(place.path()).stderr).into_owned();
    assert!(text.contains("machine.db"), "{text}");
}

#[test]
fn the_daemon_keeps_seven_capabilities_of_root_and_makes_no_call_that_it_does_not_need() {
    let place = folder();
    let daemon = Daemon::start(place.path());
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).expect("it runs");
    let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line}: {text}");
    has("NoNewPrivs:\t1");
    has("Seccomp:\t2");
    if nix::unistd::geteuid().is_root() {
        // CAP_CHOWN, DAC_READ_SEARCH, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE: docs/users.md
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            has(&format!("{set}:\t00000000000005e5"));
        }
        for set in ["CapInh", "CapAmb"] {
            has(&format!("{set}:\t0000000000000000"));
        }
    }
}

#[test]
fn a_daemon_ends_by_a_signal_and_leaves_no_socket() {
    let place = folder();
    let mut daemon = Daemon::start(place.path());
    kill(Pid::from_raw(daemon.child.id() as i32), Signal::SIGTERM).expect("it runs");
    assert!(daemon.child.wait().expect("it ends").success());
    assert!(!daemon.socket.exists());
    assert!(error(daemon.client.machine()).contains("is off"));
}

#[test]
fn a_daemon_that_is_started_again_ends_if_the_machine_was_switched_off_meanwhile() {
    let folder = folder();
    // the client that starts it has seen the machine up, and the daemon that switched it off has ended since
    let mut command = Command::new(DAEMON);
    command.arg("--folder").arg(folder.path()).arg("--if-up").stdin(Stdio::null());
    let output = command.output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(!folder.path().join("api").exists());
}

fn export(text: &str) -> colony_ciod::Export {
    text.parse().expect("one")
}

#[test]
fn impossible_requests_are_refused_and_change_nothing() {
    let place = folder();
    let daemon = Daemon::start(place.path());
    let client = &daemon.client;
    assert!(error(client.machine()).contains("no machine is set up"));
    let node =
        NodeRequest { pset: 8, cpus: 1, memory_mib: 16, io_nodes: IoNodeKind::default(), io_exports: vec![] };
    let up = |shape: &str, partition| {
        client.set_up(&MachineRequest { shape: shape.parse().expect("a shape"), partition, allocation: None })
    };
    assert!(error(up("3x3x3", None)).contains("3x3x3 cannot be built"));
    for (node, said) in [
        (NodeRequest { pset: 7, ..node.clone() }, "a pset of 7"),
        (NodeRequest { pset: 64, ..node.clone() }, "do not fit"),
        (NodeRequest { cpus: 99, ..node.clone() }, "99"),
        (NodeRequest { memory_mib: 17, ..node.clone() }, "17 MiB"),
        (NodeRequest { memory_mib: u64::MAX, ..node.clone() }, "memory"),
        (NodeRequest { io_exports: vec![export("/a")], ..node.clone() }, "nothing is exported to I/O nodes"),
        (
            NodeRequest {
                io_exports: vec![export("/a"), export("/a/b")],
                io_nodes: IoNodeKind::Linux,
                ..node.clone()
            },
            "/a and /a/b cannot both be exported",
        ),
    ] {
        let text = error(up("4x2x2", Some(node)));
        assert!(text.contains(said), "{text}");
    }
    assert!(error(client.machine()).contains("no machine is set up"), "nothing was stored");
    up("8x8x8", None).expect("set up");
    let part = |name: &str, shape: &str, origin| {
        let (name, shape) = (Some(name.to_owned()), shape.parse().expect("a shape"));
        client.add_partition(&PartitionRequest { name, shape, origin, nodes: node.clone() })
    };
    part("a", "4x4x4", None).expect("made");
    for (result, said) in [
        (part("a", "2x2x2", None), "a"),
        (part("b", "4x4x4", Some([0, 0, 0])), "overlap"),
        (part("b", "4x4x4", Some([1, 0, 0])), "multiple of 4"),
        (part("b", "8x8x8", None), "448 of 512 nodes are free"),
        (part("b", "16x8x8", None), "8x8x8"),
        (part("../b", "2x2x2", None), "cannot name a partition"),
    ] {
        let text = error(result);
        assert!(text.contains(said), "{text}");
    }
    assert!(error(client.partition("../a")).contains("no partition ../a"));
    assert!(error(client.signal(1, 15)).contains("no job 1"));
    assert_eq!(client.machine().expect("it is there").partitions.len(), 1);
    client.remove_partition("a").expect("removed");
    assert!(client.ras(&[("location", "x&limit=y".to_owned())]).expect("asked").is_empty());
}

#[test]
fn what_is_no_request_gets_an_error_and_the_daemon_goes_on() {
    let place = folder();
    let daemon = Daemon::start(place.path());
    let answer = daemon.post("/v1/machine", "{\"shape\": \"2x2x2\", \"speed\": 1}");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("speed"), "{answer}");
    assert!(daemon.post("/v1/machine", "{").starts_with("HTTP/1.1 400"));
    assert!(daemon.post("/v1/nothing", "{}").starts_with("HTTP/1.1 404"));
    let large = format!("{{\"shape\": \"{}\"}}", "x".repeat(5 << 20));
    assert!(!daemon.post("/v1/machine", &large).starts_with("HTTP/1.1 200"));
    assert!(daemon.raw(b"\0\0\0\0").is_empty() || daemon.client.is_served());
    assert!(error(daemon.client.machine()).contains("no machine is set up"), "it goes on");
    let described = daemon.raw(b"GET /v1/openapi.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    for path in ["/v1/machine", "/v1/jobs/{id}/signal", "/v1/partitions/{name}/boot", "/v1/ras"] {
        assert!(described.contains(&format!("\"{path}\"")), "{path}");
    }
}

#[test]
fn no_bytes_end_the_daemon() {
    let place = folder();
    let daemon = Daemon::start(place.path());
    let rule = proptest::test_runner::Config { cases: 200, failure_persistence: None, ..Default::default() };
    proptest::test_runner::TestRunner::new(rule)
        .run(&(prop::sample::select(vec!["GET", "POST", "DELETE", "PUT"]), "[a-z0-9/?&=%.{}]{0,40}", ".{0,80}"), |(method, path, body)| {
            let length = body.len();
            let text = format!("{method} /v1/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            // nobody switches a machine off that is not there
            daemon.raw(text.as_bytes());
            prop_assert!(daemon.client.is_served());
            Ok(())
        })
        .expect("it goes on");
}

/// The status of a request by nobody to submit a job to partition `a`.
fn submitted_by_nobody(folder: &Path) -> Option<String> {
    use std::os::unix::process::CommandExt as _;
    let job = r#"{"partition": "a", "executable": "/bin/true", "directory": "/"}"#;
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "-", "-w", " %{http_code}", "--unix-socket"]).arg(folder.join("api"));
    curl.args(["-H", "content-type: application/json", "-d", job, "http://machine/v1/jobs"]);
    let output = curl.uid(65_534).gid(65_534).current_dir("/").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn users_who_are_not_allowed_run_no_jobs_on_a_partition() {
    if !nix::unistd::geteuid().is_root() {
        return colony_testing::skip("needs root");
    }
    let place = folder();
    let daemon = Daemon::start(place.path());
    let nodes =
        NodeRequest { pset: 8, cpus: 1, memory_mib: 16, io_nodes: IoNodeKind::default(), io_exports: vec![] };
    let shape = "2x2x2".parse().expect("a shape");
    daemon.client.set_up(&MachineRequest { shape, partition: None, allocation: None }).expect("set up");
    let request = PartitionRequest { name: Some("a".to_owned()), shape, origin: None, nodes };
    daemon.client.add_partition(&request).expect("made");
    let Some(open) = submitted_by_nobody(place.path()) else { return colony_testing::skip("needs curl") };
    assert!(open.ends_with(" 409") && open.contains("is not booted"), "{open}");
    let set = |holder: Holder, may_run| {
        daemon.client.set_rights("a", &RightsRequest { holder, may_run }).expect("stored").allowed
    };
    set(Holder::User("root".to_owned()), true);
    let refused = submitted_by_nobody(place.path()).expect("curl is there");
    assert!(refused.ends_with(" 403") && refused.contains("may not run jobs on partition a"), "{refused}");
    set(Holder::Group("65534".to_owned()), true);
    assert!(submitted_by_nobody(place.path()).expect("curl is there").ends_with(" 409"));
    set(Holder::Group("65534".to_owned()), false);
    assert!(submitted_by_nobody(place.path()).expect("curl is there").ends_with(" 403"));
    assert_eq!(set(Holder::User("root".to_owned()), false), []);
    let unknown = RightsRequest { holder: Holder::User("no such user".to_owned()), may_run: true };
    assert!(error(daemon.client.set_rights("a", &unknown)).contains("no user no such user"));
}

#[test]
fn one_user_has_a_bounded_number_of_connections_and_more_when_some_have_ended() {
    let place = folder();
    let daemon = Daemon::start(place.path());
    // each is served, and stays
    let listen = || {
        let mut stream = UnixStream::connect(&daemon.socket).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        (stream, String::from_utf8_lossy(&status).into_owned())
    };
    let mut held = Vec::new();
    let refused = loop {
        let (stream, status) = listen();
        if status != "HTTP/1.1 200" {
            break status;
        }
        held.push(stream);
        assert!(held.len() <= 256, "there is a bound");
    };
    assert_eq!(refused, "HTTP/1.1 429");
    let ask = b"GET /v1/caller HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = daemon.raw(ask);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("too many connections"), "{answer}");
    drop(held);
    while !daemon.raw(ask).starts_with("HTTP/1.1 200") {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_user_sends_a_bounded_number_of_requests_at_once_and_more_when_some_are_there() {
    const AT_ONCE: usize = 32;
    let place = folder();
    let daemon = Daemon::start(place.path());
    let head =
        b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n";
    let begin = || {
        let mut stream = UnixStream::connect(&daemon.socket).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        stream.write_all(head).and_then(|()| stream.write_all(b"{")).expect("sent");
        stream
    };
    let status = |mut stream: UnixStream| {
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        String::from_utf8_lossy(&status).into_owned()
    };
    // whichever comes last is refused; the others wait for the rest of their bodies
    let mut held: Vec<UnixStream> = (0..=AT_ONCE).map(|_| begin()).collect();
    let has_answer = |stream: &UnixStream| {
        let mut ready = [nix::poll::PollFd::new(stream.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut ready, 10u8).is_ok_and(|ready| ready > 0)
    };
    let refused = loop {
        if let Some(at) = held.iter().position(has_answer) {
            break held.remove(at);
        }
    };
    assert_eq!(status(refused), "HTTP/1.1 429");
    for mut stream in held {
        stream.write_all(b"}").expect("sent");
        assert_eq!(status(stream), "HTTP/1.1 400", "no job");
    }
    let mut again = begin();
    again.write_all(b"}").expect("sent");
    assert_eq!(status(again), "HTTP/1.1 400", "no job");
}
