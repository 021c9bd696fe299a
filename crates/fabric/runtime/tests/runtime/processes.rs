// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs on several processes: over sockets, and over MPI.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{children, example, kill, wait_until_gone};
use crate::stand_in::stand_in;

fn run(ranks: u32, program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(example("run"));
    command.arg(ranks.to_string()).arg(example(program)).args(words).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(mut command: Command) -> Output {
    command.output().expect("the launcher starts")
}

/// Lines of an error that the program or the launcher has printed.
fn errors(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().filter(|l| l.starts_with("error:")).map(str::to_owned).collect()
}

#[test]
fn a_program_runs_on_any_number_of_processes_with_the_same_result() {
    let mut sums = Vec::new();
    for ranks in [1, 2, 3] {
        let output = output(run(ranks, "stencil", &["12", "2", "5"]));
        assert!(output.status.success(), "{ranks}: {}", text(&output.stderr));
        sums.push(text(&output.stdout));
    }
    assert!(sums[0].starts_with("sum of all cells") && sums.iter().all(|s| *s == sums[0]), "{sums:?}");
    let output = output(run(3, "ring", &["50"]));
    assert_eq!(text(&output.stdout), "50 rounds over 3 PEs\n");
}

#[test]
fn frames_longer_than_a_connection_takes_at_once_arrive() {
    let one = output(run(1, "stencil", &["96", "2", "2"]));
    let two = output(run(2, "stencil", &["96", "2", "2"]));
    assert_eq!((one.status.success(), text(&one.stdout)), (two.status.success(), text(&two.stdout)));
}

#[test]
fn threads_and_processes_can_be_combined() {
    let mut command = run(2, "stencil", &["12", "2", "5"]);
    command.env("THREADS", "2");
    let both = output(command);
    assert!(both.status.success(), "{}", text(&both.stderr));
    assert_eq!(text(&both.stdout), text(&output(run(1, "stencil", &["12", "2", "5"])).stdout));
}

#[test]
fn a_run_writes_a_time_line_in_which_every_message_is_executed() {
    use colony_timeline::Timeline;
    use colony_timeline::analysis::messages::Messages;
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = run(2, "stencil", &["12", "2", "5"]);
    command.env("COLONY_TIMELINE", folder.path().join("run")).env("THREADS", "2");
    let output = output(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = ["run.0.timeline", "run.1.timeline"].map(|name| folder.path().join(name));
    let timeline = Timeline::read_all(&files).expect("files of one run");
    assert_eq!((timeline.meta().program.as_str(), timeline.meta().pes), ("stencil", 4));
    assert_eq!(timeline.tracks().len(), 4);
    let messages = Messages::of(&timeline);
    assert_eq!((messages.not_executed, messages.not_sent), (0, 0), "{messages:?}");
    let mut wrong = run(1, "stencil", &["12", "2", "5"]);
    wrong.envs([("COLONY_TIMELINE", "run"), ("COLONY_TIMELINE_EVENTS", "many")]);
    let output = self::output(wrong);
    assert_eq!(
        errors(&output)[0],
        "error: COLONY_TIMELINE_EVENTS is \"many\"; it has to be a number of events from 1 to 268435456"
    );
}

#[test]
fn a_rank_that_panics_ends_the_job_with_one_error() {
    let output = output(run(3, "ring", &["1000000", "--fail", "1"]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(errors(&output), ["error: the entry method Token of Node 1 panicked: PE 1 fails, as asked"]);
}

/// Processes that a launcher has started: so many, and no more.
fn ranks_of(launcher: &Child, count: usize) -> Vec<u32> {
    let ranks = children(launcher.id(), count);
    assert_eq!(ranks.len(), count, "{ranks:?}");
    ranks
}

fn start(ranks: u32) -> Child {
    let mut command = run(ranks, "ring", &["1", "--stay"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the launcher starts")
}

#[test]
fn a_killed_rank_ends_the_job_and_the_launcher_says_which() {
    let launcher = start(3);
    let ranks = ranks_of(&launcher, 3);
    kill(ranks[1]);
    let output = launcher.wait_with_output().expect("the launcher ends");
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(errors(&output), ["error: rank 1 was killed by signal 9; the job ends"]);
    ranks.into_iter().for_each(wait_until_gone);
}

#[test]
fn no_rank_outlives_a_killed_launcher() {
    let mut launcher = start(3);
    let ranks = ranks_of(&launcher, 3);
    kill(launcher.id());
    launcher.wait().expect("it was killed");
    ranks.into_iter().for_each(wait_until_gone);
}

#[test]
fn launcher_and_rank_killed_at_once_leave_nothing() {
    let mut launcher = start(3);
    let ranks = ranks_of(&launcher, 3);
    kill(ranks[0]);
    kill(launcher.id());
    launcher.wait().expect("it was killed");
    ranks.into_iter().for_each(wait_until_gone);
}

#[test]
fn ranks_of_different_builds_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("ring");
    let mut bytes = std::fs::read(example("ring")).expect("the example");
    bytes.push(0);
    std::fs::write(&other, bytes).expect("a copy");
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    let script = format!(
        "if [ $COLONY_JOB_RANK = 1 ]; then exec {} 5; else exec {} 5; fi",
        other.display(),
        example("ring").display()
    );
    let output = Command::new(example("run")).args(["2", "/bin/sh", "-c", &script]).output().expect("starts");
    assert_eq!(output.status.code(), Some(2));
    let last = errors(&output).pop().unwrap_or_default();
    assert!(last.contains("ranks 0 and 1 run different builds"), "{}", text(&output.stderr));
}

#[test]
fn all_ranks_of_a_program_join_the_job_or_none_does() {
    let output = Command::new(example("run")).args(["3", "/bin/true"]).output().expect("starts");
    assert_eq!((output.status.code(), errors(&output)), (Some(0), Vec::new()));
    let script = format!("[ $COLONY_JOB_RANK = 1 ] || exec {} 5", example("ring").display());
    let output = Command::new(example("run")).args(["3", "/bin/sh", "-c", &script]).output().expect("starts");
    assert_eq!(output.status.code(), Some(2));
    let last = errors(&output).pop().unwrap_or_default();
    assert!(last.contains("rank 1 has ended without joining the job"), "{}", text(&output.stderr));
}

#[test]
fn wrong_use_is_refused() {
    for (ranks, expected) in [("0", "0 ranks"), ("5000", "5000 ranks")] {
        let output = Command::new(example("run")).args([ranks, "/bin/true"]).output().expect("starts");
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    let output = Command::new(example("run")).args(["2", "/no/such/program"]).output().expect("starts");
    assert!(text(&output.stderr).contains("starting rank 0, /no/such/program"), "{}", text(&output.stderr));
    for (name, value) in
        [("COLONY_JOB_RANK", "7"), ("COLONY_JOB_SECRET", "short"), ("COLONY_JOB_SIZE", "many")]
    {
        let mut ring = Command::new(example("ring"));
        ring.envs([
            ("COLONY_JOB", "unix:nobody"),
            ("COLONY_JOB_RANK", "0"),
            ("COLONY_JOB_SIZE", "2"),
            ("COLONY_JOB_SECRET", &"00".repeat(32)),
        ]);
        let output = ring.env(name, value).output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(text(&output.stderr).contains(name), "{}", text(&output.stderr));
    }
}

#[cfg(feature = "mpi")]
#[test]
fn the_same_program_runs_over_mpi_with_the_same_result() {
    let mpi = |ranks: &str, program: &str, words: &[&str]| {
        let mut command = Command::new("mpirun");
        command.args(["--oversubscribe", "-n", ranks]).arg(example(program)).args(words);
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        output(command)
    };
    let over_mpi = mpi("2", "stencil", &["96", "2", "3"]);
    assert!(over_mpi.status.success(), "{}", text(&over_mpi.stderr));
    assert_eq!(text(&over_mpi.stdout), text(&output(run(1, "stencil", &["96", "2", "3"])).stdout));
    let failed = mpi("2", "ring", &["1000000", "--fail", "1"]);
    assert!(!failed.status.success());
    let expected = "error: the entry method Token of Node 1 panicked: PE 1 fails, as asked";
    assert_eq!(errors(&failed), [expected]);
}

/// Waits until a process has a handler for a signal.
fn wait_until_handled(pid: u32, signal: i32) {
    let began = Instant::now();
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).map(str::trim).unwrap_or("0");
        if u64::from_str_radix(caught, 16).is_ok_and(|mask| mask >> (signal - 1) & 1 == 1) {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "process {pid} handles no signal {signal}: {status}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_evacuates_the_pes_of_a_process_while_the_program_runs_on() {
    use std::io::BufRead;
    let mut command = run(2, "delivery", &["--messages", "1000000000000"]);
    let mut launcher =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the launcher starts");
    let ranks = ranks_of(&launcher, 2);
    // the second signal is registered last
    ranks.iter().for_each(|rank| wait_until_handled(*rank, nix::libc::SIGUSR2));
    let pid = |rank: u32| nix::unistd::Pid::from_raw(rank.cast_signed());
    nix::sys::signal::kill(pid(ranks[1]), nix::sys::signal::Signal::SIGUSR1).expect("it runs");
    let lines = std::io::BufReader::new(launcher.stderr.take().expect("a pipe")).lines();
    let line = lines.map_while(Result::ok).find(|line| line.contains("evacuated")).expect("the PE reports");
    assert!(line.starts_with("PE 1 evacuated: ") && line.contains(" objects migrated in "), "{line}");
    assert!(launcher.try_wait().expect("ours").is_none(), "the program runs on");
    kill(launcher.id());
    launcher.wait().expect("it was killed");
    ranks.into_iter().for_each(wait_until_gone);
}

const SUMS: &str = "sum of all cells";

#[test]
fn ranks_on_other_hosts_find_each_other_over_tcp() {
    // the options before the host, the host, and the line for its shell
    let (folder, path) =
        stand_in("ssh", r#"for word; do last=$word; done; echo "$4" >> "${0%/*}/hosts"; exec sh -c "$last""#);
    let mut command = run(3, "stencil", &["12", "2", "5"]);
    command.env("PATH", path).env("RUN_HOSTS", "127.0.0.1,localhost");
    let output = output(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with(SUMS), "{}", text(&output.stdout));
    let mut hosts: Vec<String> = std::fs::read_to_string(folder.path().join("hosts"))
        .expect("ssh was started")
        .lines()
        .map(str::to_owned)
        .collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["127.0.0.1", "127.0.0.1", "localhost"]);
}

/// Stands in for `srun --ntasks=N OPTIONS sh -c LINE`: all tasks on this host get the standard input.
const SRUN: &str = r#"
tasks=${1#--ntasks=}
shift 3
secret=$(cat)
task=0
jobs=
while [ $task -lt $tasks ]; do
  printf '%s\n' "$secret" | SLURM_PROCID=$task SLURMD_NODENAME=127.0.0.1 "$@" &
  jobs="$jobs $!"
  task=$((task + 1))
done
code=0
for job in $jobs; do wait $job || code=$?; done
exit $code"#;

#[test]
fn slurm_starts_the_ranks_as_tasks_of_one_step() {
    let (_folder, path) = stand_in("srun", SRUN);
    let slurm = |ranks: u32, program: &str, words: &[&str]| {
        let mut command = run(ranks, program, words);
        command.env("PATH", &path).env("RUN_SLURM", "127.0.0.1").env("SLURM_JOB_ID", "1");
        output(command)
    };
    let ended = slurm(3, "stencil", &["12", "2", "5"]);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout).starts_with(SUMS), "{}", text(&ended.stdout));
    let failed = slurm(2, "ring", &["1000", "--fail", "1"]);
    assert!(!failed.status.success());
    assert_eq!(errors(&failed).len(), 1, "{}", text(&failed.stderr));
    let mut outside = run(2, "ring", &["10"]);
    outside.env("PATH", &path).env("RUN_SLURM", "127.0.0.1").env_remove("SLURM_JOB_ID");
    let outside = output(outside);
    assert_eq!(outside.status.code(), Some(2));
    assert!(errors(&outside)[0].contains("SLURM_JOB_ID is not set"), "{}", text(&outside.stderr));
}
