// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of jobs.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use colony_nodes::Machine;
use colony_nodes::ciod::{End, JobError, Mode, Program};

use crate::common::{boot, folder, folder_for_all, launch, programs, run, script};

fn is_root() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0);
    if !root {
        colony_testing::skip("needs root");
    }
    root
}

#[test]
fn a_job_has_its_arguments_environment_folder_streams_and_exit_code() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 1);
    let mut job = script(&busybox, place.path(), "echo $0 $1 $NAME; pwd; echo problem >&2; exit 9");
    job.arguments.extend(["zero".into(), "one".into()]);
    job.environment.insert("NAME".into(), "value".into());
    let ran = run(&mut partition, job);
    assert_eq!(ran.stdout, format!("zero one value\n{}\n", place.path().display()));
    assert_eq!(ran.stderr, "problem\n");
    assert_eq!(ran.outcome.processes[0].end, End::Exited(9));
}

#[test]
fn a_node_runs_one_job_after_another_and_nothing_is_left_of_the_last() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 1);
    let pid = partition.nodes()[0].pid();
    for n in 0..5 {
        let ran = run(
            &mut partition,
            script(&busybox, place.path(), &format!("umask 077; cd /; exec 7>x{n} 2>&1; echo {n}")),
        );
        assert!(ran.outcome.processes.len() == 1, "{}", ran.outcome);
    }
    assert_eq!(partition.nodes()[0].pid(), pid, "the same node");
}

#[test]
fn a_fault_ends_the_job_with_the_registers_and_the_node_goes_on() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 1);
    // the shell is told to send itself what a fault would
    let ran = run(&mut partition, script(&busybox, place.path(), "kill -SEGV $$"));
    assert_eq!(ran.outcome.processes[0].end, End::Signaled(11), "{}", ran.outcome);
    let crash = ran.outcome.processes[0].crash.clone().unwrap_or_default();
    assert!(crash.contains("rip") && crash.contains("rsp"), "{crash}");
    let ran = run(&mut partition, script(&busybox, place.path(), "echo goes on"));
    assert_eq!(ran.output(), "goes on\n");
}

#[test]
fn a_program_that_computes_for_ever_is_ended_by_a_signal_and_by_the_clock() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 1);
    for (signal, end) in [(15, End::Signaled(15)), (9, End::Signaled(9))] {
        let running = launch(&mut partition, script(&busybox, place.path(), "while :; do :; done"));
        assert!(running.job().wait_started());
        std::thread::sleep(Duration::from_millis(200));
        running.job().signal(signal).expect("under way");
        assert_eq!(running.end(&partition).outcome.processes[0].end, end);
    }
    let mut job = script(&busybox, place.path(), "while :; do :; done");
    job.timeout_s = Some(0.5);
    let ran = run(&mut partition, job);
    assert!(matches!(ran.outcome.error, Some(JobError::Timeout { .. })), "{:?}", ran.outcome);
    let ran =
        run(&mut partition, script(&busybox, place.path(), "trap 'echo caught; exit 4' TERM; kill $$; :"));
    assert_eq!((ran.stdout.as_str(), ran.outcome.code()), ("caught\n", 4));
}

#[test]
fn two_processes_share_a_node_in_virtual_node_mode() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 2);
    let mut job =
        script(&busybox, place.path(), "echo $COLONY_RANK of $COLONY_SIZE on $(hostname 2> /dev/null)");
    job.arguments[2] = "echo $COLONY_RANK of $COLONY_SIZE".into();
    job.mode = Mode::VirtualNode;
    let ran = run(&mut partition, job);
    let mut lines: Vec<&str> = ran.output().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
}

#[test]
fn ranks_run_programs_of_their_own_by_the_launcher_or_by_execve() {
    let Some([busybox, lua]) = programs(["busybox", "lua"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 2);
    let mut job = script(&busybox, place.path(), "echo shell $COLONY_RANK");
    job.programs = vec![Program {
        first: 1,
        last: 1,
        executable: lua.clone(),
        arguments: vec!["-e".into(), "print('lua', os.getenv('COLONY_RANK'))".into()],
    }];
    let sorted = |text: &str| {
        let mut lines: Vec<String> =
            text.split_inclusive('\n').map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        lines.sort();
        lines
    };
    let ran = run(&mut partition, job);
    assert_eq!(sorted(ran.output()), ["lua 1", "shell 0"]);
    let launcher = format!(
        "case $COLONY_RANK in 0) exec {0} echo busybox $COLONY_RANK;; *) exec {1} -e 'print(\"lua\", os.getenv(\"COLONY_RANK\"))';; esac",
        busybox.display(),
        lua.display()
    );
    let ran = run(&mut partition, script(&busybox, place.path(), &launcher));
    assert_eq!(sorted(ran.output()), ["busybox 0", "lua 1"]);
}

#[test]
fn a_job_has_the_rights_of_its_user_and_no_others() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    if !is_root() {
        return;
    }
    let Some(place) = folder_for_all() else { return };
    let at = |name: &str| place.path().join(name);
    let set = |path: &std::path::Path, owner: u32, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        std::os::unix::fs::chown(path, Some(owner), Some(owner)).expect("root may");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("root may");
    };
    for (name, owner, mode) in [("roots", 0, 0o600), ("theirs", 1234, 0o600), ("others", 4321, 0o600)] {
        std::fs::write(at(name), format!("{name}\n")).expect("ours");
        set(&at(name), owner, mode);
    }
    set(place.path(), 1234, 0o755);
    let mut partition = boot(Machine::default(), 1);
    let mut job = script(
        &busybox,
        place.path(),
        "read w < theirs; echo $w; for f in roots others /proc/1/environ; do read w < $f && echo $w; done; echo new > made; echo x > others",
    );
    // the program itself must be readable for that user
    let copy = at("busybox");
    std::fs::copy(&busybox, &copy).expect("ours");
    set(&copy, 0, 0o755);
    job.executable = copy;
    job.user = Some("1234".into());
    job.group = Some("1234".into());
    job.groups = Some(vec![]);
    let ran = run(&mut partition, job);
    assert!(ran.stdout.starts_with("theirs\n"), "{}\n{}\n{}", ran.outcome, ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("roots") && !ran.stdout.contains("others"), "{}", ran.stdout);
    assert_eq!(ran.stderr.matches("Permission denied").count(), 3, "{}", ran.stderr);
    let made = std::fs::metadata(at("made")).expect("it was made");
    assert_eq!((made.uid(), made.gid()), (1234, 1234));
}
