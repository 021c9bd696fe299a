// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard streams of every kind: none of them stalls the worker, or ends it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_ciod::{End, Job, JobError, JobSpec, Streams};
use colony_fship::Errno;
use colony_fship::calls::number as nr;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::common::*;

/// A job that runs with these as standard input and output.
fn run(
    house: &House,
    spec: JobSpec,
    stdin: impl Into<OwnedFd>,
    stdout: impl Into<OwnedFd>,
) -> (Job, Vec<SyntheticNode>) {
    let streams = Streams { stdin: stdin.into(), stdout: stdout.into(), stderr: null().into() };
    let job = house.ciod.launch(spec, &house.numbers(), streams).expect("launched");
    let mut nodes: Vec<_> = (0..house.links.len()).map(|n| house.synthetic(n)).collect();
    let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
    for (node, seq) in nodes.iter_mut().zip(asked) {
        assert_eq!(node.answer(0, seq), 0);
        node.begin();
    }
    (job, nodes)
}

/// Another node's call is answered while `waits` of the first is not.
fn others_go_on(nodes: &mut [SyntheticNode], waits: u32) {
    assert_eq!(nodes[0].answer_within(0, waits, MOMENT), None, "there is nothing yet");
    assert_eq!(nodes[1].call(0, nr::umask, [0o22, 0, 0, 0, 0, 0]), 0o22);
}

/// A file that takes no more than it holds.
fn full(room: usize) -> File {
    let file = File::from(memfd_create("full", MFdFlags::MFD_ALLOW_SEALING).expect("a file"));
    file.set_len(room as u64).expect("room");
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).expect("sealed");
    file
}

#[test]
fn a_full_disk_is_an_error_of_the_writer_and_the_job_continues() {
    const ROOM: usize = 8192;
    for labels in [false, true] {
        let house = House::new(2);
        let mut file = full(ROOM);
        let mut spec = house.spec();
        spec.labels = labels;
        let (job, mut nodes) = run(&house, spec, null(), file.try_clone().expect("dup"));
        nodes[0].poke(0, FREE, &[b'x'; 2 * ROOM]);
        nodes[0].poke(0, FREE + 2 * ROOM as u64 - 1, b"\n");
        let taken = nodes[0].call(0, nr::write, [1, FREE, 2 * ROOM as u64, 0, 0, 0]);
        // a labeled line is not cut in two: the next one hears of it
        assert_eq!(taken, if labels { 2 * ROOM } else { ROOM } as i64);
        let start = Instant::now();
        while nodes[1].call(0, nr::write, [1, FREE + 2 * ROOM as u64 - 1, 1, 0, 0, 0])
            != Errno::EPERM.result()
        {
            assert!(labels && start.elapsed() < Duration::from_secs(20), "it is told");
        }
        let outcome = finish(&job, &mut nodes);
        assert!(outcome.processes.iter().all(|process| process.end == End::Exited(0)), "{outcome}");
        assert!(matches!(outcome.error, Some(JobError::Output { .. })), "what was lost is told: {outcome}");
        let mut all = Vec::new();
        file.rewind().expect("rewound");
        file.read_to_end(&mut all).expect("read");
        let line: &[u8] = if labels { b"0: xxxxx" } else { b"xxxxxxxx" };
        assert!(all.len() == ROOM && all.starts_with(line), "what there is room for is there");
    }
}

#[test]
fn a_stream_has_no_more_bytes_than_its_owner_keeps_and_a_file_of_the_user_has_no_limit() {
    const LIMIT: usize = 8192;
    for is_own in [false, true] {
        let house = House::new(2);
        let kept = tempfile::NamedTempFile::new().expect("a file");
        let place = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let own = place.path().join("own");
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
        let mut spec = house.spec();
        spec.stream_limit = Some(LIMIT as u64);
        spec.stdout = is_own.then(|| own.to_str().expect("text").to_owned());
        let stream = File::options().append(true).open(kept.path()).expect("opened");
        let (job, mut nodes) = run(&house, spec, null(), stream);
        nodes[0].poke(0, FREE, &[b'x'; LIMIT]);
        let mut write =
            |node: usize, bytes: usize| nodes[node].call(0, nr::write, [1, FREE, bytes as u64, 0, 0, 0]);
        let taken = [write(0, LIMIT - 100), write(0, 200), write(0, 1)];
        let limited = [LIMIT as i64 - 100, 100, -i64::from(libc::EDQUOT)];
        assert_eq!(taken, if is_own { [LIMIT as i64 - 100, 200, 1] } else { limited });
        let outcome = finish(&job, &mut nodes);
        let why = outcome.error.as_ref().map(ToString::to_string).unwrap_or_default();
        if is_own {
            assert_eq!(
                (std::fs::metadata(&own).expect("there").len(), why),
                (LIMIT as u64 + 101, String::new())
            );
        } else {
            assert_eq!(std::fs::metadata(kept.path()).expect("there").len(), LIMIT as u64);
            assert!(why.contains("output of rank 0") && why.contains("--output"), "{why}");
        }
    }
}

#[test]
fn streams_that_others_share_are_waited_for() {
    let house = House::new(2);
    let (mut input, stdin) = UnixStream::pair().expect("sockets");
    let (mut output, stdout) = UnixStream::pair().expect("sockets");
    let (job, mut nodes) =
        run(&house, house.spec(), stdin.try_clone().expect("dup"), stdout.try_clone().expect("dup"));
    // reading input, and what is an output
    for (fd, peer) in [(0, &mut input), (1, &mut output)] {
        let waits = nodes[0].send(0, nr::read, [fd, FREE, 100, 0, 0, 0]);
        others_go_on(&mut nodes, waits);
        peer.write_all(b"line\n").expect("written");
        assert_eq!(nodes[0].answer(0, waits), 5, "{fd}");
    }
    // writing to the input, whose other end does not read
    const MUCH: usize = 3_000_000;
    nodes[0].poke(0, FREE, &[b'x'; MUCH]);
    let waits = nodes[0].send(0, nr::write, [0, FREE, MUCH as u64, 0, 0, 0]);
    others_go_on(&mut nodes, waits);
    input.read_exact(&mut vec![0; MUCH]).expect("all of it");
    assert_eq!(nodes[0].answer(0, waits), MUCH as i64);
    // from the input to a pipe, without the program's memory
    assert_eq!(nodes[0].call(0, nr::pipe, [FREE, 0, 0, 0, 0, 0]), 0);
    let waits = nodes[0].send(0, nr::sendfile, [4, 0, 0, 100, 0, 0]);
    others_go_on(&mut nodes, waits);
    input.write_all(b"line\n").expect("written");
    assert_eq!(nodes[0].answer(0, waits), 5);
    assert_eq!(nodes[0].call(0, nr::read, [3, FREE, 100, 0, 0, 0]), 5);
    // from a socket of its own, too; what cannot be copied is told at once
    assert_eq!(nodes[0].call(0, nr::socketpair, [1, 1, 0, FREE, 0, 0]), 0);
    let waits = nodes[0].send(0, nr::sendfile, [4, 5, 0, 100, 0, 0]);
    others_go_on(&mut nodes, waits);
    assert_eq!(nodes[0].call(1, nr::write, [6, FREE, 7, 0, 0, 0]), 7);
    assert_eq!(nodes[0].answer(0, waits), 7);
    let refused = nodes[0].call(0, nr::sendfile, [5, 3, 0, 100, 0, 0]);
    assert_eq!(refused, Errno::EINVAL.result(), "from a pipe");
    for shared in [stdin, stdout] {
        let flags = fcntl(&shared, FcntlArg::F_GETFL).expect("flags");
        assert_eq!(flags & libc::O_NONBLOCK, 0, "others would meet EAGAIN");
    }
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn room_in_either_output_is_waited_for() {
    for labels in [false, true] {
        let house = House::new(1);
        let (mut out, stdout) = std::io::pipe().expect("pipe");
        let (mut err, stderr) = std::io::pipe().expect("pipe");
        let streams = Streams { stdin: null().into(), stdout: stdout.into(), stderr: stderr.into() };
        let mut spec = house.spec();
        spec.labels = labels;
        let job = house.ciod.launch(spec, &house.numbers(), streams).expect("launched");
        let mut node = house.synthetic(0);
        node.next_job();
        node.poke(0, FREE, &[b'\n'; 1 << 16]);
        for fd in [1, 2] {
            let flag = [fd, libc::F_SETFL as u64, libc::O_NONBLOCK as u64, 0, 0, 0];
            assert_eq!(node.call(0, nr::fcntl, flag), 0);
            let last = std::iter::repeat_with(|| node.call(0, nr::write, [fd, FREE, 1 << 16, 0, 0, 0]));
            assert_eq!(last.take(1000).find(|&n| n <= 0), Some(Errno::EAGAIN.result()), "no room, no wait");
        }
        for (fd, reader) in [(1, &mut out), (2, &mut err)] {
            let asked = [[1, libc::POLLOUT as u32], [2, libc::POLLOUT as u32]];
            node.poke(0, FREE, &asked.concat().into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>());
            let waits = node.send(0, nr::poll, [FREE, 2, u64::MAX, 0, 0, 0]);
            assert_eq!(node.answer_within(0, waits, MOMENT), None, "both are full");
            let mut some = vec![0; 1 << 17];
            while node.answer_within(0, waits, Duration::from_millis(1)).is_none() {
                assert!(reader.read(&mut some).expect("read") > 0);
            }
            let found = [6, 14].map(|at| node.peek(0, FREE + at, 1)[0]);
            assert_eq!(found.map(|f| f != 0), [fd == 1, fd == 2]);
            node.poke(0, FREE, &[b'\n'; 1 << 16]);
            while node.call(0, nr::write, [fd, FREE, 1 << 16, 0, 0, 0]) > 0 {}
        }
        for mut reader in [out, err] {
            std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
        }
        assert!(finish(&job, &mut [node]).success());
    }
}

#[test]
fn closing_a_socket_never_waits() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("server");
    let port = server.local_addr().expect("address").port();
    let address = [&2u16.to_le_bytes()[..], &port.to_be_bytes(), &[127, 0, 0, 1], &[0; 8]].concat();
    let kind = (libc::SOCK_STREAM | libc::SOCK_NONBLOCK) as u64;
    let socket = node.call(0, nr::socket, [libc::AF_INET as u64, kind, 0, 0, 0, 0]) as u64;
    node.poke(0, FREE, &address);
    let connected = node.call(0, nr::connect, [socket, FREE, 16, 0, 0, 0]);
    assert!(connected == 0 || connected == -i64::from(libc::EINPROGRESS), "{connected}");
    let (_peer, _) = server.accept().expect("connected");
    // more than the peer, who does not read, has room for
    while node.call(0, nr::write, [socket, FREE, 1 << 20, 0, 0, 0]) > 0 {}
    node.poke(0, FREE, &[1u32, 3600, 8].map(u32::to_le_bytes).concat());
    let option =
        |call, length| (call, [socket, libc::SOL_SOCKET as u64, libc::SO_LINGER as u64, FREE, length, 0]);
    let (set, args) = option(nr::setsockopt, 8);
    assert_eq!(node.call(0, set, args), 0);
    node.poke(0, FREE, &[0; 8]);
    let (get, args) = option(nr::getsockopt, FREE + 8);
    assert_eq!(node.call(0, get, args), 0);
    assert_eq!(node.peek(0, FREE, 8), [1u32, 3600].map(u32::to_le_bytes).concat(), "as it was set");
    assert_eq!(node.call(0, nr::close, [socket, 0, 0, 0, 0, 0]), 0, "before the peer has read anything");
    assert!(finish(&job, &mut nodes).success());
}
