// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job has the rights of its user and no others, and sees the files that it is given.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_ciod::{Bind, End, Files, JobError};
use colony_fship::Errno;
use colony_fship::calls::number as nr;

use crate::common::*;

const USER: u32 = 54_321;
const GROUP: u32 = 54_322;
const OTHER_GROUP: u32 = 54_323;
const NEW: u64 = (libc::O_CREAT | libc::O_RDWR) as u64;

fn open(node: &mut SyntheticNode, path: &str, flags: u64) -> i64 {
    let at = node.string(0, FREE, path);
    node.call(0, nr::open, [at, flags, 0o600, 0, 0, 0])
}

/// A file with this owner, group and mode.
fn file(house: &House, name: &str, owner: u32, group: u32, mode: u32) {
    let path = house.path(name);
    std::fs::write(&path, name).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("mode");
    chown(&path, Some(owner), Some(group)).expect("owner");
}

#[test]
fn every_call_has_the_user_s_rights() {
    if !root() {
        return;
    }
    let house = House::new(1);
    file(&house, "root", 0, 0, 0o600);
    file(&house, "user", USER, GROUP, 0o600);
    file(&house, "group", 0, GROUP, 0o640);
    file(&house, "supplementary", 0, OTHER_GROUP, 0o640);
    file(&house, "stranger", 99, 99, 0o660);
    file(&house, "readable", 0, 0, 0o644);
    std::fs::create_dir(house.path("own")).expect("made");
    chown(house.path("own"), Some(USER), Some(GROUP)).expect("owner");
    let mut spec = house.spec();
    spec.user = Some(USER.to_string());
    spec.group = Some(GROUP.to_string());
    spec.groups = Some(vec![OTHER_GROUP.to_string()]);
    let (job, mut nodes, _output) = house.run(spec);
    let node = &mut nodes[0];
    let denied = Errno::EACCES.result();
    let read = libc::O_RDONLY as u64;
    for name in ["root", "stranger", "/etc/shadow"] {
        assert_eq!(open(node, name, read), denied, "{name}");
    }
    for name in ["user", "group", "supplementary", "readable"] {
        assert!(open(node, name, read) > 0, "{name}");
    }
    assert_eq!(open(node, "group", libc::O_RDWR as u64), denied);
    assert_eq!(open(node, "new", NEW), denied, "root's directory");
    assert!(open(node, "own/new", NEW) > 0);
    let made = house.path("own/new").metadata().expect("made");
    assert_eq!((made.uid(), made.gid()), (USER, GROUP));
    let at = node.string(0, FREE, "own/new");
    assert_eq!(node.call(0, nr::chown, [at, 0, 0, 0, 0, 0]), Errno::EPERM.result());
    let at = node.string(0, FREE, "readable");
    assert_eq!(node.call(0, nr::unlink, [at, 0, 0, 0, 0, 0]), denied);
    assert_eq!(node.call(0, nr::chmod, [at, 0o777, 0, 0, 0, 0]), Errno::EPERM.result());
    // a raw socket, a device: what capabilities are for
    assert_eq!(node.call(0, nr::socket, [2, 3, 1, 0, 0, 0]), Errno::EPERM.result());
    let at = node.string(0, FREE, "own/device");
    assert_eq!(
        node.call(0, nr::mknod, [at, u64::from(libc::S_IFCHR | 0o666), 0x103, 0, 0, 0]),
        Errno::EPERM.result()
    );
    // what the worker is, as the system tells it
    let status = std::fs::read_to_string(format!("/proc/{}/status", job.workers()[0].1)).expect("status");
    let line = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("Uid:"), [USER.to_string(), USER.to_string(), USER.to_string(), USER.to_string()]);
    assert_eq!(line("Groups:"), [OTHER_GROUP.to_string()]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(line(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(line("NoNewPrivs:"), ["1"]);
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_job_sees_the_file_system_it_is_given() {
    if !root() {
        return;
    }
    let house = House::new(1);
    let inside = house.path("inside");
    std::fs::create_dir_all(inside.join("bin")).expect("made");
    std::fs::copy(&house.program, inside.join("bin/program")).expect("copied");
    std::fs::write(inside.join("here"), "").expect("written");
    let mut spec = colony_ciod::JobSpec::new("/bin/program");
    spec.user = Some(USER.to_string());
    spec.files = Files::Root(inside.clone());
    let (job, mut nodes, _output) = house.run(spec.clone());
    let node = &mut nodes[0];
    assert!(open(node, "/here", 0) > 0);
    assert_eq!(open(node, "/etc/passwd", 0), Errno::ENOENT.result());
    assert_eq!(open(node, "/../../../etc/passwd", 0), Errno::ENOENT.result());
    assert!(finish(&job, &mut nodes).success());
    // a name space of its own, which the others do not see
    let house = House::new(1);
    spec.executable = house.program.clone();
    std::fs::create_dir(house.path("over")).expect("made");
    let bind = Bind { from: inside, to: house.path("over"), read_only: true };
    spec.files = Files::Binds(vec![bind]);
    spec.user = None;
    let (job, mut nodes, _output) = house.run(spec);
    let node = &mut nodes[0];
    let over = house.path("over");
    assert!(open(node, &format!("{}/here", over.display()), 0) > 0);
    assert_eq!(open(node, &format!("{}/new", over.display()), NEW), -libc::EROFS as i64);
    assert!(!house.path("over/here").exists(), "for the job only");
    assert!(finish(&job, &mut nodes).success());
}

/// Runs a test on a thread that mounts for itself and its workers only: other tests may run on the calling thread later.
fn with_own_mounts(test: impl FnOnce() + Send + 'static) {
    use nix::mount::{MsFlags, mount};
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("a name space");
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private");
        test();
    });
    thread.join().expect("the thread has not panicked");
}

#[test]
fn no_way_leads_out_of_a_root_directory_with_proc() {
    if root() {
        with_own_mounts(reach_out_of_a_root_directory);
    }
}

fn reach_out_of_a_root_directory() {
    use nix::mount::{MsFlags, mount};
    let house = House::new(1);
    let inside = house.path("inside");
    std::fs::create_dir_all(inside.join("proc")).expect("made");
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some("/proc"), &inside.join("proc"), None::<&str>, bind, None::<&str>).expect("mounted");
    std::fs::copy(&house.program, inside.join("program")).expect("copied");
    let _server = std::os::unix::net::UnixListener::bind(house.path("server")).expect("server");
    std::fs::set_permissions(house.path("server"), PermissionsExt::from_mode(0o777)).expect("mode");
    file(&house, "outside", USER, USER, 0o666);
    let mut spec = colony_ciod::JobSpec::new("/program");
    spec.user = Some(USER.to_string());
    spec.files = Files::Root(inside);
    let (job, mut nodes, _output) = house.run(spec);
    let node = &mut nodes[0];
    for fd in 0..32 {
        let up = format!("/proc/self/fd/{fd}/../../..{}", house.folder.path().display());
        let at = node.string(0, FREE, &format!("{up}/outside"));
        for call in [nr::stat, nr::access, nr::truncate, nr::unlink, nr::chmod] {
            assert!(node.call(0, call, [at, FREE + 4096, 0, 0, 0, 0]) < 0, "call {call}, descriptor {fd}");
        }
        let socket = node.call(0, nr::socket, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0]) as u64;
        node.poke(0, FREE, &(libc::AF_UNIX as u16).to_le_bytes());
        node.string(0, FREE + 2, &format!("{up}/server"));
        assert!(node.call(0, nr::connect, [socket, FREE, 110, 0, 0, 0]) < 0, "descriptor {fd}");
        assert_eq!(node.call(0, nr::close, [socket, 0, 0, 0, 0, 0]), 0);
    }
    assert!(house.path("outside").metadata().expect("there").len() > 0);
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_read_only_bind_is_read_only_in_its_submounts_too() {
    if root() {
        with_own_mounts(write_below_a_read_only_bind);
    }
}

fn write_below_a_read_only_bind() {
    use nix::mount::{MsFlags, mount};
    let house = House::new(1);
    let (from, to) = (house.path("from"), house.path("to"));
    let tmpfs = |place: &std::path::Path| {
        std::fs::create_dir(place).expect("made");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), place, Some("tmpfs"), flags, None::<&str>).expect("mounted");
    };
    tmpfs(&from);
    tmpfs(&from.join("below"));
    std::fs::create_dir(&to).expect("made");
    let mut spec = house.spec();
    spec.files = Files::Binds(vec![Bind { from, to: to.clone(), read_only: true }]);
    let (job, mut nodes, _output) = house.run(spec);
    for place in [to.clone(), to.join("below")] {
        let got = open(&mut nodes[0], &format!("{}/new", place.display()), NEW);
        assert_eq!(got, -i64::from(libc::EROFS), "{}", place.display());
        let mounts =
            std::fs::read_to_string(format!("/proc/{}/mountinfo", job.workers()[0].1)).expect("mounts");
        let place = format!(" {} ", place.display());
        let line = mounts.lines().find(|l| l.contains(&place)).expect("it is mounted");
        assert!(line.contains(" ro,nosuid,nodev"), "the rest is as it was: {line}");
    }
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_program_that_the_user_may_not_run_is_refused() {
    if !root() {
        return;
    }
    let house = House::new(1);
    std::fs::set_permissions(&house.program, PermissionsExt::from_mode(0o700)).expect("mode");
    let mut spec = house.spec();
    spec.user = Some(USER.to_string());
    let (job, _output) = house.launch(spec.clone());
    let outcome = job.wait();
    assert!(
        matches!(
            &outcome.error,
            Some(JobError::Program { why: colony_ciod::ProgramError::NotExecutable, .. })
        ),
        "{outcome:?}"
    );
    assert!(outcome.lost.is_empty(), "the node can have another job");
    std::fs::set_permissions(&house.program, PermissionsExt::from_mode(0o755)).expect("mode");
    std::fs::set_permissions(house.folder.path(), PermissionsExt::from_mode(0o700)).expect("mode");
    let (job, _output) = house.launch(spec);
    assert!(matches!(job.wait().error, Some(JobError::Directory { .. })));
    // and root's own job runs there
    let (job, mut nodes, _output) = house.run(house.spec());
    assert_eq!(finish(&job, &mut nodes).processes[0].end, End::Exited(0));
}
