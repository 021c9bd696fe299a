// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `colony sim`: each changes an answer, or is refused.

use serde_json::Value;

use crate::common::{colony, error, fails, text};
use crate::sim::{benchmarks, trace, with};

/// Standard output of a run that must succeed.
fn answer(args: &[&str]) -> String {
    let out = colony().args(args).output().expect("runs");
    assert!(out.status.success(), "{args:?}: {}", error(&out));
    String::from_utf8(out.stdout).expect("text")
}

/// The options that `colony sim --help` lists.
fn options() -> Vec<String> {
    let help = answer(&["sim", "--help"]);
    let option = |line: &str| Some(line.trim_start().strip_prefix("--")?.split(' ').next()?.to_owned());
    help.lines().filter(|l| !l.starts_with("  colony")).filter_map(option).collect()
}

#[test]
fn every_option_changes_the_answer_of_a_mode_or_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    let out = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let trace = trace(dir.path());
    let bench = benchmarks(dir.path());
    let goal = file("a.goal", "num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n");
    let scenario = file("a.toml", "seed = 77\nschedulers = [\"coordinated\"]\n[program]\nname = \"bsp\"\n");
    let (page, table, profile) = (out("page.html"), out("table.json"), out("here.toml"));

    // each option with a value that no mode below has
    let tried: Vec<(&str, Vec<&str>)> = vec![
        ("SCENARIO", vec![&scenario]),
        ("what-if", vec![&trace]),
        ("choose", vec![]),
        ("cores", vec!["4"]),
        ("goal", vec![&goal]),
        ("fit-machine", vec![&bench[0]]),
        ("progress", vec!["asynchronous"]),
        ("queue", vec!["loggopsim"]),
        ("trace", vec![&trace]),
        ("noise", vec!["3us every 1ms"]),
        ("phase", vec!["aligned"]),
        ("nodes", vec!["4"]),
        ("op", vec!["barrier"]),
        ("bytes", vec!["64"]),
        ("work", vec!["3ms"]),
        ("algorithm", vec!["binomial"]),
        ("iterations", vec!["5"]),
        ("schedulers", vec!["coordinated,none"]),
        ("period", vec!["40ms"]),
        ("duty", vec!["70%"]),
        ("machine", vec!["jaguar-xt5"]),
        ("ranks-per-node", vec!["2"]),
        ("seed", vec!["7"]),
        ("repetitions", vec!["3"]),
        ("sweep", vec!["seed=1,2"]),
        ("print-scenario", vec![]),
        ("out", vec![&table]),
        ("report", vec![&page]),
        ("resume", vec![]),
        ("json", vec![]),
    ];
    let mut listed = options();
    listed.sort_unstable();
    let mut names: Vec<&str> = tried.iter().skip(1).map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(listed, names);

    let small = ["--nodes=2", "--iterations=3", "--repetitions=2"];
    let noise = ["--noise=16us every 1ms", "--schedulers=preempt,coordinated"];
    let (what_if, goal_of) = (format!("--what-if={trace}"), format!("--goal={goal}"));
    let fit: Vec<&str> = ["--fit-machine"].into_iter().chain(bench.iter().map(String::as_str)).collect();
    let modes: [(&str, Vec<&str>); 6] = [
        ("a simulation", [&small[..], &noise, &["--json"]].concat()),
        ("--print-scenario", [&small[..], &noise, &["--print-scenario"]].concat()),
        ("--what-if", [&small[..], &[&what_if, "--json"]].concat()),
        ("--choose", [&small[..], &[&what_if, "--choose", "--cores=8", "--json"]].concat()),
        ("--goal", [&noise[..], &[&goal_of, "--json"]].concat()),
        ("--fit-machine", [&fit[..], &["--json"]].concat()),
    ];
    for (mode, words) in &modes {
        for (name, values) in &tried {
            let option = format!("--{name}");
            let is_same = |word: &&&str| word.split('=').next() == Some(&option);
            let rest: Vec<&str> = words.iter().filter(|word| !is_same(word)).copied().collect();
            // --json and an option that selects the mode make the difference by being left out
            let is_there = rest.len() < words.len();
            let is_as_before = values.iter().any(|value| words.contains(&&*format!("{option}={value}")));
            if is_as_before || is_there && values.is_empty() || option == *mode {
                continue;
            }
            let mut more: Vec<&str> = if *name == "SCENARIO" { vec![] } else { vec![&option] };
            more.extend(values);
            match (*mode, *name) {
                ("--fit-machine", "out") => more = vec!["--out", &profile],
                (_, "resume") => more.extend(["--out", &table]),
                _ => {}
            }
            // SCENARIO stands before options that take several values
            let all = [&["sim"][..], &more, &rest].concat();
            let run = colony().args(&all).output().expect("runs");
            let said = error(&run);
            if run.status.code() == Some(2) {
                let says = if *name == "choose" { "--what-if <TRACE>" } else { "has no effect with" };
                assert!(said.contains(says), "{mode} and {option}: {said}");
                continue;
            }
            assert!(run.status.success(), "{mode} and {option}: {said}");
            let before = answer(&[&["sim"][..], words].concat());
            let written = [&page, &table, &profile].map(|file| std::fs::remove_file(file).is_ok());
            let differs = String::from_utf8_lossy(&run.stdout) != before;
            assert!(differs || written.contains(&true), "{mode} ignores {option}");
        }
    }
}

#[test]
fn an_option_that_changes_nothing_in_the_scenario_is_refused() {
    for (args, says) in [
        (
            &["--schedulers", "fair", "--period", "5ms"][..],
            "--period has no effect: no scheduler has windows",
        ),
        (&["--schedulers", "none", "--duty", "70%"], "--duty has no effect"),
        (&["--noise", "none", "--phase", "aligned"], "--phase has no effect: there is no noise"),
        (&["--noise", "none", "--seed", "5"], "--seed has no effect: nothing in the scenario is random"),
        (&["--noise", "none", "--repetitions", "3"], "--repetitions has no effect: nothing in the scenario"),
        (&["--noise", "none", "--schedulers", "none,fair"], "--schedulers has no effect: there is no noise"),
        (&["--noise", "none", "--noise", "1us every 1ms"], "--noise none has no effect: other noise"),
        (
            &["--what-if", "x", "--phase", "aligned"],
            "--phase has no effect with --what-if: its noise is that of",
        ),
        (&["--what-if", "x", "--choose", "--period", "5ms"], "see --duty. Leave --period out"),
        (&["--cores", "8"], "--cores has no effect without --what-if TRACE --choose. Leave --cores out"),
        (&["--goal", "x", "--op", "barrier"], "--op has no effect with --goal: the schedule is the program"),
        (&["--print-scenario", "--json"], "--json has no effect with --print-scenario"),
        (
            &["--what-if", "x", "--goal", "y"],
            "--goal has no effect with --what-if: each of the two selects a mode",
        ),
    ] {
        fails(&[&["sim"], args].concat(), 2, says);
    }
}

#[test]
fn an_option_and_a_sweep_of_one_value_are_refused() {
    for (option, sweep) in [
        ("--noise=3us every 1ms", "noise=1,2"),
        ("--trace=x.csv", "noise=1,2"),
        ("--phase=aligned", "noise.0.phase=random,aligned"),
        ("--nodes=4", "nodes=4,8"),
        ("--op=barrier", "program.name=barrier,bcast"),
        ("--bytes=8", "program.bytes=8,16"),
        ("--work=1ms", "program.work=1ms,2ms"),
        ("--algorithm=ring", "program.algorithm=ring,binomial"),
        ("--iterations=5", "program.iterations=5,6"),
        ("--schedulers=none", "schedulers=1,2"),
        ("--period=5ms", "schedulers.coordinated.period=5ms,6ms"),
        ("--duty=70%", "schedulers.coordinated.duty_cycle=70%,80%"),
        ("--machine=bgl", "machine=bgl,loggopsim"),
        ("--ranks-per-node=2", "ranks_per_node=1,2"),
        ("--seed=5", "seed=1,2"),
        ("--repetitions=2", "repetitions=2,3"),
    ] {
        let (name, path) =
            (option.split('=').next().expect("a name"), sweep.split('=').next().expect("a path"));
        let says = format!("{name} has no effect: the sweep of `{path}` replaces its value");
        fails(&["sim", option, "--sweep", sweep], 2, &says);
    }
    fails(&["sim", "--sweep", "seed=1", "--sweep", "seed=2"], 2, "--sweep gives `seed` twice");
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, "nodes = [2]\n[sweep]\nseed = [1, 2]\n").expect("written");
    let file = path.to_str().expect("plain");
    fails(&["sim", file, "--seed", "5"], 2, "the sweep of `seed`");
    // a mode without a sweep leaves that of the file out
    let trace = trace(dir.path());
    text(&["sim", file, "--what-if", &trace, "--seed", "5", "--nodes", "4", "--iterations", "2"]);
    // the rest of what an option set may be swept
    let args = with(&[
        "--noise",
        "16us every 1ms",
        "--sweep",
        "noise.0.periodic.length=1us,2us",
        "--print-scenario",
    ]);
    assert!(text(&args).contains("periodic.length"));
}

#[test]
fn a_note_names_the_keys_of_a_scenario_that_its_mode_replaces() {
    let dir = tempfile::tempdir().expect("temp dir");
    let trace = trace(dir.path());
    let path = dir.path().join("mine.toml");
    let file = path.to_str().expect("plain");
    let head = "nodes = [2]\nrepetitions = 2\nnoise = [{ leibniz = { mean = \"1ms\", sleep = \"9ms\" } }]\n";
    let run = |program: &str, args: &[&str]| {
        std::fs::write(&path, format!("{head}[program]\nname = \"allreduce\"\n{program}")).expect("written");
        let out = colony().args([&["sim", file, "--json"], args].concat()).output().expect("runs");
        assert!(out.status.success(), "{}", error(&out));
        let found: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        (found["answer"]["scales"][0]["runs"].clone(), error(&out))
    };
    let ask = ["--what-if", &trace];
    let (planned, said) = run("", &ask);
    assert!(said.contains("--what-if does not use these keys of") && said.contains(": noise\n"), "{said}");
    assert!(!said.contains("iterations"), "{said}");
    let (stated, said) = run("iterations = 5\n", &ask);
    assert!(said.contains("each run has the 5 iterations that") && said.contains("for the plan"), "{said}");
    assert_eq!(stated["iterations"], 10.0, "two runs");
    assert!(planned["iterations"].as_f64() > Some(20.0), "{planned}");
    let (option, said) = run("iterations = 5\n", &[&ask[..], &["--iterations", "7"]].concat());
    assert!(option["iterations"] == 14.0 && !said.contains("iterations that"), "{option} {said}");
}
