// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that connect to the sockets of a job and are no part of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};

use crate::common::{children, example};

/// The address of its launcher in the environment of a rank.
fn launcher_of(rank: u32) -> String {
    loop {
        let environment = std::fs::read(format!("/proc/{rank}/environ")).expect("it runs");
        let mut variables = environment.split(|byte| *byte == 0);
        // before `exec`, the process has the environment of its parent
        if let Some(address) = variables.find_map(|one| one.strip_prefix(b"COLONY_JOB=unix:")) {
            return String::from_utf8(address.to_vec()).expect("text");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn is_open(mut stranger: &UnixStream) -> bool {
    stranger.set_nonblocking(true).expect("set");
    matches!(stranger.read(&mut [0; 64]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_job_begins_while_strangers_keep_their_connections_to_its_launcher() {
    let gates = tempfile::tempdir().expect("a folder");
    let (begin, end) = (gates.path().join("begin"), gates.path().join("end"));
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; {} 5; while [ ! -e {} ]; do sleep 0.01; done",
        begin.display(),
        example("ring").display(),
        end.display()
    );
    let mut command = Command::new(example("run"));
    command.args(["3", "/bin/sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut launcher = command.stderr(Stdio::null()).spawn().expect("the launcher starts");
    let name = launcher_of(children(launcher.id(), 3)[0]);
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let connect = |_| UnixStream::connect_addr(&address).expect("anyone can connect");
    let strangers: Vec<UnixStream> = (0..8).map(connect).collect();
    // half of them send less than a process of the job
    strangers.iter().step_by(2).for_each(|mut stranger| stranger.write_all(b"byte").expect("room"));
    std::fs::write(&begin, "").expect("room");
    let mut lines = BufReader::new(launcher.stdout.take().expect("a pipe")).lines();
    let line = lines.next().expect("the job has run").expect("text");
    assert_eq!(line, "5 rounds over 3 PEs");
    // the launcher has waited for none of them: it lets them go after a minute only
    let open = strangers.iter().filter(|stranger| is_open(stranger)).count();
    assert_eq!(open, strangers.len());
    std::fs::write(&end, "").expect("room");
    assert!(launcher.wait().expect("ours").success());
}
