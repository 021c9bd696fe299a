// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker that waits in the kernel for ever, since a file server does not answer: the job ends all the same.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, UNIX_EPOCH};

use colony_ciod::testing::FREE;
use colony_ciod::{Job, JobError, NodeState};
use colony_fship::calls::number as nr;
use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    ReplyAttr, ReplyEmpty, ReplyEntry, Request, Session, SessionACL,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::common::*;

/// One file, `file`, whose closing is never answered.
struct Silent {
    flushes: Sender<()>,
}

fn attributes(inode: INodeNo) -> FileAttr {
    let (kind, perm) = match inode {
        INodeNo::ROOT => (FileType::Directory, 0o755),
        _ => (FileType::RegularFile, 0o666),
    };
    FileAttr {
        ino: inode,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Silent {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "file" {
            true => reply.entry(&Duration::MAX, &attributes(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::MAX, &attributes(inode));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // dropped, it would answer
        std::mem::forget(reply);
        let _ = self.flushes.send(());
    }
}

/// Mounts the server at `place`.
fn serve(place: &Path, flushes: Sender<()>) -> BackgroundSession {
    let device = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("silent"), place, Some("fuse"), flags, Some(options.as_str())).expect("mounted");
    let config = fuser::Config::default();
    let session = Session::from_fd(Silent { flushes }, device.into(), SessionACL::All, config);
    session.and_then(Session::spawn).expect("served")
}

/// Runs a job whose worker is to wait for ever once it closes a file, then `end`, which must return though the worker stays.
fn stuck(end: impl FnOnce(Job)) {
    if !root() || !Path::new("/dev/fuse").exists() {
        colony_testing::skip("mounting needs root and /dev/fuse");
        return;
    }
    let mut config = config();
    config.grace = Duration::from_millis(100);
    let house = House::with(1, config);
    let place = house.path("served");
    std::fs::create_dir(&place).expect("made");
    let (flushes, flushed) = channel();
    let session = serve(&place, flushes);
    let (job, mut nodes, _output) = house.run(house.spec());
    let at = nodes[0].string(0, FREE, &format!("{}/file", place.display()));
    assert_eq!(nodes[0].call(0, nr::open, [at, libc::O_RDWR as u64, 0, 0, 0, 0]), 3);
    nodes[0].send(0, nr::close, [3, 0, 0, 0, 0, 0]);
    flushed.recv().expect("it closes the file");
    let worker = format!("/proc/{}", job.workers()[0].1);
    end(job);
    assert_eq!(house.links[0].state(), NodeState::Lost, "its worker still has the memory");
    assert!(Path::new(&worker).exists(), "the worker waits in the kernel");
    umount2(&place, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).expect("unmounted");
    // a zombie would stay
    while Path::new(&worker).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(session);
}

#[test]
fn a_job_is_over_though_its_worker_outlives_the_kill() {
    stuck(|job| {
        job.signal(libc::SIGKILL).expect("running");
        let outcome = job.wait();
        let Some(JobError::WorkerDied(how)) = &outcome.error else { panic!("{outcome:?}") };
        assert!(how.contains("it waits in the kernel"), "{how}");
        assert_eq!(outcome.lost, [0]);
    });
}

#[test]
fn a_killed_worker_ends_its_job_at_once_or_soon() {
    stuck(|job| {
        std::thread::scope(|s| {
            let waits = s.spawn(|| job.wait());
            job.kill();
            assert_eq!(waits.join().expect("ended").lost, [0]);
        });
    });
}

#[test]
fn dropping_a_job_does_not_wait_for_ever() {
    stuck(drop);
}
