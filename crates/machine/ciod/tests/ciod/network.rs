// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proxy of a node that is reached by frames.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use colony_ciod::{Ciod, Config, Network, Proxy};
use colony_fship::frame::{Content, HEAD, Head, Side, kind, read};
use colony_fship::layout::{CHANNELS_AT, HEADER_AT, Header, LARGE_PAGE};
use colony_node::process_user::ProcessUser;
use zerocopy::{FromBytes as _, IntoBytes as _};

const WINDOW: u64 = 16 << 20;

fn proxy() -> (Proxy, UnixDatagram, colony_ciod::NodeLink) {
    let ciod = Ciod::new(Config::new(env!("CARGO_BIN_EXE_ciod"))).expect("a daemon");
    let node = ciod.attach(3, WINDOW).expect("a node");
    let mut proxy = ciod.proxy(&node, Network::default()).expect("starts");
    let socket = UnixDatagram::from(proxy.socket().expect("the first time"));
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    (proxy, socket, node)
}

fn frame(kind: u8, seq: u32, place: u64, bytes: &[u8]) -> Vec<u8> {
    let mut head = Head::new(kind, place, bytes.len() as u16);
    head.seq = seq;
    [head.as_bytes(), bytes].concat()
}

/// Waits until the proxy has so many frames.
fn acknowledged(socket: &UnixDatagram, frames: u32) {
    let mut buffer = [0; 10_000];
    loop {
        let length = socket.recv(&mut buffer).expect("it answers");
        let (head, _) = read(&buffer[..length], Side::Node, WINDOW).expect("a frame");
        if head.ack == frames {
            return;
        }
    }
}

#[test]
fn a_node_that_says_hello_gets_the_header_and_says_it_again_until_it_is_acknowledged() {
    let (_proxy, socket, _node) = proxy();
    socket.send(&frame(kind::HELLO, 0, 0, &[])).expect("it listens");
    let mut buffer = [0; 10_000];
    // nothing is acknowledged here: it comes again and again
    for _ in 0..3 {
        let bytes = loop {
            let length = socket.recv(&mut buffer).expect("it answers");
            match read(&buffer[..length], Side::Node, WINDOW) {
                Some((_, Content::Put { place: HEADER_AT, bytes })) => break bytes,
                Some((_, Content::Ack)) => {}
                other => panic!("{other:?}"),
            }
        };
        let header = Header::read_from_bytes(bytes).expect("a header");
        assert_eq!((header.node, header.window), (3, WINDOW));
    }
}

#[test]
fn invalid_frames_change_nothing() {
    let (_proxy, socket, node) = proxy();
    let good = frame(kind::PUT, 0, LARGE_PAGE, b"memory");
    for length in [0, 1, HEAD - 1, HEAD, good.len() - 1] {
        socket.send(&good[..length]).expect("it listens");
    }
    socket.send(&[0xff; 9000]).expect("it listens");
    socket.send(&frame(kind::PUT, 0, CHANNELS_AT, &[0xff; 64])).expect("it listens");
    socket.send(&frame(kind::PUT, 0, WINDOW - 3, b"memory")).expect("it listens");
    socket.send(&frame(kind::PUT, 1, LARGE_PAGE, b"early")).expect("it listens");
    socket.send(&good).expect("it listens");
    acknowledged(&socket, 1);
    let file = std::fs::File::from(node.memory().try_clone_to_owned().expect("ours"));
    let read = |at: u64| {
        let mut bytes = [0; 6];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, at).expect("in the window");
        bytes
    };
    assert_eq!(&read(LARGE_PAGE), b"memory");
    assert_eq!((read(CHANNELS_AT), read(WINDOW - 6)), ([0; 6], [0; 6]));
}

#[test]
fn a_proxy_of_root_has_a_user_of_its_own_and_ends_with_its_owner() {
    let (proxy, socket, _node) = proxy();
    socket.send(&frame(kind::HELLO, 0, 0, &[])).expect("it listens");
    acknowledged(&socket, 1);
    let place = format!("/proc/{}", proxy.pid());
    let status = std::fs::read_to_string(format!("{place}/status")).expect("it runs");
    let line = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)).expect("Linux says so");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for capabilities in ["CapPrm:", "CapEff:"] {
        assert_eq!(line(capabilities), ["0000000000000000"]);
    }
    assert_eq!(line("NoNewPrivs:"), ["1"]);
    if std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0) {
        let own = vec![ProcessUser::here().of(proxy.pid()).to_string(); 4];
        assert_eq!((line("Uid:"), line("Gid:")), (own.clone(), own));
        assert!(line("Groups:").is_empty());
    }
    drop(proxy);
    assert!(!std::path::Path::new(&place).exists());
}

#[test]
fn a_node_that_acknowledges_nothing_is_not_listened_to_for_ever() {
    const HELLOS: u32 = 6000;
    let (_proxy, socket, _node) = proxy();
    socket.set_nonblocking(true).expect("ours");
    let mut buffer = [0; 10_000];
    // so many were taken; and how many frames have said so
    let (mut taken, mut said, mut next) = (0, 0, 0);
    while said < 100 {
        if next < HELLOS && socket.send(&frame(kind::HELLO, next, 0, &[])).is_ok() {
            (next, said) = (next + 1, 0);
        }
        let Ok(length) = socket.recv(&mut buffer) else {
            std::thread::yield_now();
            continue;
        };
        let (head, _) = read(&buffer[..length], Side::Node, WINDOW).expect("a frame");
        said = if head.ack > taken || next < HELLOS { 0 } else { said + 1 };
        taken = taken.max(head.ack);
    }
    assert!(taken > 0 && taken < HELLOS, "{taken} greetings wait for the node");
}
