// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine whose disk is full: requests are refused with the reason, what runs goes on, and nothing is lost.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::control::{Machine, is_running};

/// A small file system, which only this thread and what it starts see.
struct Disk(PathBuf);

impl Disk {
    /// `None`, with the reason printed, for users who may not mount.
    fn new(folder: PathBuf, mib: u32) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            colony_testing::skip("only root may mount a small file system");
            return None;
        }
        unshare(CloneFlags::CLONE_NEWNS).expect("a name space");
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private");
        std::fs::create_dir(&folder).expect("made");
        let size = format!("size={mib}m");
        mount(Some("small"), &folder, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).expect("mounted");
        Some(Self(folder))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves not a byte free.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).expect("made");
        for size in [1 << 16, 1] {
            let block = vec![1; size];
            let full = loop {
                if let Err(error) = file.write_all(&block) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull);
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.filler()).expect("removed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Switches the machine off while its folder is there, even if the test fails.
struct Off<'a>(&'a Machine);

impl Drop for Off<'_> {
    fn drop(&mut self) {
        let _ = self.0.output(&["machine", "down"]);
    }
}

fn touch(path: &Path) {
    std::fs::write(path, []).expect("made");
}

#[test]
fn a_machine_with_a_full_disk_refuses_jobs_loses_none_and_goes_on_when_there_is_room() {
    let Some(machine) = Machine::new() else { return };
    let Some(disk) = Disk::new(machine.path().join("m"), 8) else { return };
    let off = Off(&machine);
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let text = "while [ ! -e go ]; do :; done; echo x >> ran; exit 3";
    let running = machine.done(&machine.script("submit", "1", text)).trim().to_owned();
    let queued = machine.done(&machine.script("submit", "1", "echo x >> ran.queued")).trim().to_owned();
    machine.wait("the job runs", || machine.job(&running)["state"] == "running");
    disk.fill();
    let (code, errors) = machine.fails(&machine.script("submit", "1", "echo x >> ran.refused"));
    assert!(code == Some(1) && errors.contains("full"), "{code:?} {errors}");
    assert_eq!(machine.job(&queued)["state"], "queued", "it can be read");
    // a job ends meanwhile, and the daemon is killed
    touch(&machine.path().join("go"));
    machine.wait("the job has done its work", || machine.path().join("ran").exists());
    kill(Pid::from_raw(machine.daemon().expect("it runs")), Signal::SIGKILL).expect("it runs");
    disk.empty();
    assert_eq!(machine.ended(&running)["code"], 3);
    assert_eq!(machine.ended(&queued)["code"], 0);
    let ran = |name: &str| std::fs::read_to_string(machine.path().join(name)).ok();
    assert_eq!((ran("ran").as_deref(), ran("ran.queued").as_deref()), (Some("x\n"), Some("x\n")));
    assert_eq!(ran("ran.refused"), None, "what was refused does not run");
    machine.wait("all nodes are ready", || machine.all_are("ready"));
    drop(off);
}

#[test]
fn ends_of_jobs_cancels_and_the_switching_off_are_stored_on_a_full_disk() {
    let Some(machine) = Machine::new() else { return };
    let Some(disk) = Disk::new(machine.path().join("m"), 64) else { return };
    let off = Off(&machine);
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let submit = |text| machine.done(&machine.script("submit", "1", text)).trim().to_owned();
    let running = submit("while [ ! -e go ]; do :; done; exit 3");
    let queued = submit("echo x >> ran.queued");
    machine.wait("the job runs", || machine.job(&running)["state"] == "running");
    disk.fill();
    let (code, errors) = machine.fails(&machine.script("submit", "1", "true"));
    assert!(code.is_some() && errors.contains("full"), "{code:?} {errors}");
    machine.done(&["job", "cancel", &queued]);
    assert_eq!(machine.ended(&queued)["code"], 143);
    touch(&machine.path().join("go"));
    assert_eq!(machine.ended(&running)["code"], 3);
    let (owner, emulators) = (machine.owner(), machine.emulators());
    machine.done(&["machine", "down"]);
    machine
        .wait_quietly("all processes end", || !emulators.iter().chain([&owner]).any(|pid| is_running(*pid)));
    assert!(!machine.path().join("ran.queued").exists());
    disk.empty();
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    assert_eq!(machine.job(&running)["code"], 3);
    assert_eq!(submit("true"), (running.parse::<u64>().expect("a number") + 2).to_string());
    assert!(machine.path().join("m/reserve").exists(), "room is reserved again");
    drop(off);
}
