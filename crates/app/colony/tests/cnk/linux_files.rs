// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the host for jobs on Linux I/O nodes: folders that are exported, and files for the output of each rank.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use colony_nodes::ciod::{Config, Export, JobError, JobSpec, Network};
use colony_nodes::{IoNodes, Link, Machine, Partition, Places};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::common::{ciod, folder_for_all, launch, programs, run, script};

/// Nodes in two psets, each with a Linux I/O node.
const NODES: u32 = 4;
/// The user of jobs, if the test may choose: nobody.
const NOBODY: u32 = 65_534;

fn boot(exports: &[String]) -> Partition {
    let link = Link::Network(Network::default());
    let machine = Machine { cpus: 1, memory: 16 << 20, link, io_nodes: IoNodes::Linux, ..Machine::default() };
    let exports: Vec<Export> = exports.iter().map(|text| text.parse().expect("an export")).collect();
    let config = Config { exports, ..Config::new(ciod()) };
    Partition::boot(machine, Places::row(NODES, Some(2)), config).expect("boots")
}

/// A folder that the user of jobs may enter, and a copy of busybox in the folder: other users may not reach the checkout.
fn place_and_busybox() -> Option<(tempfile::TempDir, PathBuf)> {
    let [built] = programs(["busybox"])?;
    let place = folder_for_all()?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let busybox = place.path().join("busybox");
    fs::copy(built, &busybox).expect("room for a copy");
    fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755)).expect("ours");
    Some((place, busybox))
}

/// A job of the user, in a folder.
fn job(busybox: &Path, folder: &Path, text: &str) -> JobSpec {
    let user = geteuid().is_root().then(|| NOBODY.to_string());
    JobSpec { user, ..script(busybox, folder, text) }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A folder that the user of jobs may write to.
fn of_user(place: &Path) {
    fs::create_dir(place).expect("made");
    if geteuid().is_root() {
        chown(place, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

#[test]
fn programs_use_exported_folders_of_the_host_with_the_rights_of_their_user() {
    let Some((place, busybox)) = place_and_busybox() else { return };
    let [both, only] = ["both", "only"].map(|name| place.path().join(name));
    of_user(&both);
    fs::create_dir(&only).expect("made");
    fs::write(only.join("given"), "of the host\n").expect("written");
    fs::write(place.path().join("secret"), "secret\n").expect("written");
    symlink(place.path().join("secret"), both.join("link")).expect("made");
    symlink("../secret", both.join("up")).expect("made");
    fs::write(both.join("closed"), "closed\n").expect("written");
    fs::set_permissions(both.join("closed"), fs::Permissions::from_mode(0o600)).expect("ours");
    let mut partition = boot(&[both.display().to_string(), format!("{}:ro", only.display())]);

    // each rank makes files in its folder, and all append to one
    let text = format!(
        "n=$COLONY_RANK; cd d$n && echo $n > a && echo more >> a || exit 2
         while read x; do echo $n $x; done < a; echo $n line >> ../all; read x < {only}/given; echo $n $x
         [ -d {only} ] && [ -s a ] && [ ! -e b ]",
        only = only.display()
    );
    for n in 0..NODES {
        of_user(&both.join(format!("d{n}")));
    }
    let ran = run(&mut partition, job(&busybox, &both, &text));
    let mut expected: Vec<String> = (0..NODES)
        .flat_map(|n| [format!("{n} {n}"), format!("{n} more"), format!("{n} of the host")])
        .collect();
    expected.sort_unstable();
    assert_eq!(sorted(ran.output()), expected);
    let all = fs::read_to_string(both.join("all")).expect("made");
    assert_eq!(sorted(&all), ["0 line", "1 line", "2 line", "3 line"], "whole, from both I/O nodes");
    let made = fs::metadata(both.join("all")).expect("made");
    let user = if geteuid().is_root() { NOBODY } else { geteuid().as_raw() };
    assert_eq!((made.uid(), made.permissions().mode() & 0o777), (user, 0o644));

    // one program changes folders, which no script can
    for (name, arguments) in [
        ("mkdir", &["-p", "x/y/z"][..]),
        ("mv", &["x/y", "moved"]),
        ("ln", &["-s", "z", "moved/link"]),
        ("ln", &["all", "hard"]),
        ("chmod", &["600", "hard"]),
        ("truncate", &["-s", "5", "hard"]),
        ("touch", &["-d", "2001-02-03 04:05", "hard"]),
        ("rm", &["-r", "x"]),
    ] {
        let arguments = arguments.iter().map(|&word| word.to_owned());
        let arguments: Vec<String> = std::iter::once(name.to_owned()).chain(arguments).collect();
        let spec = JobSpec { arguments, processes: Some(1), ..job(&busybox, &both, "") };
        let ran = run(&mut partition, spec);
        assert!(ran.outcome.success(), "{name}: {} {}", ran.outcome, ran.stderr);
    }
    assert_eq!(fs::read_link(both.join("moved/link")).expect("a link"), Path::new("z"));
    let hard = fs::metadata(both.join("all")).expect("there");
    assert_eq!((hard.nlink(), hard.len(), hard.permissions().mode() & 0o777), (2, 5, 0o600));
    assert_eq!(hard.mtime() / 86_400, 11_356, "2001-02-03");
    assert!(both.join("moved/z").is_dir() && !both.join("x").exists());
    let list = JobSpec {
        arguments: vec!["ls".into(), "moved".into()],
        processes: Some(1),
        ..job(&busybox, &both, "")
    };
    assert_eq!(sorted(run(&mut partition, list).output()), ["link", "z"]);

    // nothing leads out, and nothing is changed that may only be read
    let text = format!(
        "read x < link && echo out; read x < up && echo up; read x < ../secret && echo beside
         echo x > {only}/new && echo written; echo x > {only}/given && echo overwritten; echo end",
        only = only.display()
    );
    let ran = run(&mut partition, JobSpec { processes: Some(1), ..job(&busybox, &both, &text) });
    assert_eq!(ran.output(), "end\n", "{}", ran.stderr);
    assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(only.join("given")).expect("there"), "of the host\n");
    assert_eq!(fs::read_dir(&only).expect("ours").count(), 1);
    if geteuid().is_root() {
        let ran =
            run(&mut partition, JobSpec { processes: Some(1), ..job(&busybox, &both, "read x < closed") });
        assert!(ran.stderr.contains("Permission denied"), "{}", ran.stderr);
    }
}

#[test]
fn a_job_whose_host_does_not_answer_ends_and_the_files_of_one_that_is_killed_stay() {
    let Some((place, busybox)) = place_and_busybox() else { return };
    let both = place.path().join("both");
    of_user(&both);
    let mut partition = boot(&[both.display().to_string()]);
    let text = "echo > $COLONY_RANK; while :; do echo line >> all; done";
    let running = launch(&mut partition, job(&busybox, &both, text));
    assert!(running.job().wait_started());
    let names = || (0..NODES).map(|n| n.to_string()).chain(["all".to_owned()]);
    while names().any(|name| !both.join(name).exists()) {
        assert_eq!(running.job().wait_timeout(std::time::Duration::from_millis(20)), None);
    }
    kill(Pid::from_raw(partition.io_node_pid(1).expect("it runs").cast_signed()), Signal::SIGKILL)
        .expect("ours");
    let ran = running.end(&partition);
    let error = ran.outcome.error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(error.starts_with("the I/O node of pset 1 failed"), "{} {}", ran.outcome, ran.stderr);
    let all = fs::read_to_string(both.join("all")).expect("there");
    assert!(all.lines().all(|line| line == "line"), "no write is torn");

    // a relay that is stopped answers as little as a file server that is not there
    let running = launch(
        &mut partition,
        JobSpec { timeout_s: Some(3.0), ..job(&busybox, &both, "while :; do : > x; done") },
    );
    assert!(running.job().wait_started());
    let relay = running.job().io_nodes()[0].1;
    kill(Pid::from_raw(relay.cast_signed()), Signal::SIGSTOP).expect("ours");
    let ran = running.end(&partition);
    assert!(!ran.outcome.success(), "{}", ran.outcome);
    let ran = run(&mut partition, job(&busybox, &both, "echo $COLONY_RANK >> new; echo $COLONY_RANK"));
    assert_eq!(sorted(ran.output()), ["0", "1", "2", "3"], "{}", ran.outcome);
    assert_eq!(sorted(&fs::read_to_string(both.join("new")).expect("there")), ["0", "1", "2", "3"]);
}

#[test]
fn each_rank_has_files_of_the_host_for_its_output() {
    let Some((place, busybox)) = place_and_busybox() else { return };
    let here = place.path().join("here");
    of_user(&here);
    fs::write(here.join("out.3"), "old\n").expect("written");
    fs::set_permissions(here.join("out.3"), fs::Permissions::from_mode(0o666)).expect("ours");
    let mut partition = boot(&[]);
    let text = "echo one $COLONY_RANK; echo bad $COLONY_RANK >&2; echo two";
    let files = |text: &str| JobSpec {
        stdout: Some("out.%r".into()),
        stderr: Some(here.join("err.%r").display().to_string()),
        labels: true,
        ..job(&busybox, &here, text)
    };
    for _ in 0..2 {
        let ran = run(&mut partition, files(text));
        assert_eq!((ran.output(), ran.stderr.as_str()), ("", ""));
        for n in 0..NODES {
            let read = |name: &str| fs::read_to_string(here.join(format!("{name}.{n}"))).expect("made");
            assert_eq!((read("out"), read("err")), (format!("one {n}\ntwo\n"), format!("bad {n}\n")));
        }
    }

    // as much as a rank writes, at once with the others
    let much = "n=0; while [ $n -lt 300 ]; do echo $COLONY_RANK-$n-0123456789; n=$((n + 1)); done";
    run(&mut partition, files(much)).output();
    for n in 0..NODES {
        let expected: String = (0..300).map(|line| format!("{n}-{line}-0123456789\n")).collect();
        assert_eq!(fs::read_to_string(here.join(format!("out.{n}"))).expect("made"), expected);
    }

    // a file that takes no more ends the write, and the job says which rank has lost output
    let full = JobSpec { stdout: Some("/dev/full".into()), ..job(&busybox, &here, "") };
    symlink("/dev/full", here.join("full.2")).expect("made");
    let spec = JobSpec { stdout: Some("full.%r".into()), ..full };
    let arguments = vec!["echo".into(), "words".into()];
    let ran = run(&mut partition, JobSpec { arguments, ..spec });
    let lost = ran.outcome.error.clone();
    assert!(matches!(lost, Some(JobError::Output { rank: 2, .. })), "{}", ran.outcome);
    // ranks of the other I/O node may be killed before they write
    assert_eq!(fs::read_to_string(here.join("full.3")).expect("made"), "words\n");
    let none = JobSpec { stdout: Some("no/such/%r".into()), ..job(&busybox, &here, "echo") };
    let ran = run(&mut partition, none);
    assert!(matches!(ran.outcome.error, Some(JobError::Stream { .. })), "{}", ran.outcome);
}
