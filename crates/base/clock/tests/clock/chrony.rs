// SPDX-License-Identifier: MIT OR Apache-2.0
//! chronyd itself: one that serves time and one that follows it, neither touching this machine's clock (`-x`).

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use colony_clock::source::chrony::Chrony;
use colony_clock::source::{Reading, Source, SourceError};
use colony_time::clock::Clock;

use crate::alone;

/// A chronyd of this test, ended with it.
struct Chronyd(Child);

impl Chronyd {
    fn start(folder: &Path, name: &str, config: &str) -> Self {
        let file = folder.join(format!("{name}.conf"));
        let pid = folder.join(format!("{name}.pid"));
        std::fs::write(&file, format!("{config}\npidfile {}\n", pid.display())).expect("writable");
        let mut command = Command::new("chronyd");
        // the sbin directories are in the path of root alone
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        command.env("PATH", path).args(["-x", "-U", "-d", "-u"]);
        command.arg(nix::unistd::User::from_uid(nix::unistd::getuid()).expect("known").expect("known").name);
        command.arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("chronyd (Debian package chrony)"))
    }
}

impl Drop for Chronyd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A UDP port that is free now.
fn port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").port()
}

fn synchronised(source: &mut Chrony) -> Reading {
    let start = Instant::now();
    loop {
        match source.read() {
            Ok(r) if r.bound_ns.is_some() => return r,
            other => assert!(start.elapsed() < Duration::from_secs(120), "never synchronised: {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_chronyd_that_follows_another_tells_its_bound_over_udp_and_its_socket() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("temp dir");
    let (ntp, command, own) = (port(), port(), port());
    let server = format!(
        "local stratum 3\nallow 127.0.0.1\nport {ntp}\ncmdport {own}\nbindcmdaddress 127.0.0.1\nbindcmdaddress /"
    );
    let _server = Chronyd::start(folder.path(), "server", &server);
    let socket = folder.path().join("run/chronyd.sock");
    // no rtcsync, and 16 s between two updates: the kernel's figure would be missing, or 8 ms
    let client = format!(
        "server 127.0.0.1 port {ntp} iburst minpoll 4 maxpoll 4\nport 0\ncmdport {command}\n\
         bindcmdaddress 127.0.0.1\nbindcmdaddress {}",
        socket.display()
    );
    let _client = Chronyd::start(folder.path(), "client", &client);
    let address = SocketAddr::from(([127, 0, 0, 1], command));
    let first = synchronised(&mut Chrony::at(address, "/nonexistent".into()));
    let bound = first.bound_ns.expect("synchronised");
    // one machine, one clock: the error is what chronyd measured of it
    assert!((1..500_000_000).contains(&bound) && first.growth_ppm >= 1.0, "{first:?}");
    let now = Clock::Monotonic.now_ns();
    assert!(first.source == "chronyd" && first.monotonic_ns <= now);
    // nobody answers at that port: its socket is asked instead
    let nobody = SocketAddr::from(([127, 0, 0, 1], port()));
    let second = synchronised(&mut Chrony::at(nobody, socket));
    assert!(second.bound_ns.is_some_and(|b| b < 500_000_000), "{second:?}");
    assert!(!folder.path().join(format!("run/chronyc.{}.sock", std::process::id())).exists());
    // the server serves its own time, and its error is 0 by its own account
    let alone = Chrony::at(SocketAddr::from(([127, 0, 0, 1], own)), "/nonexistent".into()).read();
    assert!(matches!(alone, Err(SourceError::OwnClock { .. })), "{alone:?}");
}

#[test]
fn without_chronyd_the_error_names_the_addresses_tried() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("temp dir");
    let address = SocketAddr::from(([127, 0, 0, 1], port()));
    let error = Chrony::at(address, folder.path().join("none.sock")).read().expect_err("nobody");
    assert!(matches!(&error, SourceError::Silent { .. }), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn an_answer_that_is_rubbish_is_an_error_and_one_that_never_comes_costs_little() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("temp dir");
    let rubbish = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = rubbish.local_addr().expect("bound");
    let mut source = Chrony::at(address, folder.path().join("none.sock"));
    let error = source.read().expect_err("no answer").to_string();
    assert!(error.contains("chronyd does not answer"), "{error}");
    let answering = std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        // the request of before, and the next
        for _ in 0..2 {
            let (length, from) = rubbish.recv_from(&mut buffer).expect("a request");
            rubbish.send_to(&buffer[..length], from).expect("sent back");
        }
    });
    let error = source.read().expect_err("its own request").to_string();
    assert!(error.contains("not understood") || error.contains("does not answer"), "{error}");
    answering.join().expect("no panic");
}
