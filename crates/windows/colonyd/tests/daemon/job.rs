// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job: who joins, who inherits, and that every task gets its own class back.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use colony_client::Backend;
use colony_node::class::{self, Class};
use colony_node::cpu::{self, CpuSet};
use colony_node::task;
use colony_testing::is_gone;
use colony_time::WindowKind;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::support::{Daemon, NOBODY, mounted, possible, real_time, text, wait_until};

/// One job at a time: they share a CPU.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A daemon, where jobs can be scheduled.
fn daemon(config: &str) -> Option<Daemon> {
    if !possible() {
        return None;
    }
    real_time().then(|| Daemon::start(config))
}

/// Processes of a test, ended with it.
struct Group(Child);

impl Group {
    fn start(daemon: &Daemon, uid: u32, script: &str) -> Self {
        let mut shell = Command::new("nice");
        shell
            .args(["-n", "5", "sh", "-c", script])
            .env("M", &daemon.mount)
            .process_group(0)
            .uid(uid)
            .gid(uid);
        Self(shell.spawn().expect("nice and sh"))
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn end(&mut self) {
        let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

const FAMILY: &str = "echo 1 > $M/job; sleep 1000 & exec sleep 1000";

/// The class of every process of a [`Group`].
const OWN: Class = Class::Other(5);

/// A shell that joins and its child, both switched by the agent.
fn family(daemon: &Daemon) -> (Group, [i32; 2]) {
    let group = Group::start(daemon, 0, FAMILY);
    let me = group.pid();
    let mut child = None;
    wait_until("the child runs its program", || {
        child = task::children(me).into_iter().find(|&c| task::name(c).as_deref() == Some("sleep"));
        child.is_some()
    });
    let both = [me, child.expect("found")];
    wait_until("both are members and switched", || {
        let members = daemon.client().job().expect("readable");
        let switched = |&pid: &i32| matches!(class::get(pid), Ok(Class::Fifo(_) | Class::Idle));
        both.iter().all(|pid| members.contains(pid) && switched(pid))
    });
    (group, both)
}

fn in_own_class(tasks: &[i32]) -> bool {
    tasks.iter().all(|&tid| class::get(tid).is_ok_and(|c| c == OWN))
}

#[test]
fn a_shell_joins_its_children_inherit_and_the_agent_ends_with_the_last() {
    let _alone = alone();
    let Some(daemon) = daemon("") else { return };
    let client = daemon.client();
    assert!(!client.stats().expect("readable").job.active);
    for jobs in 1..=2 {
        let (mut group, both) = family(&daemon);
        let stats = client.stats().expect("readable");
        assert!(stats.job.active && stats.job.jobs == jobs, "{:?}", stats.job);
        assert!(stats.job.processes.len() >= both.len() && stats.job.tasks >= both.len(), "{:?}", stats.job);
        wait_until("edges are handled", || {
            client.stats().expect("readable").agent.is_some_and(|a| a.edges > 4)
        });
        group.end();
        wait_until("the agent stops", || !client.stats().expect("readable").job.active);
        assert!(client.stats().expect("readable").agent.is_some(), "its figures stay");
        assert_eq!(daemon.read("job"), "");
    }
}

#[test]
fn windows_change_under_a_running_job() {
    let _alone = alone();
    let Some(daemon) = daemon("") else { return };
    let (_group, _) = family(&daemon);
    let client = daemon.client();
    for (period, duty) in [("20ms", "50%"), ("10ms", "30%")] {
        assert_eq!(daemon.errno("duty_cycle", duty), None);
        assert_eq!(daemon.errno("period", period), None);
        let edges = || client.stats().expect("readable").agent.expect("it runs").edges;
        let before = edges();
        wait_until("edges go on", || edges() > before + 4);
    }
}

#[test]
fn kill_9_of_the_daemon_gives_every_task_its_class_back() {
    let _alone = alone();
    let Some(mut daemon) = daemon("") else { return };
    let (_group, both) = family(&daemon);
    daemon.signal(Signal::SIGKILL);
    wait_until("both have their own class again", || in_own_class(&both));
    wait_until("the mount is gone", || is_gone(&daemon.mount));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(in_own_class(&both), "and keep it");
}

#[test]
fn a_job_goes_on_under_the_next_daemon_however_the_last_one_ended() {
    let _alone = alone();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let Some(mut daemon) = daemon("") else { return };
        let (mut group, both) = family(&daemon);
        daemon.signal(signal);
        wait_until("both have their own class again", || in_own_class(&both));
        let daemon = daemon.again("");
        let stats = daemon.client().stats().expect("readable");
        assert!(both.iter().all(|pid| stats.job.processes.contains(pid)), "{signal}: {:?}", stats.job);
        assert_eq!((stats.job.active, stats.kept_by), (true, Backend::Agent));
        wait_until("both are switched again", || both.iter().all(|&t| class::get(t).is_ok_and(|c| c != OWN)));
        group.end();
        wait_until("the job ends", || !daemon.client().stats().expect("readable").job.active);
        // and the one after that has no job
        let state = daemon.mount.with_file_name("colony-state");
        assert!(!state.exists(), "{} is left", state.display());
    }
}

#[test]
fn another_users_job_can_be_joined_by_root_only() {
    let _alone = alone();
    let Some(daemon) = daemon("[access]\nusers = [\"65534\", \"65533\"]\n") else { return };
    let mut group = Group::start(&daemon, NOBODY, "echo 1 > $M/job; exec sleep 1000");
    wait_until("the job runs", || daemon.client().job().expect("readable") == [group.pid()]);
    let join = "echo 1 | tee $M/job > /dev/null; cat $M/last_error";
    let said = text(&daemon.shell_as(Some(65533), join));
    assert!(said.contains("user 65534's job runs, and user 65533 may not join it"), "{said}");
    assert!(said.contains("Device or resource busy"), "{said}");
    assert_eq!(daemon.client().job().expect("readable"), [group.pid()]);
    // also under the next daemon
    let mut daemon = daemon;
    daemon.signal(Signal::SIGTERM);
    let daemon = daemon.again("[access]\nusers = [\"65534\", \"65533\"]\n");
    let said = text(&daemon.shell_as(Some(65533), join));
    assert!(said.contains("user 65533 may not join it"), "{said}");
    // its own user, and root, may add to it; when it has ended, another one may have a job
    assert_eq!(text(&daemon.shell_as(Some(NOBODY), join)), "");
    assert_eq!(text(&daemon.shell("echo 1 > $M/job")), "");
    group.end();
    wait_until("the job ends", || !daemon.client().stats().expect("readable").job.active);
    assert_eq!(text(&daemon.shell_as(Some(65533), join)), "");
}

#[test]
fn a_clean_end_gives_every_task_its_class_back() {
    let _alone = alone();
    let Some(mut daemon) = daemon("") else { return };
    let (_group, both) = family(&daemon);
    assert_eq!(daemon.signal(Signal::SIGTERM).code(), Some(0));
    assert!(in_own_class(&both), "when it has ended, not later");
    assert!(is_gone(&daemon.mount));
}

#[test]
fn a_user_who_may_registers_own_processes() {
    let _alone = alone();
    let Some(daemon) = daemon("[access]\ngroups = [\"65534\"]\n") else { return };
    let group = Group::start(&daemon, NOBODY, "sleep 1000 & echo $! > $M/job; exec sleep 1000");
    wait_until("only the child is a member", || {
        let members = daemon.client().job().expect("readable");
        let children = task::children(group.pid());
        !children.is_empty() && members == children
    });
}

#[test]
fn a_program_joins_before_it_begins() {
    let _alone = alone();
    let Some(daemon) = daemon("") else { return };
    let mut sleep = Command::new("sleep");
    let client = daemon.client();
    let mut group = Group(
        client
            .join_on_start(sleep.arg("1000").process_group(0))
            .expect("allowed")
            .spawn()
            .expect("it joins and starts"),
    );
    assert_eq!(client.job().expect("readable"), [group.pid()]);
    group.end();
    // a member that has ended cannot be named again
    let error = client.join(group.pid()).expect_err("gone").to_string();
    assert!(error.contains("no such process"), "{error}");
}

#[test]
fn a_thread_that_joins_brings_its_process() {
    let _alone = alone();
    let Some(daemon) = daemon("") else { return };
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", "job::the_program_whose_thread_joins"]).process_group(0);
    program.stdout(std::process::Stdio::null()).env(HELPER, &daemon.mount);
    let group = Group(program.spawn().expect("it starts"));
    wait_until("the process is a member", || daemon.client().job().expect("readable") == [group.pid()]);
}

const HELPER: &str = "COLONY_TEST_JOIN_FROM_THREAD";

/// The program that the test above starts; does nothing otherwise.
#[test]
fn the_program_whose_thread_joins() {
    let Some(mount) = std::env::var_os(HELPER) else { return };
    let join = move || std::fs::write(std::path::Path::new(&mount).join("job"), "1");
    std::thread::spawn(join).join().expect("no panic").expect("allowed");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn the_daemon_and_the_kernel_are_no_job() {
    let _alone = alone();
    let Some(daemon) = daemon("") else { return };
    let kthreadd = 2;
    if task::name(kthreadd).as_deref() == Some("kthreadd") {
        assert_eq!(daemon.errno("job", "2"), Some(libc::EINVAL));
        assert!(daemon.read("last_error").contains("kernel"), "{}", daemon.read("last_error"));
    }
    for pid in [daemon.pid(), daemon.guard()] {
        assert_eq!(daemon.errno("job", &pid.to_string()), Some(libc::EINVAL));
    }
    let out = daemon.shell("cat $M/job");
    assert_eq!(text(&out), "");
}

fn on_cpus(tasks: &[i32], cpus: &CpuSet) -> bool {
    tasks.iter().all(|&t| cpu::affinity(t).is_ok_and(|a| a == *cpus))
}

#[test]
fn a_job_keeps_to_its_cpus_and_has_its_own_back_however_the_daemon_ends() {
    let _alone = alone();
    let usable = cpu::usable().expect("linux");
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let Some(mut daemon) = daemon("") else { return };
        let (_group, both) = family(&daemon);
        assert!(on_cpus(&both, &daemon.client().stats().expect("readable").cpus));
        daemon.signal(signal);
        wait_until("both may run everywhere again", || on_cpus(&both, &usable));
    }
}

/// Returns `true` if the kernel reports the death of the daemon. A test in other namespaces than those of the kernel's own threads is a
/// skip; a daemon without a release agent in the first ones is a failure.
fn has_release_agent(daemon: &Daemon) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", daemon.pid())).expect("alive");
    if groups.contains(&format!("name=colony-undo:/colony-undo.{}.", daemon.pid())) {
        return true;
    }
    // process 2 is the parent of all kernel threads
    let differs = |kind: &str| {
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
        of("self") != of("2")
    };
    let other: Vec<&str> = ["pid", "mnt"].into_iter().filter(|kind| differs(kind)).collect();
    assert!(!other.is_empty(), "the daemon has no release agent: {groups}\n{}", daemon.log());
    colony_testing::skip(format_args!("other namespaces than those of the kernel: {}", other.join(", ")));
    false
}

#[test]
fn every_process_of_the_daemon_killed_at_once_leaves_nothing() {
    let _alone = alone();
    for guards_first in [true, false] {
        let Some(mut daemon) = daemon("") else { return };
        if !has_release_agent(&daemon) {
            return;
        }
        let (_group, both) = family(&daemon);
        let mut ours = task::tree(daemon.pid().as_raw());
        assert!(ours.len() > 2, "guard and guardian: {ours:?}");
        if guards_first {
            ours.reverse();
        }
        for pid in ours {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).expect("ours");
        }
        daemon.child.wait().expect("ours");
        let usable = cpu::usable().expect("linux");
        wait_until("both have their class and CPUs again", || in_own_class(&both) && on_cpus(&both, &usable));
        wait_until("the mount is gone", || is_gone(&daemon.mount));
    }
}

/// A daemon in a mount namespace of its own, with the configuration of another one: its shell, its mount point, and its process.
/// `prepare`: a command that the shell runs before.
fn daemon_inside(other: &Daemon, prepare: &str) -> (Group, PathBuf, i32) {
    let mount = other.folder().join("inside");
    // the daemon need not remove it; if it did, in any namespace, the kernel would detach what is mounted there in all of them
    std::fs::create_dir(&mount).expect("room");
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "-ec"]);
    inside.arg(format!(
        "{prepare}; \"$D\" --config \"$C\" --mount \"$M\" & echo $! > \"$M.pid\"; exec sleep 1000"
    ));
    inside.env("M", &mount).env("D", env!("CARGO_BIN_EXE_colonyd"));
    inside.env("C", other.folder().join("colonyd.toml")).process_group(0);
    let inside = Group(inside.spawn().expect("unshare"));
    let stats = seen_inside(&inside, &mount).join("stats");
    wait_until("the daemon shows its files", || stats.is_file());
    let daemon = std::fs::read_to_string(mount.with_extension("pid")).expect("written");
    (inside, mount, daemon.trim().parse().expect("a number"))
}

/// A path of the mount namespace of a process.
fn seen_inside(inside: &Group, path: &Path) -> PathBuf {
    let below = path.strip_prefix("/").expect("absolute");
    Path::new(&format!("/proc/{}/root", inside.pid())).join(below)
}

#[test]
fn a_process_that_keeps_the_ledger_locked_delays_the_daemon_by_seconds_and_keeps_no_task_from_its_own_cpus() {
    let _alone = alone();
    let Some(other) = daemon("") else { return };
    // a ledger of its own: other tests use that of the machine
    let own_ledger = "mkdir -p /run/colony-undo; mount -t tmpfs -o mode=700 none /run/colony-undo";
    let (inside, mount, daemon) = daemon_inside(&other, own_ledger);
    let file = |name: &str| seen_inside(&inside, &mount).join(name);
    let join = |pid: i32| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(file("job"))
            .and_then(|mut job| std::io::Write::write_all(&mut job, pid.to_string().as_bytes()))
    };
    let [first, second] = [(); 2].map(|()| Group::start(&other, 0, "exec sleep 1000"));
    join(first.pid()).expect("root may");
    let (usable, job) = (cpu::usable().expect("linux"), other.client().stats().expect("readable").cpus);
    wait_until("it is on the job's CPUs", || on_cpus(&[first.pid()], &job));

    let path = seen_inside(&inside, Path::new("/run/colony-undo/affinities.lock"));
    let held = colony_ledger::lock_file(&path, Duration::from_secs(30)).expect("free soon");
    for name in ["stats", "period", "job"] {
        std::fs::read_to_string(file(name)).expect("readable");
    }
    join(second.pid()).expect_err("its CPUs cannot be noted");
    let reason = std::fs::read_to_string(file("last_error")).expect("readable");
    assert!(reason.contains(&format!("locked by process {}", std::process::id())), "{reason}");
    nix::sys::signal::kill(Pid::from_raw(daemon), Signal::SIGTERM).expect("ours");
    wait_until("the daemon has ended", || task::stat(daemon).map_or(true, |stat| stat.has_ended()));
    assert!(on_cpus(&[first.pid(), second.pid()], &usable));
    drop(held);
}

#[test]
fn a_daemon_in_another_mount_namespace_leaves_nothing_there_when_all_its_processes_are_killed() {
    let _alone = alone();
    let Some(other) = daemon("") else { return };
    if !has_release_agent(&other) {
        return;
    }
    let (inside, mount, daemon) = daemon_inside(&other, "true");
    let mounts = || std::fs::read_to_string(format!("/proc/{}/mountinfo", inside.pid())).expect("alive");
    let at = format!(" {} ", mount.display());
    assert!(mounts().contains(&at) && !mounted(&mount), "here, the place is an empty folder");
    wait_until("the guard has started", || task::tree(daemon).len() > 1);
    for pid in task::tree(daemon) {
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).expect("ours");
    }
    wait_until("the mount is gone", || !mounts().contains(&at));
    assert!(mount.is_dir(), "it was there before");
}

#[test]
fn a_release_agent_that_is_removed_is_there_again_at_the_next_change() {
    let _alone = alone();
    let Some(daemon) = daemon("") else { return };
    if !has_release_agent(&daemon) {
        return;
    }
    let copy = std::path::Path::new("/var/lib/colony-undo/release-agent");
    std::fs::remove_file(copy).expect("the daemon has made it");
    let _family = family(&daemon);
    wait_until("the release agent is there again", || copy.is_file());
}

#[test]
fn changes_left_behind_are_undone_on_request() {
    let out = crate::support::program().arg("--restore").output().expect("colonyd starts");
    assert!(out.status.success(), "{}", text(&out));
    let wrong = crate::support::program().args(["--restore", "--check"]).output().expect("colonyd starts");
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
}

#[test]
fn an_orphan_has_its_cpus_back_too() {
    let _alone = alone();
    let Some(mut daemon) = daemon("") else { return };
    // the shell that was registered ends at once; the job is what it left behind
    let group = Group::start(&daemon, 0, "echo 1 > $M/job; sleep 1000 & sleep 0.3");
    wait_until("only the orphan is left", || {
        let members = daemon.client().job().expect("readable");
        members.len() == 1
            && members != [group.pid()]
            && task::stat(group.pid()).is_ok_and(|s| s.state == b'Z')
    });
    let orphan = daemon.client().job().expect("readable");
    // the daemon looks at the job twice a second
    std::thread::sleep(std::time::Duration::from_secs(1));
    daemon.signal(Signal::SIGKILL);
    wait_until("it is as it was", || {
        in_own_class(&orphan) && on_cpus(&orphan, &cpu::usable().expect("linux"))
    });
}

#[test]
fn a_process_that_may_use_none_of_the_jobs_cpus_is_refused() {
    let _alone = alone();
    let Some(daemon) = daemon("") else { return };
    let usable = cpu::usable().expect("linux");
    if usable.len() < 2 {
        return colony_testing::skip("there is one CPU only");
    }
    let first = usable.first().expect("a CPU");
    let out = daemon.shell(&format!("taskset -c {first} sh -c 'echo 1 > $M/job'; cat $M/last_error $M/job"));
    assert!(text(&out).contains("taskset -a -c -p"), "{}", text(&out));
}

#[test]
fn the_shell_that_started_the_daemon_can_join_without_it() {
    let _alone = alone();
    let Some(other) = daemon("") else { return };
    let mount = other.folder().join("second");
    let script = "\"$D\" --config \"$C\" --mount \"$M\" 2> /dev/null & echo $! > \"$M.pid\"
        until [ -e $M/job ]; do sleep 0.1; done
        echo 1 > $M/job; sleep 1000 & exec sleep 1000";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).process_group(0).env("M", &mount).env("D", env!("CARGO_BIN_EXE_colonyd"));
    let group = Group(shell.env("C", other.folder().join("colonyd.toml")).spawn().expect("sh"));
    let client = || colony_client::Client::at(&mount);
    wait_until("the shell is a member", || {
        client().is_some_and(|c| c.job().expect("readable").contains(&group.pid()))
    });
    let daemon: i32 = std::fs::read_to_string(mount.with_extension("pid"))
        .expect("written")
        .trim()
        .parse()
        .expect("a number");
    let stats = client().expect("it runs").stats().expect("readable");
    let ours = task::tree(daemon);
    assert!(ours.len() > 2, "the guards are among them: {ours:?}");
    assert!(ours.iter().all(|p| !stats.job.processes.contains(p)), "{ours:?} {:?}", stats.job);
    drop(group);
    wait_until("the daemon, killed with its shell, left nothing", || is_gone(&mount));
}

#[test]
fn the_files_answer_while_a_job_holds_its_cpus() {
    let _alone = alone();
    let Some(daemon) = daemon("period = \"6s\"\nduty_cycle = \"95%\"\n") else { return };
    let _group = Group::start(&daemon, 0, "echo 1 > $M/job; while :; do :; done");
    wait_until("the job spins", || daemon.client().stats().expect("readable").job.active);
    let client = daemon.client();
    // an answer that waits for a regular window comes alone in its favored one
    let mut windows = BTreeMap::new();
    wait_until("fifty answers come within one favored window", || {
        let clock = client.clock().expect("readable");
        let answers = windows.entry(clock.next_edge_ns).or_insert(0);
        *answers += u32::from(clock.window == WindowKind::Favored);
        *answers >= 50
    });
}
