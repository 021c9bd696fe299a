// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ciod serve`, as a control system and a virtual machine meet it.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use colony_ciod::client::Client;
use colony_ciod::serve::Ask;
use colony_ciod::testing::{self, FREE, SyntheticNode};
use colony_fship::calls::number as nr;
use colony_model::{Block, Machine, Partition, PsetSize};

use crate::common::*;

/// A daemon that is killed with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(folder: &Path) -> Daemon {
    let socket = folder.join("ciod");
    let child = Command::new(env!("CARGO_BIN_EXE_ciod"))
        .args(["serve", "--nodes", "2", "--memory", "32"])
        .arg("--socket")
        .arg(&socket)
        .arg("--folder")
        .arg(folder)
        .spawn()
        .expect("started");
    let daemon = Daemon(child);
    let start = Instant::now();
    // the socket is there a moment before the daemon listens
    while UnixStream::connect(&socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "it listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon
}

#[test]
fn a_job_is_launched_signaled_and_waited_for_over_the_socket() {
    let house = House::new(0);
    let folder = house.folder.path();
    let _daemon = serve(folder);
    let socket = folder.join("ciod");
    let mode = |name: &str| folder.join(name).metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("ciod"), mode("node-0")), (0o600, 0o600), "its owner's only");
    std::fs::write(folder.join("job.toml"), format!("executable = \"{}\"\n", house.program.display()))
        .expect("job");
    let mut launch = Command::new(env!("CARGO_BIN_EXE_ciod"))
        .args(["launch", "--nodes", "1", "--socket"])
        .arg(&socket)
        .arg(folder.join("job.toml"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut node = SyntheticNode::connect(&folder.join("node-1")).expect("greeted");
    node.next_job();
    let mut client = Client::connect(&socket).expect("connected");
    let nodes = client.ask(&Ask::Nodes {}, &[]).expect("nodes");
    assert_eq!((&nodes["nodes"][0]["state"], &nodes["nodes"][1]["state"]), (&"free".into(), &"busy".into()));
    node.poke(0, FREE, b"printed\n");
    assert_eq!(node.call(0, nr::write, [1, FREE, 8, 0, 0, 0]), 8);
    client.ask(&Ask::Signal { job: 1, signal: 15 }, &[]).expect("told");
    let start = Instant::now();
    while node.signals(0) != 1 << 14 {
        assert!(start.elapsed() < Duration::from_secs(20), "the signal comes");
    }
    node.exit(0, 5);
    node.ask_for_job();
    let mut text = String::new();
    launch.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    assert_eq!(launch.wait().expect("ended").code(), Some(5));
    assert_eq!(text, "printed\n");
    // what is not there is said
    let refused = |client: &mut Client, ask| client.ask(&ask, &[]).expect_err("refused").to_string();
    assert_eq!(refused(&mut client, Ask::Wait { job: 77 }), "there is no job 77");
    assert_eq!(refused(&mut client, Ask::Renew { node: 1 }), "node 1 is not lost");
    let spec = Box::new(house.spec());
    assert_eq!(refused(&mut client, Ask::Launch { spec, nodes: vec![9] }), "there is no node 9");
}

#[test]
fn a_control_system_gives_a_node_its_encoded_personality() {
    let house = House::new(0);
    let folder = house.folder.path();
    let _daemon = serve(folder);
    let mut client = Client::connect(&folder.join("ciod")).expect("connected");
    let machine = Machine::new("8x8x8".parse().expect("a shape")).expect("a machine");
    let size = PsetSize::new(64).expect("a size");
    let partition = Partition::new(machine, "a", Block::whole(machine), size).expect("a partition");
    let encoded = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let good = partition.compute_personality(0, 32 << 20).encode();
    let mut give =
        |node, encoded| client.ask(&Ask::Personality { node, encoded }, &[]).map_err(|e| e.to_string());
    assert_eq!(give(0, encoded(&good)).expect("given")["done"], true);
    assert_eq!(give(2, encoded(&good)).expect_err("absent"), "there is no node 2");
    let mut damaged = good;
    damaged[50] ^= 1;
    for (text, part) in [
        (encoded(&damaged), "checksum"),
        (encoded(&good[..100]), "100 bytes"),
        ("xy".into(), "hexadecimal"),
        ("é".into(), "hexadecimal"),
        ("123".into(), "hexadecimal"),
    ] {
        let refused = give(0, text).expect_err("refused");
        assert!(refused.contains(part), "{refused}");
    }
    // the job's nodes are those of the partition, or it is refused
    let ask = Ask::Launch { spec: Box::new(house.spec()), nodes: vec![0, 1] };
    let refused = client.ask(&ask, &[]).expect_err("refused").to_string();
    assert!(refused.contains("node 1 has no personality of node 1 of a torus of 8x8x8"), "{refused}");
}

#[test]
fn a_job_that_nobody_waits_for_ends_all_the_same() {
    let house = House::new(0);
    let folder = house.folder.path();
    let _daemon = serve(folder);
    let mut client = Client::connect(&folder.join("ciod")).expect("connected");
    let ask = Ask::Launch { spec: Box::new(house.spec()), nodes: vec![0] };
    assert_eq!(client.ask(&ask, &[]).expect("launched")["job"], 1);
    drop(client);
    let mut node = SyntheticNode::connect(&folder.join("node-0")).expect("greeted");
    node.next_job();
    node.exit(0, 7);
    node.ask_for_job();
    let mut client = Client::connect(&folder.join("ciod")).expect("connected");
    let start = Instant::now();
    while client.ask(&Ask::Nodes {}, &[]).expect("nodes")["nodes"][0]["state"] != "free" {
        assert!(start.elapsed() < Duration::from_secs(20), "its node is free");
    }
    assert_eq!(client.ask(&Ask::Wait { job: 1 }, &[]).expect("ended")["code"], 7, "who asks later hears it");
}

#[test]
fn a_job_is_checked_without_nodes() {
    let house = House::new(0);
    std::fs::write(house.path("program"), testing::program()).expect("program");
    let job = house.path("job.toml");
    let check = |text: &str| {
        std::fs::write(&job, text).expect("job");
        let output = Command::new(env!("CARGO_BIN_EXE_ciod")).arg("check").arg(&job).output().expect("ran");
        let both = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(both).expect("text"))
    };
    let good = format!("executable = \"{}\"", house.program.display());
    let (code, text) = check(&good);
    assert_eq!((code, text.lines().next()), (Some(0), Some("1 processes on 1 nodes, 64 MiB each")));
    let (code, text) = check("executable = \"/bin/sh\"");
    assert!(code == Some(1) && text.contains("link it statically"), "{text}");
    let (code, text) = check("executable = 3");
    assert!(code == Some(1) && text.contains("job.toml"), "{text}");
}
