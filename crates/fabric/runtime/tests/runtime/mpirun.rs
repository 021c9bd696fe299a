// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs of `mpirun` whose ranks are replaced: over MPI in a build with the feature `mpi`, and otherwise with a program that stands
//! in for `mpirun`, so that the ranks communicate over sockets from the beginning.

use std::ffi::OsString;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use colony_runtime::ranks::resize;

use crate::common::{children, example, kill, wait_until_gone};
use crate::mortal::{CHECKPOINT, GO_ON, LOG, Mortal, lines, text, undisturbed};
use crate::stand_in::stand_in;

/// Stands in for `mpirun -n N PROGRAM`.
#[cfg(not(feature = "mpi"))]
const MPIRUN: &str = r#"
ranks=$2
shift 2
rank=0
while [ $rank -lt $ranks ]; do
  PMI_RANK=$rank "$@" &
  rank=$((rank + 1))
done
wait
"#;

/// A way to start ranks.
struct Way {
    variables: Vec<(&'static str, OsString)>,
    /// Has the program that stands in.
    _folder: Option<tempfile::TempDir>,
}

#[cfg(feature = "mpi")]
fn way() -> Way {
    let variables = crate::common::MPI.iter().map(|(name, value)| (*name, value.into())).collect();
    Way { variables, _folder: None }
}

#[cfg(not(feature = "mpi"))]
fn way() -> Way {
    let (folder, path) = stand_in("mpirun", MPIRUN);
    Way { variables: vec![("RUN_MPI", "1".into()), ("PATH", path)], _folder: Some(folder) }
}

impl Way {
    fn run(&self, mut mortal: Mortal) -> Output {
        mortal.variables.extend(self.variables.iter().cloned());
        mortal.run()
    }

    /// A run with these deaths ends well, with the result of a run without any. Returns the run.
    fn assert_recovers(&self, mortal: Mortal, expected: &str, restarts: usize) -> Output {
        let shown = format!("{:?} {:?}", mortal.deaths, mortal.variables);
        let output = self.run(mortal);
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{shown}: {errors}");
        assert_eq!(text(&output.stdout), expected, "{shown}: {errors}");
        let replaced =
            lines(&output, "warning: ").into_iter().filter(|line| line.contains("restart ")).count();
        assert_eq!(replaced, restarts, "{shown}: {errors}");
        output
    }
}

#[test]
fn a_rank_that_dies_is_replaced_and_the_others_stay() {
    let expected = undisturbed();
    let way = way();
    way.assert_recovers(Mortal::new(&[]), &expected, 0);
    for (phase, after) in [("entry", 50), ("pack", 6), ("resume", 9)] {
        for rank in 0..3 {
            let output = way.assert_recovers(Mortal::new(&[(phase, rank, after)]), &expected, 1);
            // a death while objects are packed for the first checkpoint
            let begin = if phase == "pack" { "" } else { "all ranks go back to checkpoint" };
            assert!(!lines(&output, begin).is_empty(), "{phase} {rank}: {}", text(&output.stderr));
        }
    }
    let output = way.assert_recovers(Mortal::new(&[("entry", 1, 95)]).with(CHECKPOINT, LOG), &expected, 1);
    assert_eq!(lines(&output, &format!("rank 1 runs again from checkpoint 0, {GO_ON}")).len(), 1);
}

#[test]
fn several_deaths_are_survived() {
    let expected = undisturbed();
    let way = way();
    // the replacement of the first dies, too
    let deaths = [("entry", 0, 30), ("unpack", 0, 1), ("resume", 1, 17), ("pack", 2, 21)];
    way.assert_recovers(Mortal::new(&deaths), &expected, 4);
    let deaths = [("entry", 0, 30), ("entry", 1, 30), ("entry", 2, 30)];
    way.assert_recovers(Mortal::new(&deaths), &expected, 3);
    // without a checkpoint the program begins anew
    way.assert_recovers(Mortal::new(&[("entry", 0, 40)]).with(CHECKPOINT, "none"), &expected, 1);
}

#[test]
fn if_a_rank_dies_before_all_have_joined_all_begin_again() {
    let expected = undisturbed();
    let way = way();
    for rank in 0..3 {
        let output = way.assert_recovers(Mortal::new(&[("start", rank, 0)]), &expected, 1);
        let begin = format!("warning: rank {rank} was killed by signal 9 before all ranks had joined");
        assert_eq!(lines(&output, &begin).len(), 1, "{}", text(&output.stderr));
    }
}

#[test]
fn a_rank_that_stops_responding_is_replaced() {
    let expected = undisturbed();
    let way = way();
    let mortal = Mortal { timeout: Some(1), restarts: 20, ..Mortal::new(&[("stop", 1, 25)]) };
    let output = way.run(mortal);
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    assert!(!lines(&output, "warning: rank 1 has not responded for ").is_empty(), "{}", text(&output.stderr));
}

#[test]
fn with_more_deaths_than_restarts_the_job_ends_and_an_own_failure_is_no_death() {
    let way = way();
    let mortal = Mortal { restarts: 1, ..Mortal::new(&[("entry", 0, 30), ("entry", 1, 30)]) };
    let output = way.run(mortal);
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
    assert_eq!(lines(&output, "error: rank ").len(), 1, "{}", text(&output.stderr));
    let mut command = Command::new(example("run"));
    command.arg("3").arg(example("ring")).args(["1000000", "--fail", "1"]);
    let output = command.envs(way.variables).env("RUN_RESTARTS", "3").output().expect("starts");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let panicked = "error: the entry method Token of Node 1 panicked: PE 1 fails, as asked";
    assert_eq!(lines(&output, "error"), [panicked]);
}

/// A job that does not end by itself, and the processes of `mpirun`, of its agents and of their ranks.
fn start(way: &Way) -> (Child, Vec<u32>) {
    let mut command = Command::new(example("run"));
    command.arg("3").arg(example("ring")).args(["1", "--stay"]).stdin(Stdio::null());
    command.envs(way.variables.iter().cloned()).env("RUN_RESTARTS", "1").env("RUN_TIMEOUT", "60");
    let launcher = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the launcher starts");
    let mpirun = children(launcher.id(), 1)[0];
    let agents = children(mpirun, 3);
    let ranks = agents.iter().map(|agent| children(*agent, 1)[0]);
    let all = std::iter::once(mpirun).chain(agents.iter().copied()).chain(ranks).collect();
    (launcher, all)
}

#[test]
fn nothing_outlives_a_killed_launcher() {
    let way = way();
    let (mut launcher, processes) = start(&way);
    kill(launcher.id());
    launcher.wait().expect("it was killed");
    processes.into_iter().for_each(wait_until_gone);
}

#[test]
fn if_mpirun_or_an_agent_is_killed_all_begin_again_as_often_as_is_allowed() {
    let way = way();
    for which in [0, 2] {
        // an agent that is killed ends the job of `mpirun`, but not what stands in for it
        let (mut launcher, first) = start(&way);
        kill(first[which]);
        // the launcher starts them once more, when it has waited for the first one
        let mpirun = loop {
            match children(launcher.id(), 1)[0] {
                mpirun if mpirun == first[0] => std::thread::sleep(Duration::from_millis(5)),
                mpirun => break mpirun,
            }
        };
        first.into_iter().for_each(wait_until_gone);
        let agents = children(mpirun, 3);
        kill(mpirun);
        let code = launcher.wait().expect("it ends").code();
        assert_eq!(code, Some(137));
        agents.into_iter().for_each(wait_until_gone);
    }
}

#[test]
fn without_restarts_mpirun_starts_the_program_itself() {
    let code = |code: u8| {
        let (_folder, path) = stand_in("mpirun", &format!("[ \"$*\" = '-n 3 true' ] && exit {code}"));
        let mut command = Command::new(example("run"));
        let output = command.args(["3", "true"]).envs([("RUN_MPI", "1".into()), ("PATH", path)]).output();
        let output = output.expect("it starts");
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(code(0), (Some(0), String::new()));
    assert_eq!(code(3), (Some(3), String::new()));
    assert_eq!(code(137), (Some(137), "error: a rank was killed by signal 9; the job ends\n".to_owned()));
}

#[test]
fn a_job_goes_on_with_more_ranks() {
    let expected = undisturbed();
    let (way, folder) = (way(), tempfile::tempdir().expect("a folder"));
    let disk = format!("memory:same-machine:disk={}:every=1000", folder.path().join("checkpoints").display());
    let mut command = Command::new(example("run"));
    command.arg("2").arg(example("mortal")).env("MORTAL_GATE", folder.path()).env(CHECKPOINT, disk);
    command.envs(way.variables).env("RUN_RESTARTS", "1").env("RUN_TIMEOUT", "60");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let launcher = command.spawn().expect("the launcher starts");
    // the ranks wait at their gates until the request has come
    let pid = launcher.id().cast_signed();
    while resize(1, Some(pid)).map(|resized| (resized.from, resized.to)) != Ok((2, 3)) {
        std::thread::sleep(Duration::from_millis(2));
    }
    ["2", "3"].into_iter().for_each(|gate| std::fs::write(folder.path().join(gate), "").expect("room"));
    let output = launcher.wait_with_output().expect("ends");
    assert_eq!((text(&output.stdout), output.status.code()), (expected, Some(0)), "{}", text(&output.stderr));
    assert_eq!(
        lines(&output, "the job goes on with 3 ranks instead of 2").len(),
        1,
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn if_mpirun_is_killed_all_begin_again_from_disk() {
    let expected = undisturbed();
    let (way, folder) = (way(), tempfile::tempdir().expect("a folder"));
    let (checkpoints, stop) = (folder.path().join("checkpoints"), folder.path().join("stop-1"));
    // rank 1 stops after some checkpoints, and is not taken for dead
    std::fs::write(&stop, "100").expect("room");
    let mut command = Command::new(example("run"));
    command.arg("3").arg(example("mortal")).env("MORTAL", folder.path());
    command.env(CHECKPOINT, format!("disk={}", checkpoints.display())).envs(way.variables);
    command.env("RUN_RESTARTS", "1").env("RUN_TIMEOUT", "600").stdin(Stdio::null());
    let launcher =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the launcher starts");
    while stop.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let files = || std::fs::read_dir(&checkpoints).into_iter().flatten().count();
    assert!(files() > 0, "there are checkpoints");
    kill(children(launcher.id(), 1)[0]);
    let output = launcher.wait_with_output().expect("ends");
    let errors = text(&output.stderr);
    assert_eq!((text(&output.stdout), output.status.code()), (expected, Some(0)), "{errors}");
    assert_eq!(lines(&output, "warning: mpirun ").len(), 1, "{errors}");
    assert!(!errors.contains("anew"), "{errors}");
}
