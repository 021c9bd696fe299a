// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of programs, with the results and errors of Linux.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_fship::Errno;
use colony_fship::calls::number as nr;

use crate::common::*;

const CWD: u64 = -100i64 as u64;
const TEXT: u64 = FREE;
const OTHER: u64 = FREE + 0x2000;
const DATA: u64 = FREE + 0x10_000;

/// A call with a path first.
fn path(node: &mut SyntheticNode, call: u32, path: &str, rest: [u64; 2]) -> i64 {
    let at = node.string(0, TEXT, path);
    node.call(0, call, [at, rest[0], rest[1], 0, 0, 0])
}

fn open(node: &mut SyntheticNode, name: &str, flags: i32, mode: u64) -> i64 {
    path(node, nr::open, name, [flags as u64, mode])
}

fn write(node: &mut SyntheticNode, fd: i64, bytes: &[u8]) -> i64 {
    node.poke(0, DATA, bytes);
    node.call(0, nr::write, [fd as u64, DATA, bytes.len() as u64, 0, 0, 0])
}

fn read_some(node: &mut SyntheticNode, fd: i64, most: u64) -> Result<Vec<u8>, i64> {
    let n = node.call(0, nr::read, [fd as u64, DATA, most, 0, 0, 0]);
    if n < 0 { Err(n) } else { Ok(node.peek(0, DATA, n as usize)) }
}

const NEW: i32 = libc::O_CREAT | libc::O_RDWR;

#[test]
fn files_and_directories() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    let fd = open(node, "a", NEW, 0o666);
    assert_eq!(fd, 3, "the lowest free number");
    assert_eq!(house.path("a").metadata().expect("made").mode() & 0o777, 0o644, "umask 022");
    assert_eq!(write(node, fd, b"hello world"), 11);
    assert_eq!(node.call(0, nr::lseek, [3, 6, 0, 0, 0, 0]), 6);
    assert_eq!(read_some(node, fd, 100).as_deref(), Ok(&b"world"[..]));
    assert_eq!(node.call(0, nr::pread64, [3, DATA, 4, 1, 0, 0]), 4);
    assert_eq!(node.peek(0, DATA, 4), b"ello");
    // parts of a vector
    node.poke(0, OTHER, &[DATA, 2, DATA + 100, 3].map(u64::to_le_bytes).concat());
    assert_eq!(node.call(0, nr::preadv, [3, OTHER, 2, 0, 0, 0]), 5);
    assert_eq!(node.peek(0, DATA + 100, 3), b"llo");
    assert_eq!(node.call(0, nr::fstat, [3, DATA, 0, 0, 0, 0]), 0);
    assert_eq!(node.peek(0, DATA + 48, 8), 11u64.to_le_bytes(), "st_size");
    assert_eq!(node.call(0, nr::fstat, [3, 0x1000, 0, 0, 0, 0]), Errno::EFAULT.result());
    // directories: the process has its own
    assert_eq!(path(node, nr::mkdir, "d", [0o777, 0]), 0);
    assert_eq!(path(node, nr::mkdir, "d", [0o777, 0]), Errno::EEXIST.result());
    assert_eq!(path(node, nr::chdir, "d", [0, 0]), 0);
    assert_eq!(path(node, nr::chdir, "nowhere", [0, 0]), Errno::ENOENT.result());
    let length = node.call(0, nr::getcwd, [DATA, 4096, 0, 0, 0, 0]);
    let cwd = node.peek(0, DATA, length as usize - 1);
    assert_eq!(String::from_utf8(cwd).expect("text"), house.path("d").to_str().expect("text"));
    assert_eq!(path(node, nr::stat, "../a", [DATA, 0]), 0);
    assert_eq!(node.call(0, nr::umask, [0o077, 0, 0, 0, 0, 0]), 0o022);
    assert_eq!(open(node, "secret", NEW, 0o666), 4);
    assert_eq!(house.path("d/secret").metadata().expect("made").mode() & 0o777, 0o600);
    let (from, to) = (node.string(0, TEXT, "secret"), node.string(0, OTHER, "../b"));
    assert_eq!(node.call(0, nr::renameat, [CWD, from, CWD, to, 0, 0]), 0);
    assert!(house.path("b").exists());
    assert_eq!(path(node, nr::rmdir, "../d", [0, 0]), 0);
    assert_eq!(
        path(node, nr::readlink, "/proc/self/exe", [DATA, 4096]),
        house.program.as_os_str().len() as i64
    );
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn names_and_links_are_what_they_are_on_linux() {
    let house = House::new(1);
    std::fs::create_dir_all(house.path("d/e")).expect("made");
    std::fs::write(house.path("d/file"), "1234").expect("written");
    std::os::unix::fs::symlink("file", house.path("d/link")).expect("link");
    std::os::unix::fs::symlink("d", house.path("way")).expect("link");
    std::os::unix::fs::symlink("nowhere", house.path("d/dangling")).expect("link");
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    let mode = |node: &mut SyntheticNode, call, name: &str| {
        let got = path(node, call, name, [DATA, 0]);
        let word = node.peek(0, DATA + 24, 4).try_into().expect("four");
        if got < 0 { Err(got) } else { Ok(u32::from_le_bytes(word) & libc::S_IFMT) }
    };
    for (name, followed, looked) in [
        ("d/link", libc::S_IFREG, libc::S_IFLNK),
        ("way", libc::S_IFDIR, libc::S_IFLNK),
        ("way/", libc::S_IFDIR, libc::S_IFDIR),
        ("way/.", libc::S_IFDIR, libc::S_IFDIR),
        ("way/e/..", libc::S_IFDIR, libc::S_IFDIR),
        ("way/link", libc::S_IFREG, libc::S_IFLNK),
        ("/", libc::S_IFDIR, libc::S_IFDIR),
        (".", libc::S_IFDIR, libc::S_IFDIR),
    ] {
        assert_eq!(mode(node, nr::stat, name), Ok(followed), "{name}");
        assert_eq!(mode(node, nr::lstat, name), Ok(looked), "{name}");
    }
    assert_eq!(mode(node, nr::stat, "d/dangling"), Err(Errno::ENOENT.result()));
    assert_eq!(mode(node, nr::lstat, "d/dangling"), Ok(libc::S_IFLNK));
    assert_eq!(mode(node, nr::stat, ""), Err(Errno::ENOENT.result()));
    assert_eq!(mode(node, nr::stat, "d/file/"), Err(-i64::from(libc::ENOTDIR)));
    assert_eq!(path(node, nr::truncate, "way/link", [2, 0]), 0);
    assert_eq!(house.path("d/file").metadata().expect("there").len(), 2);
    // one name in the process's directory, one elsewhere; what is made follows no link
    let (from, to) = (node.string(0, TEXT, "d/file"), node.string(0, OTHER, "here"));
    assert_eq!(node.call(0, nr::rename, [from, to, 0, 0, 0, 0]), 0);
    let (from, to) = (node.string(0, TEXT, "here"), node.string(0, OTHER, "way/e/there"));
    assert_eq!(node.call(0, nr::link, [from, to, 0, 0, 0, 0]), 0);
    assert!(house.path("here").exists() && house.path("d/e/there").exists());
    let (text, to) = (node.string(0, TEXT, "../some/text"), node.string(0, OTHER, "d/e/words"));
    assert_eq!(node.call(0, nr::symlink, [text, to, 0, 0, 0, 0]), 0);
    assert_eq!(path(node, nr::readlink, "d/e/words", [DATA, 100]), 12);
    assert_eq!(path(node, nr::mkdir, "way", [0o777, 0]), Errno::EEXIST.result());
    assert_eq!(path(node, nr::mkdir, "way/new/", [0o777, 0]), 0);
    assert_eq!(path(node, nr::rmdir, "way/", [0, 0]), -i64::from(libc::ENOTDIR));
    assert_eq!(path(node, nr::unlink, "way", [0, 0]), 0);
    assert!(house.path("d/new").is_dir());
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn large_transfers_arrive_whole() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    let all: Vec<u8> = (0..10_000_000u32).map(|n| (n / 7) as u8).collect();
    assert_eq!(open(node, "big", NEW, 0o600), 3);
    assert_eq!(write(node, 3, &all), all.len() as i64);
    assert!(std::fs::read(house.path("big")).expect("written") == all);
    assert_eq!(node.call(0, nr::lseek, [3, 0, 0, 0, 0, 0]), 0);
    assert!(read_some(node, 3, 12_000_000).expect("read") == all);
    assert_eq!(open(node, "copy", NEW, 0o600), 4);
    node.poke(0, OTHER, &5u64.to_le_bytes());
    assert_eq!(node.call(0, nr::sendfile, [4, 3, OTHER, 20_000_000, 0, 0]), all.len() as i64 - 5);
    assert!(std::fs::read(house.path("copy")).expect("written") == all[5..]);
    assert_eq!(node.peek(0, OTHER, 8), 10_000_000u64.to_le_bytes());
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn descriptors_are_numbered_and_shared_as_on_linux() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    let fcntl = |node: &mut SyntheticNode, fd: u64, command: i32, value: u64| {
        node.call(0, nr::fcntl, [fd, command as u64, value, 0, 0, 0])
    };
    assert_eq!(open(node, "a", NEW, 0o600), 3);
    assert_eq!(node.call(0, nr::dup, [3, 0, 0, 0, 0, 0]), 4);
    assert_eq!(node.call(0, nr::dup2, [3, 10, 0, 0, 0, 0]), 10);
    assert_eq!(node.call(0, nr::dup2, [3, 3, 0, 0, 0, 0]), 3);
    assert_eq!(node.call(0, nr::dup3, [3, 3, 0, 0, 0, 0]), Errno::EINVAL.result());
    assert_eq!(node.call(0, nr::dup2, [77, 5, 0, 0, 0, 0]), Errno::EBADF.result());
    assert_eq!(fcntl(node, 3, libc::F_DUPFD, 10), 11);
    assert_eq!(write(node, 4, b"abc"), 3);
    assert_eq!(node.call(0, nr::lseek, [10, 0, 1, 0, 0, 0]), 3, "duplicates share the place in the file");
    assert_eq!(fcntl(node, 3, libc::F_GETFD, 0), 0);
    assert_eq!(fcntl(node, 3, libc::F_SETFD, 1), 0);
    assert_eq!((fcntl(node, 3, libc::F_GETFD, 0), fcntl(node, 4, libc::F_GETFD, 0)), (1, 0));
    assert_eq!(
        fcntl(node, 3, libc::F_GETFL, 0) as i32 & libc::O_NONBLOCK,
        0,
        "what the worker adds is not seen"
    );
    assert_eq!(fcntl(node, 3, libc::F_SETFL, libc::O_NONBLOCK as u64 | libc::O_APPEND as u64), 0);
    let flags = fcntl(node, 4, libc::F_GETFL, 0) as i32;
    assert_eq!(
        flags & (libc::O_NONBLOCK | libc::O_APPEND),
        libc::O_NONBLOCK | libc::O_APPEND,
        "of the open file"
    );
    assert_eq!(node.call(0, nr::close, [4, 0, 0, 0, 0, 0]), 0);
    assert_eq!(node.call(0, nr::close, [4, 0, 0, 0, 0, 0]), Errno::EBADF.result());
    assert_eq!(open(node, "b", NEW, 0o600), 4);
    assert_eq!(node.call(0, nr::close_range, [3, 10, 0, 0, 0, 0]), 0);
    assert_eq!(node.call(0, nr::close, [11, 0, 0, 0, 0, 0]), 0);
    // until there are no more
    let made = (0..).take_while(|_| open(node, "b", NEW, 0o600) >= 0).count();
    assert_eq!(made, 1024 - 3);
    assert_eq!(open(node, "c", NEW, 0o600), Errno::EMFILE.result());
    assert!(!house.path("c").exists(), "nothing was made");
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn the_worker_itself_cannot_be_reached() {
    let house = House::new(1);
    std::os::unix::fs::symlink("/proc/self/mem", house.path("mem")).expect("link");
    std::os::unix::fs::symlink("/proc/self/fd", house.path("fds")).expect("link");
    std::os::unix::fs::symlink("/proc", house.path("proc")).expect("link");
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    for hidden in [
        "/proc/self/mem",
        "mem",
        "fds",
        "fds/0",
        "proc/self/maps",
        "/proc/../proc/self/environ",
        "/proc/1/status",
    ] {
        let got = open(node, hidden, libc::O_RDONLY, 0);
        assert!([-libc::ENOENT, -libc::ELOOP, -libc::EACCES].contains(&(got as i32)), "{hidden}: {got}");
    }
    // nor by calls that only name a file: below these is the job's log, which the worker has open
    let keeps = |node: &mut SyntheticNode, hidden: &str| {
        for (call, rest) in [
            (nr::stat, [DATA, 0]),
            (nr::access, [0, 0]),
            (nr::truncate, [0, 0]),
            (nr::chmod, [0o777, 0]),
            (nr::utimes, [0, 0]),
            (nr::statfs, [DATA, 0]),
            (nr::mkdir, [0o777, 0]),
            (nr::unlink, [0, 0]),
            (nr::readlink, [DATA, 100]),
        ] {
            let is_link = matches!(call, nr::mkdir | nr::unlink | nr::readlink) && !hidden.contains('/');
            let got = path(node, call, hidden, rest);
            assert!(is_link || got < 0, "call {call} of {hidden}: {got}");
        }
        let at = node.string(0, TEXT, hidden);
        let to = node.string(0, OTHER, "stolen");
        assert!(node.call(0, nr::linkat, [CWD, at, CWD, to, libc::AT_SYMLINK_FOLLOW as u64, 0]) < 0);
        assert!(node.call(0, nr::newfstatat, [CWD, at, DATA, 0, 0, 0]) < 0, "{hidden}");
        assert!(node.call(0, nr::execve, [at, 0, 0, 0, 0, 0]) < 0, "{hidden}");
    };
    for n in 0..20 {
        let name = format!("fds/{n}");
        keeps(node, &name);
        keeps(node, &format!("proc/self/fd/{n}"));
        keeps(node, &format!("/proc/../proc/self/fd/{n}"));
        keeps(node, &format!("fds/{n}/../environ"));
        let _ = std::fs::remove_file(house.path("direct"));
        std::os::unix::fs::symlink(format!("/proc/self/fd/{n}"), house.path("direct")).expect("link");
        let at = node.string(0, TEXT, "direct");
        for call in [nr::stat, nr::chmod, nr::truncate, nr::execve] {
            assert!(node.call(0, call, [at, DATA, 0, 0, 0, 0]) < 0, "call {call} of descriptor {n}");
        }
        let at = node.string(0, TEXT, "direct/");
        assert!(node.call(0, nr::lstat, [at, DATA, 0, 0, 0, 0]) < 0, "a slash follows the link");
    }
    // its own are there, by these names
    assert_eq!(open(node, "mine", NEW, 0o600), 3);
    let inode = |node: &mut SyntheticNode, name: &str| {
        assert_eq!(path(node, nr::stat, name, [DATA, 0]), 0, "{name}");
        node.peek(0, DATA + 8, 8)
    };
    let of = |name: &str| house.path(name).metadata().expect("there").ino().to_le_bytes();
    assert_eq!(inode(node, "/proc/self/fd/3"), of("mine"));
    assert_eq!(inode(node, "/proc/self/exe"), of("program"));
    assert_eq!(path(node, nr::stat, "/proc/self/fd/4", [DATA, 0]), Errno::ENOENT.result());
    let proc = open(node, "/proc", libc::O_RDONLY, 0);
    let at = node.string(0, TEXT, "self/mem");
    assert!(node.call(0, nr::openat, [proc as u64, at, 0, 0, 0, 0]) < 0);
    assert!(path(node, nr::chdir, "proc/self", [0, 0]) < 0 && path(node, nr::chdir, "fds", [0, 0]) < 0);
    assert!(open(node, "/proc/meminfo", libc::O_RDONLY, 0) > 0, "the machine is no secret");
    assert!(open(node, "/dev/stdout", libc::O_WRONLY, 0) > 0, "its own descriptors are its own");
    // options of sockets that are addresses: SO_ATTACH_FILTER, TCP_ZEROCOPY_RECEIVE
    let socket = node.call(0, nr::socket, [2, 1, 0, 0, 0, 0]) as u64;
    assert_eq!(node.call(0, nr::setsockopt, [socket, 1, 26, DATA, 16, 0]), -92);
    node.poke(0, OTHER, &64u32.to_le_bytes());
    assert_eq!(node.call(0, nr::getsockopt, [socket, 6, 35, DATA, OTHER, 0]), -92);
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn sockets_and_pipes_wait_without_stalling_others() {
    let house = House::new(2);
    let (job, mut nodes, _output) = house.run(house.spec());
    let (one, two) = nodes.split_at_mut(1);
    let (node, other) = (&mut one[0], &mut two[0]);
    assert_eq!(node.call(0, nr::pipe2, [OTHER, 0, 0, 0, 0, 0]), 0);
    assert_eq!(node.peek(0, OTHER, 8), [3, 0, 0, 0, 4, 0, 0, 0]);
    let waits = node.send(0, nr::read, [3, DATA, 10, 0, 0, 0]);
    // meanwhile another process works, and another thread of the same
    assert_eq!(other.call(0, nr::umask, [0, 0, 0, 0, 0, 0]), 0o022);
    assert_eq!(node.answer_within(0, waits, MOMENT), None, "nothing to read");
    node.poke(0, DATA + 100, b"now");
    assert_eq!(node.call(1, nr::write, [4, DATA + 100, 3, 0, 0, 0]), 3);
    assert_eq!(node.answer(0, waits), 3);
    assert_eq!(node.peek(0, DATA, 3), b"now");
    // non-blocking says so
    assert_eq!(node.call(0, nr::fcntl, [3, libc::F_SETFL as u64, libc::O_NONBLOCK as u64, 0, 0, 0]), 0);
    assert_eq!(read_some(node, 3, 10), Err(Errno::EAGAIN.result()));
    // a reader who is gone
    assert_eq!(node.call(0, nr::close, [3, 0, 0, 0, 0, 0]), 0);
    assert_eq!(write(node, 4, b"x"), Errno::EPIPE.result());
    assert_eq!(node.signals(0), 1 << (libc::SIGPIPE - 1));
    // a local server
    let server = UnixListener::bind(house.path("server")).expect("server");
    let socket = node.call(0, nr::socket, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0]);
    node.poke(0, OTHER, &(libc::AF_UNIX as u16).to_le_bytes());
    node.string(0, OTHER + 2, "server");
    assert_eq!(node.call(0, nr::connect, [socket as u64, OTHER, 9, 0, 0, 0]), 0);
    let (mut peer, _) = server.accept().expect("connected");
    let big = vec![7u8; 3_000_000];
    let writing = {
        node.poke(0, DATA, &big);
        node.send(0, nr::write, [socket as u64, DATA, big.len() as u64, 0, 0, 0])
    };
    assert_eq!(node.answer_within(0, writing, MOMENT), None, "the server does not read");
    let mut got = vec![0; big.len()];
    std::io::Read::read_exact(&mut peer, &mut got).expect("all of it");
    assert!(got == big);
    assert_eq!(node.answer(0, writing), big.len() as i64);
    let receiving = node.send(0, nr::recvfrom, [socket as u64, DATA, 100, 0, 0, 0]);
    assert_eq!(node.answer_within(0, receiving, MOMENT), None);
    std::io::Write::write_all(&mut peer, b"hi").expect("written");
    assert_eq!(node.answer(0, receiving), 2);
    drop(peer);
    assert_eq!(read_some(node, socket, 5).as_deref(), Ok(&b""[..]), "its end");
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn waits_end_by_time_events_and_signals() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    assert_eq!(node.call(0, nr::pipe, [OTHER, 0, 0, 0, 0, 0]), 0);
    let poll = |node: &SyntheticNode| node.poke(0, OTHER, &[3, 0, 0, 0, 1, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0]);
    poll(node);
    let start = Instant::now();
    assert_eq!(node.call(0, nr::poll, [OTHER, 1, 30, 0, 0, 0]), 0);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(node.call(0, nr::poll, [OTHER, 2, 1000, 0, 0, 0]), 1, "what is not open is found at once");
    assert_eq!(node.peek(0, OTHER + 14, 2), libc::POLLNVAL.to_le_bytes());
    let waits = node.send(0, nr::poll, [OTHER, 1, u64::MAX, 0, 0, 0]);
    assert_eq!(node.answer_within(0, waits, MOMENT), None);
    assert_eq!(node.call(1, nr::write, [4, OTHER, 1, 0, 0, 0]), 1);
    assert_eq!(node.answer(0, waits), 1);
    assert_eq!(node.peek(0, OTHER + 6, 2), [1, 0]);
    // select: descriptor 3 to read, 4 to write
    node.poke(0, DATA, &[1u64 << 3, 1 << 4, 5, 0].map(u64::to_le_bytes).concat());
    assert_eq!(node.call(0, nr::select, [5, DATA, DATA + 8, 0, DATA + 16, 0]), 2);
    assert_eq!(node.call(0, nr::select, [u64::MAX, 0, 0, 0, 0, 0]), Errno::EINVAL.result());
    // epoll
    assert_eq!(node.call(0, nr::epoll_create1, [0, 0, 0, 0, 0, 0]), 5);
    node.poke(0, DATA, &[1, 0, 0, 0, 0xaa, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(node.call(0, nr::epoll_ctl, [5, 1, 3, DATA, 0, 0]), 0);
    assert_eq!(node.call(0, nr::epoll_wait, [5, DATA + 64, 4, u64::MAX, 0, 0]), 1);
    assert_eq!(node.peek(0, DATA + 68, 1), [0xaa]);
    assert_eq!(read_some(node, 3, 10).map(|b| b.len()), Ok(1));
    assert_eq!(node.call(0, nr::epoll_wait, [5, DATA + 64, 4, 20, 0, 0]), 0);
    let waits = node.send(0, nr::epoll_wait, [5, DATA + 64, 4, u64::MAX, 0, 0]);
    assert_eq!(node.answer_within(0, waits, MOMENT), None);
    // a signal from outside ends it if the kernel says so: the program may ignore it
    job.signal(libc::SIGUSR1).expect("running");
    assert_eq!(node.answer_within(0, waits, MOMENT), None);
    assert_eq!(node.signals(0), 1 << (libc::SIGUSR1 - 1));
    node.send(0, colony_fship::message::own::CANCEL, [waits.into(), 0, 0, 0, 0, 0]);
    assert_eq!(node.answer(0, waits), Errno::EINTR.result());
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn fifos_and_locks_are_waited_for() {
    let house = House::new(2);
    let (job, mut nodes, _output) = house.run(house.spec());
    let (one, two) = nodes.split_at_mut(1);
    let (node, other) = (&mut one[0], &mut two[0]);
    assert_eq!(path(node, nr::mknod, "fifo", [u64::from(libc::S_IFIFO | 0o600), 0]), 0);
    assert!(house.path("fifo").metadata().expect("made").file_type().is_fifo());
    assert_eq!(open(node, "fifo", libc::O_RDONLY, 0), 3);
    let waits = node.send(0, nr::read, [3, DATA, 5, 0, 0, 0]);
    assert_eq!(node.answer_within(0, waits, MOMENT), None, "no writer yet is not its end");
    assert_eq!(open(other, "fifo", libc::O_WRONLY, 0), 3);
    assert_eq!(write(other, 3, b"abc"), 3);
    assert_eq!(node.answer(0, waits), 3);
    // one process waits for the lock of another
    assert_eq!((open(node, "l", NEW, 0o600), open(other, "l", NEW, 0o600)), (4, 4));
    assert_eq!(node.call(0, nr::flock, [4, libc::LOCK_EX as u64, 0, 0, 0, 0]), 0);
    let busy = other.call(0, nr::flock, [4, (libc::LOCK_EX | libc::LOCK_NB) as u64, 0, 0, 0, 0]);
    assert_eq!(busy, Errno::EAGAIN.result());
    let waits = other.send(0, nr::flock, [4, libc::LOCK_EX as u64, 0, 0, 0, 0]);
    assert_eq!(other.answer_within(0, waits, MOMENT), None);
    assert_eq!(node.call(0, nr::flock, [4, libc::LOCK_UN as u64, 0, 0, 0, 0]), 0);
    assert_eq!(other.answer(0, waits), 0);
    // ranges too, between processes of one worker
    let lock =
        [1u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    node.poke(0, DATA, &lock);
    other.poke(0, DATA, &lock);
    assert_eq!(node.call(0, nr::fcntl, [4, libc::F_SETLK as u64, DATA, 0, 0, 0]), 0);
    assert_eq!(other.call(0, nr::fcntl, [4, libc::F_SETLK as u64, DATA, 0, 0, 0]), Errno::EAGAIN.result());
    // the end of its owner frees it
    node.exit(0, 0);
    assert_eq!(other.call(0, nr::fcntl, [4, libc::F_SETLKW as u64, DATA, 0, 0, 0]), 0);
    node.ask_for_job();
    other.exit(0, 0);
    other.ask_for_job();
    assert!(job.wait().success());
}

#[test]
fn execve_replaces_the_program() {
    let house = House::new(1);
    let second = house.path("second");
    std::fs::copy(&house.program, &second).expect("copied");
    std::fs::write(house.path("script"), "#!/bin/sh\n").expect("written");
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    assert_eq!(open(node, "keep", NEW, 0o600), 3);
    assert_eq!(open(node, "close", NEW | libc::O_CLOEXEC, 0o600), 4);
    node.string(0, DATA, "argument");
    node.poke(0, OTHER, &[DATA, DATA, 0, DATA, 0].map(u64::to_le_bytes).concat());
    let exec = |node: &mut SyntheticNode, name: &str| {
        let at = node.string(0, TEXT, name);
        node.call(0, nr::execve, [at, OTHER, OTHER + 24, 0, 0, 0])
    };
    assert_eq!(exec(node, "nowhere"), Errno::ENOENT.result());
    assert_eq!(exec(node, "keep"), Errno::EACCES.result());
    assert_eq!(exec(node, "/bin/sh"), Errno::ENOEXEC.result(), "dynamic");
    assert_eq!(exec(node, "second"), 0);
    let process = node.begin().processes[0];
    let words: Vec<u64> = node
        .peek(0, process.stack, 24)
        .chunks(8)
        .map(|w| u64::from_le_bytes(w.try_into().expect("eight")))
        .collect();
    assert_eq!(words[0], 2);
    assert_eq!(node.peek(0, words[2], 9), b"argument\0");
    assert_eq!(&process.name[..7], b"second\0");
    assert_eq!(node.peek(0, DATA, 8), [0; 8], "nothing is left of the old program");
    assert_eq!(node.call(0, nr::lseek, [3, 0, 0, 0, 0, 0]), 0);
    assert_eq!(node.call(0, nr::lseek, [4, 0, 0, 0, 0, 0]), Errno::EBADF.result(), "closed");
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_slow_reader_stops_only_its_writers() {
    let house = House::new(2);
    let (job, mut nodes, mut output) = house.run(house.spec());
    let (one, two) = nodes.split_at_mut(1);
    let (node, other) = (&mut one[0], &mut two[0]);
    node.poke(0, DATA, &[b'x'; 5_000_000]);
    let writing = node.send(0, nr::write, [1, DATA, 5_000_000, 0, 0, 0]);
    assert_eq!(node.answer_within(0, writing, MOMENT), None, "it is too much to keep");
    assert_eq!(other.call(0, nr::umask, [0, 0, 0, 0, 0, 0]), 0o022, "others go on");
    let reader = std::thread::spawn(move || read(&mut output).len());
    assert_eq!(node.answer(0, writing), 5_000_000);
    assert!(finish(&job, &mut nodes).success());
    assert_eq!(reader.join().expect("read"), 5_000_000);
}

#[test]
fn lines_have_the_rank_before_them() {
    let house = House::new(2);
    let mut spec = house.spec();
    spec.labels = true;
    let (job, mut nodes, mut output) = house.run(spec);
    for (node, text) in nodes.iter_mut().zip(["one\ntwo", "three\n"]) {
        write(node, 1, text.as_bytes());
        write(node, 2, b"!\n");
    }
    assert!(finish(&job, &mut nodes).success());
    let text = read(&mut output);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: !", "0: one", "0: two", "1: !", "1: three"]);
}

#[test]
fn files_in_memory_hold_no_more_than_the_nodes() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    let (half, efbig) = (WINDOW / 2, -i64::from(libc::EFBIG));
    let name = node.string(0, FREE, "memory");
    let make = |node: &mut SyntheticNode| node.call(0, nr::memfd_create, [name, 0, 0, 0, 0, 0]);
    let first = make(node) as u64;
    let second = make(node) as u64;
    let huge = node.call(0, nr::memfd_create, [name, u64::from(libc::MFD_HUGETLB), 0, 0, 0, 0]);
    assert_eq!(huge, Errno::EINVAL.result(), "huge pages are no memory of the nodes");
    for file in [first, second] {
        assert_eq!(node.call(0, nr::fallocate, [file, 0, 0, half, 0, 0]), 0);
    }
    assert_eq!(make(node), -i64::from(libc::ENOMEM), "the account is empty");
    let kept_size = libc::FALLOC_FL_KEEP_SIZE as u64;
    assert_eq!(node.call(0, nr::fallocate, [second, kept_size, half, 4096, 0, 0]), efbig);
    assert_eq!(node.call(0, nr::ftruncate, [second, half + 1, 0, 0, 0, 0]), efbig);
    assert_eq!(node.call(0, nr::pwrite64, [second, FREE, 8, half, 0, 0]), efbig);
    assert_eq!(node.call(0, nr::pwrite64, [second, FREE, 8, half - 8, 0, 0]), 8, "within, it is written");
    let seals = [second, libc::F_GET_SEALS as u64, 0, 0, 0, 0];
    assert_eq!(node.call(0, nr::fcntl, seals), i64::from(libc::F_SEAL_SEAL), "as without an account");
    // what is given back can be had again, and files on disk have nothing to do with it
    assert_eq!(node.call(0, nr::close, [first, 0, 0, 0, 0, 0]), 0);
    assert_eq!(node.call(0, nr::ftruncate, [second, WINDOW, 0, 0, 0, 0]), 0);
    let on_disk = node.string(0, FREE, "on-disk");
    let file = node.call(0, nr::open, [on_disk, (libc::O_RDWR | libc::O_CREAT) as u64, 0o600, 0, 0, 0]);
    assert_eq!(node.call(0, nr::ftruncate, [file as u64, 4 * WINDOW, 0, 0, 0, 0]), 0);
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_file_in_memory_that_is_sent_over_a_socket_grows_no_more() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let node = &mut nodes[0];
    let name = node.string(0, TEXT, "memory");
    let file = node.call(0, nr::memfd_create, [name, 0, 0, 0, 0, 0]) as u64;
    assert_eq!(node.call(0, nr::ftruncate, [file, 8192, 0, 0, 0, 0]), 0);
    assert_eq!(node.call(0, nr::socketpair, [libc::AF_UNIX as u64, 1, 0, OTHER, 0, 0]), 0);
    let pair: Vec<u64> = node.peek(0, OTHER, 8).chunks(4).map(|n| u64::from(n[0])).collect();
    // a byte of data, and the descriptor beside it
    let (parts, control) = (OTHER + 0x100, OTHER + 0x200);
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    node.poke(0, parts, &words(&[DATA, 1]));
    let kind = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    node.poke(0, control, &words(&[20, kind, file]));
    node.poke(0, OTHER, &words(&[0, 0, parts, 1, control, 24, 0]));
    assert_eq!(node.call(0, nr::sendmsg, [pair[0], OTHER, 0, 0, 0, 0]), 1);
    node.poke(0, OTHER, &words(&[0, 0, parts, 1, control, 24, 0]));
    assert_eq!(node.call(0, nr::recvmsg, [pair[1], OTHER, 0, 0, 0, 0]), 1);
    let received = u64::from(node.peek(0, control + 16, 1)[0]);
    assert!(received > file);
    for fd in [file, received] {
        let eperm = -i64::from(libc::EPERM);
        assert_eq!(node.call(0, nr::ftruncate, [fd, 8193, 0, 0, 0, 0]), eperm);
        assert_eq!(node.call(0, nr::fallocate, [fd, 0, 0, WINDOW, 0, 0]), eperm);
        assert_eq!(node.call(0, nr::pwrite64, [fd, DATA, 4096, 0, 0, 0]), 4096, "within, it is written");
    }
    assert!(finish(&job, &mut nodes).success());
}
