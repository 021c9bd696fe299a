// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common part of the tests. The test program is also the guardian, the agent's process and the job's program:
//! it starts itself again, and what it then is gets decided before the test harness runs.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use colony_ledger::Affinities;
use colony_node::class::{self, Class};
use colony_node::cpu::{self, CpuSet};
use colony_node::privilege::Privileges;
use colony_node::task;
use colony_sched::agent::{Agent, AgentConfig, RegularClass};
use colony_sched::backend::BackendChoice;
use colony_sched::binding;
use colony_sched::job::Job;
use colony_sched::run::{RunConfig, run};
use colony_sched::spare::{Reservation, SpareCores};
use colony_sched::undo::{self, NodeChanges, UndoFile};
use colony_testing::machine::{self, MachineLock};
use colony_time::{DutyCycle, Windows};

pub(crate) const FIXTURE: &str = "--fixture";

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    colony_sched::main_if_asked();
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|a| a == FIXTURE) {
        fixture(&arguments[2..]);
        std::process::exit(0);
    }
}

fn fixture(arguments: &[String]) {
    let (what, rest) = arguments.split_first().expect("a fixture's name");
    let number = |i: usize| rest[i].parse::<u64>().expect("a number");
    match what.as_str() {
        "spin" => spin_for(Duration::from_millis(number(0))),
        "burst" => burst(Duration::from_millis(number(0)), Duration::from_millis(number(1)), number(2)),
        "fork" => fork_spinners(number(0), number(1)),
        "agent" => agent(rest.iter().map(|pid| pid.parse().expect("a process"))),
        "rename" => rename_and_spin(Duration::from_millis(number(0)), Duration::from_millis(number(1))),
        "leaderless" => leave_a_thread(Duration::from_millis(number(0)), Duration::from_millis(number(1))),
        "orphans" => leave_orphans(number(0), Duration::from_millis(number(1))),
        "orphan-of" => std::thread::sleep(Duration::from_secs(60)),
        "escape" => escape(&rest[0].parse().expect("a list"), Duration::from_millis(number(1))),
        "arm" => arm_and_disarm(),
        "change" => change_node(rest[0].parse().expect("a process"), rest[1].as_ref()),
        "reserve" => reserve(&rest[0].parse().expect("spare cores")),
        "restore" => drop(colony_sched::restore()),
        "run" => run_and_print(&rest[0], rest[1..].iter().map(OsString::from).collect()),
        other => panic!("no fixture {other}"),
    }
}

fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The noise: bursts of CPU time with sleeps between, for a bounded time.
fn burst(on: Duration, off: Duration, total_ms: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(total_ms) {
        spin_for(on);
        std::thread::sleep(off);
    }
}

/// Forks children one after the other, each of which spins.
fn fork_spinners(count: u64, spin_ms: u64) {
    let children: Vec<Child> = (0..count)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(70));
            me(&["spin", &spin_ms.to_string()]).spawn().expect("itself")
        })
        .collect();
    for mut child in children {
        child.wait().expect("ours");
    }
}

/// Has a name that is not UTF-8 after a while.
fn rename_and_spin(before: Duration, time: Duration) {
    spin_for(before);
    nix::sys::prctl::set_name(c"\xff\xfe").expect("any bytes");
    spin_for(time);
}

/// Ends its first thread after a while, by the system call; another one spins.
fn leave_a_thread(before: Duration, time: Duration) {
    std::thread::spawn(move || {
        spin_for(before + time);
        std::process::exit(0);
    });
    std::thread::sleep(before);
    // SAFETY: ends this thread only; nothing of it is used after.
    unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
}

/// Leaves sleeping processes behind whose parents end at once, over `time`, once it is a member of a job.
fn leave_orphans(count: u64, time: Duration) {
    while class::get(0).is_ok_and(|own| own == Class::Other(0)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let me_as = std::process::id().to_string();
    for _ in 0..count {
        // a shell that forks, and ends before anybody can have seen it
        let words = my_words(&["orphan-of", &me_as]).join(" ");
        let shell = Command::new("sh").args(["-c", &format!("{words} &")]).status();
        assert!(shell.expect("sh").success());
        std::thread::sleep(time / u32::try_from(count).unwrap_or(1));
    }
    std::thread::sleep(Duration::from_secs(60));
}

/// Goes to other CPUs whenever it is not there.
fn escape(to: &CpuSet, time: Duration) {
    let start = Instant::now();
    spin_for(Duration::from_millis(300));
    while start.elapsed() < time {
        cpu::bind(0, to).expect("its own affinity");
        spin_for(Duration::from_millis(1));
    }
}

/// An agent for these processes, until it is killed or told to end by the end of its input.
fn agent(pids: impl Iterator<Item = i32>) {
    let job = Arc::new(Job::new());
    pids.for_each(|pid| job.add(pid).expect("alive"));
    let agent = Agent::start(AgentConfig::new(windows(), last_cpu()), job).expect("privileged");
    println!("ready");
    std::io::stdout().flush().expect("the test reads");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    println!("{}", serde_json::to_string(&agent.stop()).expect("plain data"));
}

/// Has the kernel start a release agent for this process, reports `armed`, `failed: REASON`, or `never: FACT` if this node cannot
/// have one, and ends in order.
fn arm_and_disarm() {
    match undo::arm() {
        Ok(()) => println!("armed"),
        Err(e) if e.is_permanent() => println!("never: {e}"),
        Err(e) => println!("failed: {e}"),
    }
}

/// Changes the node as a daemon does, until it is killed: binds process `pid` to the job's CPU and makes a mount point.
fn change_node(pid: i32, mount: &Path) {
    undo::arm().expect("privileged");
    let changes_of_affinity = binding::plan(pid, &last_cpu(), &[]).expect("it may use that CPU");
    let mut affinities = Affinities::new().expect("a folder");
    let file = UndoFile::new(undo::DAEMON).expect("a folder");
    let changes = NodeChanges {
        mount: mount.into(),
        remove: true,
        affinities: Some(affinities.owner()),
        ..NodeChanges::default()
    };
    file.save(&changes).expect("writable");
    std::fs::create_dir(mount).expect("its parent is there");
    assert_eq!(affinities.bind(&changes_of_affinity).expect("writable"), []);
    println!("ready");
    std::io::stdout().flush().expect("the test reads");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    changes.undo_at_once();
    std::fs::remove_dir(mount).expect("empty");
    file.remove();
    println!("ended");
}

/// Reserves the last CPU for a job without a process, until it is killed or told to end by the end of its input.
fn reserve(spare: &SpareCores) {
    let job = Arc::new(Job::new());
    let split = spare.split(Some(&last_cpu())).expect("two CPUs");
    let reservation = Reservation::make(split, &job).expect("privileged");
    println!("ready");
    std::io::stdout().flush().expect("the test reads");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    assert_eq!(reservation.end().not_undone, Vec::<String>::new());
    println!("ended");
}

fn run_and_print(backend: &str, command: Vec<OsString>) {
    let backend = if backend == "agent" { BackendChoice::Agent } else { BackendChoice::None };
    let config = RunConfig {
        windows: windows(),
        backend,
        cpus: Some(last_cpu()),
        ext: colony_sched::ext::ExtOptions::default(),
        spare: None,
        regular: RegularClass::Idle,
        pages: None,
        command,
    };
    match run(&config) {
        Ok(report) => println!("{}", serde_json::to_string(&report).expect("plain data")),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    }
}

/// This program as a fixture.
pub(crate) fn me(arguments: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(FIXTURE).args(arguments);
    command
}

/// Set in the process of a test that has one of its own.
const OWN_PROCESS: &str = "COLONY_TEST_OWN_PROCESS";

/// Runs the body of a test in a process of its own. The process of an agent locks its memory and stays in a control group whose
/// members are in no job, and so would be all that other tests start in that process later. `test` is the name of the calling
/// test with its module.
pub(crate) fn in_own_process(test: &str, body: impl FnOnce()) {
    if std::env::var_os(OWN_PROCESS).is_some() {
        return body();
    }
    let mut again = Command::new("/proc/self/exe");
    let out = again.args(["--exact", test, "--nocapture"]).env(OWN_PROCESS, "1").output().expect("itself");
    let (said, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    eprint!("{errors}");
    // a name without a test runs none, and that succeeds
    assert!(out.status.success() && said.contains("ok. 1 passed"), "{test}: {said}{errors}");
}

/// The command line of a fixture, as words.
pub(crate) fn my_words(arguments: &[&str]) -> Vec<String> {
    let exe = std::env::current_exe().expect("linux").to_string_lossy().into_owned();
    [exe, FIXTURE.into()].into_iter().chain(arguments.iter().map(|a| (*a).to_owned())).collect()
}

/// A fixture bound to the job's CPU.
pub(crate) fn on_the_job_cpu(mut command: Command) -> Command {
    let cpus = last_cpu();
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(move || cpu::bind(0, &cpus).map_err(std::io::Error::other)) };
    command
}

/// 100 ms windows, 80 % favored, as in the measurement the agent has to meet.
pub(crate) fn windows() -> Windows {
    Windows::new(100_000_000, DutyCycle::Ppm(800_000), 0).expect("valid")
}

/// The job's CPU in tests: one, so that another always stays free. The first call decides; later the calling thread may be bound.
pub(crate) fn last_cpu() -> CpuSet {
    static LAST_CPU: OnceLock<CpuSet> = OnceLock::new();
    LAST_CPU.get_or_init(|| cpu::usable().expect("linux").iter().last().into_iter().collect()).clone()
}

/// The job's CPU, for one test at a time on this machine, whichever test program it is in: two jobs that are
/// favored at once hold each other up. `None` where the agent cannot be tested, with the reason printed.
pub(crate) fn the_job_cpu() -> Option<MachineLock> {
    if !Privileges::here().real_time || !nix::unistd::geteuid().is_root() {
        colony_testing::skip("real-time classes need root");
        return None;
    }
    let lock = crate::lock::job_cpu();
    // a job with spare cores that somebody else runs here leaves this process some CPUs only, until it ends
    let is_one = || cpu::usable().map_or(0, |c| c.len()) < 2;
    let since = Instant::now();
    while is_one() && !machine::jobs().is_empty() && since.elapsed() < Duration::from_secs(600) {
        std::thread::sleep(Duration::from_millis(100));
    }
    if is_one() {
        colony_testing::skip("one usable CPU only, and a test must not take it whole");
        return None;
    }
    Some(lock)
}

/// Returns `true` if the exact proof works here; otherwise the skip is recorded with its reason.
pub(crate) fn can_prove() -> bool {
    match colony_bpf::check() {
        Ok(()) => true,
        Err(e) => {
            colony_testing::skip(e);
            false
        }
    }
}

/// A process that is killed at the end of the test, whatever happens.
pub(crate) struct Owned(pub(crate) Child);

impl Owned {
    pub(crate) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a fixture that spins on the job's CPU in its own class `own`.
pub(crate) fn spinner(own: Class) -> Owned {
    let child = Owned(on_the_job_cpu(me(&["spin", "30000"])).spawn().expect("itself"));
    class::set(child.pid(), own).expect("privileged");
    child
}

/// Starts an agent in a process of its own, for process `pid`, and waits until it works.
pub(crate) fn agent_for(pid: i32) -> Owned {
    wait_until_ready(me(&["agent", &pid.to_string()]))
}

/// As [`agent_for`], for several processes.
pub(crate) fn agents_for(pids: &[i32]) -> Owned {
    let words: Vec<String> = std::iter::once("agent".into()).chain(pids.iter().map(i32::to_string)).collect();
    wait_until_ready(me(&words.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// A task of somebody that is bound to these CPUs.
pub(crate) fn bound_to(cpus: &CpuSet) -> Owned {
    let task = Owned(Command::new("sleep").arg("60").spawn().expect("sleep"));
    cpu::bind(task.pid(), cpus).expect("ours");
    task
}

/// Ends an agent in order, by the end of its input, and waits for it; what it said last.
pub(crate) fn stop(mut agent: Owned) -> String {
    drop(agent.0.stdin.take());
    let mut said = String::new();
    let mut out = agent.0.stdout.take().expect("piped");
    std::io::Read::read_to_string(&mut out, &mut said).expect("readable");
    agent.0.wait().expect("ours");
    said
}

/// Starts an agent's process and waits until it works.
pub(crate) fn wait_until_ready(mut command: Command) -> Owned {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut agent = Owned(child.expect("itself"));
    let mut line = String::new();
    BufReader::new(agent.0.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
    assert_eq!(line.trim(), "ready");
    agent
}

/// Waits until `what` is true. Returns the time that it took, or `None` after a generous timeout.
///
/// The calling thread keeps off the job's CPU meanwhile: an ordinary thread there runs in regular windows only, and would see
/// nothing of the favored ones while other tasks keep the other CPUs busy.
pub(crate) fn eventually(mut what: impl FnMut() -> bool) -> Option<Duration> {
    let _off = OffTheJobCpu::move_here();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if what() {
            return Some(start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// The calling thread runs on the CPUs of other tasks than the job's, until this is dropped.
struct OffTheJobCpu {
    before: CpuSet,
}

impl OffTheJobCpu {
    /// `None` if the thread has the job's CPU only, or is off that CPU already.
    fn move_here() -> Option<Self> {
        let before = cpu::affinity(0).expect("linux");
        let off = before.without(&last_cpu());
        if off.is_empty() || off == before {
            return None;
        }
        cpu::bind(0, &off).expect("its own affinity");
        Some(Self { before })
    }
}

impl Drop for OffTheJobCpu {
    fn drop(&mut self) {
        cpu::bind(0, &self.before).expect("its own affinity");
    }
}

/// The class of a task now; `None` where it is gone.
pub(crate) fn class_of(tid: i32) -> Option<Class> {
    class::get(tid).ok()
}

/// Sees a task in both classes the agent gives.
pub(crate) fn is_switched(tid: i32) -> bool {
    eventually(|| class_of(tid) == Some(Class::Fifo(50))).is_some()
        && eventually(|| class_of(tid) == Some(Class::Idle)).is_some()
}

/// The guardians of process `pid`.
pub(crate) fn guardians_of(pid: i32) -> Vec<i32> {
    task::children(pid).into_iter().filter(|&c| task::name(c).as_deref() == Some("colony-guardian")).collect()
}

/// Returns `true` if a process has ended, zombies included.
pub(crate) fn is_gone(pid: i32) -> bool {
    task::stat(pid).is_ok_and(|s| s.state == b'Z') || task::stat(pid).is_err()
}
