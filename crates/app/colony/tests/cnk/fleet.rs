// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many nodes on one I/O daemon.

use std::io::Write as _;
use std::net::TcpListener;

use colony_nodes::Machine;
use colony_nodes::ciod::Program;

use crate::common::{boot, folder, launch, programs, script};

#[test]
fn a_hundred_and_twenty_seven_nodes_work_while_one_waits() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let machine = Machine { cpus: 1, memory: 16 << 20, torus: Some(0), ..Machine::default() };
    let mut partition = boot(machine, 128);
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("bound").port().to_string();
    let mut job = script(
        &busybox,
        place.path(),
        "echo $COLONY_RANK > out.$COLONY_RANK; read n < out.$COLONY_RANK; echo $n",
    );
    let waits = ["nc", "127.0.0.1", &port].map(str::to_owned).to_vec();
    job.programs = vec![Program { first: 5, last: 5, executable: busybox.clone(), arguments: waits }];
    let running = launch(&mut partition, job);
    let (mut peer, _) = server.accept().expect("it connects");
    let written = || (0..128).filter(|n| place.path().join(format!("out.{n}")).exists()).count();
    let patience = std::time::Instant::now();
    while written() < 127 {
        assert!(patience.elapsed().as_secs() < 200, "{} of 127 have written", written());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(running.job().wait_timeout(std::time::Duration::from_millis(300)).is_none(), "one still waits");
    peer.write_all(b"the end\n").expect("it listens");
    drop(peer);
    let ran = running.end(&partition);
    let mut lines: Vec<&str> = ran.output().lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..128).filter(|n| *n != 5).map(|n| n.to_string()).collect();
    expected.push("the end".into());
    expected.sort();
    assert_eq!(lines, expected);
}
