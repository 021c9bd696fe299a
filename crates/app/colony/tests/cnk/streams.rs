// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard streams of jobs in files, several programs in one job, and time limits.

use crate::control::Machine;

#[test]
fn streams_are_files_of_the_job_or_of_each_rank() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let busybox = machine.busybox.to_str().expect("a path");
    let read = |name: &str| std::fs::read_to_string(machine.path().join(name)).expect("it is there");
    std::fs::write(machine.path().join("in"), "question\n").expect("written");
    std::fs::write(machine.path().join("out.1.txt"), "of another job, and longer\n").expect("written");
    let text = "read word; echo $COLONY_RANK $word; echo error $COLONY_RANK >&2";
    let options = ["--processes", "3", "--input", "in", "--output", "out.%r.txt", "--error", "err.%j"];
    let words = [&["job", "run"], &options[..], &["--label", "--", busybox, "sh", "-c", text]].concat();
    assert_eq!(machine.done(&words), "", "nothing is left for the terminal");
    assert_eq!((read("out.0.txt"), read("out.1.txt")), ("0 question\n".to_owned(), "1\n".to_owned()));
    let errors = read("err.1");
    let mut lines: Vec<&str> = errors.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: error 0", "1: error 1", "2: error 2"]);
    for (option, name) in [("--output", "no/out"), ("--error", "no/%r"), ("--input", "no/in")] {
        let words = ["job", "run", option, name, "--", busybox, "true"];
        let (code, text) = machine.fails(&words);
        assert!(code == Some(1) && text.contains("cannot use this file"), "{option}: {text}");
    }
    // a full disk is told, and the machine goes on
    for name in ["/dev/full", "full.%r"] {
        let link = machine.path().join("full.0");
        if name == "full.%r" {
            std::os::unix::fs::symlink("/dev/full", link).expect("made");
        }
        let words = ["job", "run", "--processes", "1", "--output", name, "--", busybox, "echo", "x"];
        let (code, text) = machine.fails(&words);
        assert!(code == Some(1) && text.contains("output of rank 0 is not complete"), "{name}: {text}");
    }
    assert_eq!(machine.done(&machine.script("run", "1", "echo on")), "on\n");
}

#[test]
fn output_that_the_machine_keeps_is_bounded_and_the_job_says_so() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let busybox = machine.busybox();
    let copy = ["dd", "if=/dev/zero", "bs=1048576", "count=300"];
    let words = [&["job", "submit", "--processes", "1", "--", busybox][..], &copy].concat();
    let job = machine.done(&words).trim().to_owned();
    let ended = machine.ended(&job);
    assert_ne!(ended["code"], 0, "{ended}");
    let error = ended["error"].as_str().unwrap_or_default();
    assert!(error.contains("256 MiB") && error.contains("--output"), "{error}");
    let kept = std::fs::metadata(machine.path().join("m/jobs").join(&job).join("stdout")).expect("there");
    assert_eq!(kept.len(), 256 << 20);
}

#[test]
fn a_job_runs_several_programs_and_ends_at_its_limit() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let busybox = machine.busybox.to_str().expect("a path");
    let (one, other) =
        ("echo one $COLONY_RANK of $COLONY_SIZE", "echo other $COLONY_RANK; exit $COLONY_RANK");
    let words = ["-n", "2", busybox, "sh", "-c", one, ":", "-n", "1", busybox, "sh", "-c", other];
    let output = machine.output(&[&["job", "run", "--"], &words[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one 0 of 3", "one 1 of 3", "other 2"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && errors.contains("rank 2 (node 2) exited with 2"), "{errors}");
    let (code, text) = machine.fails(&["job", "run", "--", "-n", "2", busybox, "true", ":", busybox]);
    assert!(code == Some(2) && text.contains("number of processes"), "{text}");
    let words = ["job", "run", "--processes", "2", "--timeout", "1s", "--", busybox, "sleep", "1000"];
    let (code, text) = machine.fails(&words);
    assert!(code.is_some_and(|code| code != 0) && text.contains("1 s"), "{code:?} {text}");
    assert_eq!(machine.done(&machine.script("run", "8", "echo $COLONY_RANK")).lines().count(), 8);
}
