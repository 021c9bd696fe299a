// SPDX-License-Identifier: MIT OR Apache-2.0
//! ptp4l itself: a master and a follower in two networks of their own, both of which leave the clock alone
//! (`free_running`). Needs root.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use colony_clock::source::Source;
use colony_clock::source::ptp4l::Ptp4l;
use nix::sched::{CloneFlags, unshare};

use crate::alone;

/// A process of this test, ended with it.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program of the system's; the sbin directories are in the path of root alone.
fn start(line: &str) -> Owned {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Owned(command.spawn().unwrap_or_else(|e| panic!("{line} (Debian packages linuxptp, iproute2): {e}")))
}

fn run(line: &str) {
    let done = start(line).0.wait().expect("ours");
    assert!(done.success(), "{line}: {done}");
}

fn ptp4l(within: &str, interface: &str, socket: &Path, more: &str) -> Owned {
    let socket = socket.display();
    start(&format!("{within}ptp4l -i {interface} -S -m --free_running 1 --uds_address {socket}{more}"))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_ptp4l_that_follows_another_tells_its_bound_until_the_other_ends() {
    if !nix::unistd::geteuid().is_root() {
        colony_testing::skip("networks of its own need root");
        return;
    }
    let _alone = alone();
    // other tests may run on this thread later, and need the network of the machine
    let followed = std::thread::spawn(follow);
    followed.join().expect("the thread has not panicked");
}

fn follow() {
    let folder = tempfile::tempdir().expect("temp dir");
    // this thread's network, and that of all it starts
    unshare(CloneFlags::CLONE_NEWNET).expect("root may");
    let other = start("unshare --net sleep 3600");
    let there = format!("nsenter --net=/proc/{}/ns/net ", other.0.id());
    let own = std::fs::read_link("/proc/thread-self/ns/net").expect("linux");
    let theirs = format!("/proc/{}/ns/net", other.0.id());
    until("the other network is there", || std::fs::read_link(&theirs).is_ok_and(|n| n != own));
    run("ip link add v0 type veth peer name v1");
    run(&format!("ip link set v1 netns {}", other.0.id()));
    run("ip addr add 10.9.0.1/24 dev v0");
    run("ip link set v0 up");
    run(&format!("{there}ip addr add 10.9.0.2/24 dev v1"));
    run(&format!("{there}ip link set v1 up"));

    let (follows, leads) = (folder.path().join("follows"), folder.path().join("leads"));
    let leader = ptp4l(&there, "v1", &leads, " --priority1 10");
    let _follower = ptp4l("", "v0", &follows, " -s");
    let mut source = Ptp4l::at(follows);
    let mut reading = None;
    until("the follower hears its master", || {
        reading = source.read().ok().filter(|r| r.bound_ns.is_some());
        reading.is_some()
    });
    let r = reading.expect("just now");
    // one machine, one clock: the error is what ptp4l measured of it
    assert!(r.source == "ptp4l" && r.bound_ns.is_some_and(|b| (1..500_000_000).contains(&b)), "{r:?}");
    drop(leader);
    until("a clock without a master has no bound", || source.read().is_ok_and(|r| r.bound_ns.is_none()));
    // nobody answers there
    let error = Ptp4l::at(leads).read().expect_err("it has ended").to_string();
    assert!(error.contains("ptp4l does not answer"), "{error}");
}
