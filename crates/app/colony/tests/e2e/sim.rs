// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim`, as a user runs it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Owned, colony, copy, error, failed, fails, is_plain, json, program, text, until};

/// A scenario of seconds at most.
const SMALL: [&str; 8] =
    ["sim", "--nodes", "8,16", "--iterations", "20", "--repetitions", "2", "--schedulers=none,preempt"];

pub(crate) fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SMALL[..], more].concat()
}

/// A trace of two sources, one CPU, 100 ms: a tick, and a rare long thread.
pub(crate) fn trace(folder: &Path) -> String {
    let mut rows = String::from("# observed_s: 0.1\nnode,cpu,start_ns,duration_ns,source\n");
    for i in 0..25u64 {
        rows += &format!("0,0,{},2000,irq:local_timer\n", 100_000 + i * 4_000_000);
    }
    for i in 0..2u64 {
        rows += &format!("0,0,{},300000,thread:kworker\n", 1_000_000 + i * 50_000_000);
    }
    let path = folder.join("node.csv");
    std::fs::write(&path, rows).expect("written");
    path.to_str().expect("plain").to_owned()
}

#[test]
fn noise_slows_a_barrier_and_none_does_not() {
    let args = with(&["--noise", "16us every 1ms", "--op", "barrier", "--work", "100us"]);
    let table = text(&args);
    assert!(table.contains("preempt") && table.contains("every 1ms"), "{table}");
    let found = json(&[&args[..], &["--json"]].concat());
    assert_eq!(found["schema"], "colony.sim/1");
    assert_eq!(found["scenario"]["seed"], 1);
    let points = found["points"].as_array().expect("a list");
    assert_eq!(points.len(), 4);
    let slowdown = |i: usize| points[i]["outcome"]["slowdown"].as_f64().expect("a number");
    assert!(slowdown(0) == 1.0 && slowdown(1) > 1.0, "{found}");
    assert_eq!(found, json(&[&args[..], &["--json"]].concat()), "the same words, the same figures");
}

#[test]
fn words_become_a_scenario_that_does_the_same() {
    let dir = tempfile::tempdir().expect("temp dir");
    let args = with(&["--noise", "leibniz 2%", "--bytes", "64", "--machine", "loggopsim"]);
    let written = text(&[&args[..], &["--print-scenario"]].concat());
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, &written).expect("written");
    let file = file.to_str().expect("plain");
    assert_eq!(json(&["sim", file, "--json"]), json(&[&args[..], &["--json"]].concat()));
    assert_eq!(text(&["sim", file, "--print-scenario"]), written);
}

#[test]
fn mistakes_are_explained_before_anything_runs() {
    let dir = tempfile::tempdir().expect("temp dir");
    let scenario = dir.path().join("wrong.toml");
    std::fs::write(&scenario, "seed = 1\n[program]\nname = \"allreduce\"\nbites = 8\n").expect("written");
    let scenario = scenario.to_str().expect("plain");
    fails(&["sim", scenario], 2, "wrong.toml:4: unknown field `bites`");
    fails(&["sim", "/nonexistent.toml"], 1, "/nonexistent.toml");
    for (args, part) in [
        (&["--op", "allredcue"][..], "allreduce"),
        (&["--noise", "lots"], "leibniz 21%"),
        (&["--noise", "2ms every 1ms"], "200 % of a CPU"),
        (&["--schedulers", "fair,unfair"], "spare-core"),
        (&["--machine", "cray-1"], "bgl"),
        (&["--nodes", "0"], "0"),
        (&["--nodes", "4294967295"], "more than can be simulated"),
        (&["--repetitions", "0"], "0"),
        (&["--op", "barrier", "--bytes", "8"], "no such parameter"),
        (&["--schedulers", "coordinated", "--duty", "100%"], "no regular window"),
        (&["--sweep", "program.byts=1"], "byts"),
        (&["--sweep", "program.bytes"], "program.bytes=8,1024"),
        (&["--out", "results.txt"], ".parquet"),
        (&["--resume"], "--out"),
        (&["--progress", "asynchronous"], "--goal"),
        (&["--queue", "loggopsim"], "--goal"),
        (&["--what-if", "x", "--trace", "y"], "--trace"),
        (&["--choose"], "--what-if"),
        (&["--what-if", "x", "--choose", "--ranks-per-node", "2"], "--ranks-per-node"),
        (&["--what-if", "x", "--choose", "--cores", "0"], "--cores"),
    ] {
        fails(&[&["sim"], args].concat(), 2, part);
    }
    fails(&["sim", "--trace", "/nonexistent.parquet"], 1, "/nonexistent.parquet");
    fails(&["sim", "--what-if", "/nonexistent.parquet"], 1, "/nonexistent.parquet");
}

#[test]
fn a_sweep_is_kept_as_json_and_as_a_table() {
    let dir = tempfile::tempdir().expect("temp dir");
    let args = with(&["--sweep", "program.bytes=8,1024", "--noise", "16us every 1ms"]);
    let document = |name: &str| {
        let out = dir.path().join(name);
        let out = out.to_str().expect("plain");
        let table = text(&[&args[..], &["--out", out]].concat());
        assert!(table.contains(" bytes ") && table.contains(" 1024 "), "{table}");
        assert!(!dir.path().join(format!("{name}.partial")).exists());
        out.to_owned()
    };
    let kept: Value =
        serde_json::from_slice(&std::fs::read(document("r.json")).expect("written")).expect("JSON");
    assert_eq!(kept["points"].as_array().map(Vec::len), Some(8));
    assert_eq!(kept["points"][1]["set"]["program.bytes"], 1024);
    // whole already: nothing is run again, nothing changes
    let table = document("r.parquet");
    let before = std::fs::read(&table).expect("written");
    assert!(before.starts_with(b"PAR1") && before.ends_with(b"PAR1"));
    text(&[&args[..], &["--out", &table, "--resume"]].concat());
    assert_eq!(std::fs::read(&table).expect("written"), before);
    // another scenario's results are not mixed in
    fails(&[&args[..], &["--out", &table, "--resume", "--seed", "9"]].concat(), 2, "another scenario");
}

#[test]
fn mistakes_in_files_are_told_in_the_words_of_scenarios() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    for (text, says) in [
        ("seed = 1\nnodes = \"many\"\n", "w.toml:2: `nodes` is the text \"many\"; give a list"),
        ("begin = 5\n", "w.toml:1: `begin` is 5; give a time with its unit"),
        (
            "[[noise]]\nphase = \"late\"\nperiodic = { every = \"1ms\", length = \"2us\" }\n",
            "w.toml:2: `noise.0.phase` has no `late`",
        ),
        (
            "[program]\nname = \"x\"\n[[program.step]]\nkind = \"collective\"\noperation = \"allreduce\"\n\
             algorithm = \"pairwise\"\n",
            "w.toml:3: program.step.0: the program `x` asks for an allreduce by pairwise",
        ),
    ] {
        fails(&["sim", &file("w.toml", text)], 2, says);
    }
    fails(
        &["sim", "--machine", &file("m.toml", "name = 3\n")],
        2,
        "m.toml:1: no machine profile: `name` is 3",
    );
    fails(
        &with(&["--sweep", "program.bytes=many"]),
        2,
        "is the text \"many\"; give a whole number of 0 or more",
    );
    fails(&with(&["--algorithm", "telepathy"]), 2, "has no `telepathy`; choose one of `hardware`");
    // a distribution's fixed time has a unit, or is whole nanoseconds
    let fixed = |length: &str| {
        let model = "arrivals = { every = { fixed = \"1ms\" } }";
        let text =
            format!("nodes = [8]\n[[noise]]\nmodel = {{ {model}, length = {{ fixed = {length} }} }}\n");
        json(&["sim", &file("f.toml", &text), "--iterations", "5", "--json"])["points"].take()
    };
    assert_eq!(fixed("\"100us\""), fixed("100000"));
    let one = text(&["sim", "--nodes", "8", "--noise", "none", "--iterations", "1", "--bytes", "1"]);
    assert!(one.contains("of 1 byte after") && one.contains(", 1 iteration,"), "{one}");
}

#[test]
fn a_killed_sweep_resumes_to_the_same_file() {
    let dir = tempfile::tempdir().expect("temp dir");
    let args = |out: &Path| {
        let mut command = Command::new(program());
        command.args(["sim", "--nodes", "16384", "--iterations", "300", "--repetitions", "2", "--op", "bsp"]);
        command.args([
            "--schedulers",
            "preempt",
            "--sweep",
            "seed=1,2,3,4,5,6,7,8",
            "--noise",
            "16us around 1ms",
        ]);
        command.arg("--out").arg(out).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let (whole, killed) = (dir.path().join("whole.json"), dir.path().join("killed.json"));
    assert!(args(&whole).status().expect("runs").success());

    let journal = dir.path().join("killed.json.partial");
    let lines = || std::fs::read_to_string(&journal).map_or(0, |t| t.lines().count());
    let mut run = Owned(args(&killed).spawn().expect("starts"));
    until("its first points", || lines() >= 3 || run.0.try_wait().expect("ours").is_some());
    run.0.kill().expect("ours");
    run.0.wait().expect("ours");
    if killed.exists() {
        // it was faster than the kill: what a kill after three points and a half leaves
        eprintln!("the run ended before it was killed");
        std::fs::remove_file(&killed).expect("there");
        let mut all: Value = serde_json::from_slice(&std::fs::read(&whole).expect("there")).expect("JSON");
        let points = all["points"].take();
        all["points"] = Value::Array(Vec::new());
        let points = points.as_array().expect("a list").iter().take(4).map(|p| format!("{p}\n"));
        std::fs::write(&journal, format!("{all}\n{}", points.collect::<String>())).expect("written");
    }
    // without a word nothing that was done is thrown away
    let out = args(&killed).output().expect("runs");
    assert_eq!(out.status.code(), Some(2), "{}", error(&out));
    assert!(error(&out).contains("--resume"), "{}", error(&out));
    // the last line may be torn
    let text = std::fs::read_to_string(&journal).expect("there");
    std::fs::write(&journal, &text[..text.len() - 20]).expect("written");
    let out = args(&killed).arg("--resume").output().expect("runs");
    assert!(out.status.success(), "{}", error(&out));
    assert!(!journal.exists());
    assert_eq!(std::fs::read(&whole).expect("there"), std::fs::read(&killed).expect("there"));
}

#[test]
fn one_table_says_what_each_source_costs_and_what_would_help() {
    let dir = tempfile::tempdir().expect("temp dir");
    let trace = trace(dir.path());
    let args = ["sim", "--what-if", &trace, "--nodes", "1,128", "--period", "50ms"];
    let table = text(&args);
    for part in ["thread:kworker", "irq:local_timer", "coordinated windows", "a spare core", "without noise"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    let found = json(&[&args[..], &["--json"]].concat());
    assert_eq!(found["schema"], "colony.sim.what_if/1");
    let answer = &found["answer"];
    assert_eq!(answer["sources"][0]["name"], "thread:kworker", "the dearest first");
    let cost = |nodes: usize| answer["sources"][0]["cost"][nodes]["ns"].as_f64().expect("a number");
    assert!(cost(1) > 2.0 * cost(0), "{answer}");
    let back = |remedy: usize| answer["remedies"][remedy]["gives_back"][1]["ns"].as_f64().expect("a number");
    assert!(back(0) > cost(1) / 2.0 && back(1) > cost(1) / 2.0, "{answer}");
}

#[test]
fn intervals_are_those_of_the_node_and_a_short_trace_says_so_once() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("rare.csv");
    let mut rows = String::from("# observed_s: 20\n# cpus: 0\ncpu,start_ns,duration_ns,source\n");
    for ms in (0..20_000).step_by(4) {
        rows += &format!("0,{ms}000000,5000,irq:local_timer\n");
    }
    for s in [3, 11, 12] {
        rows += &format!("0,{s}001500000,2000000,thread:backup\n");
    }
    std::fs::write(&path, rows).expect("written");
    let path = path.to_str().expect("plain");
    let args = ["sim", "--what-if", path, "--nodes", "64"];
    let (table, found) = (text(&args), json(&[&args[..], &["--json"]].concat()));
    let seen = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(seen.matches("fewer than ten times (thread:backup, 3 times)").count(), 1, "{table}");
    assert!(table.contains("by simulation alone") && !table.contains("~0"), "{table}");
    // three may have been one or nine: the interval of a Poisson rate
    let backup = &found["answer"]["sources"][0];
    let of = |field: &str| backup["cost"][0][field].as_f64().expect("a number");
    assert_eq!(backup["name"], "thread:backup");
    assert!(of("low_ns") < 0.5 * of("ns") && of("high_ns") > 2.0 * of("ns"), "{backup}");
    assert!(of("simulation_ci95_ns") < 0.5 * of("ci95_ns"), "{backup}");
    // choices are told apart as far as another trace would tell them apart
    let choice = text(&["sim", "--what-if", path, "--choose", "--nodes", "64"]);
    assert!(choice.contains("this trace of 20 s"), "{choice}");
}

#[test]
fn no_interval_is_given_where_a_few_long_detours_decide() {
    let dir = tempfile::tempdir().expect("temp dir");
    let scenario = dir.path().join("pareto.toml");
    let text_of = "nodes = [64]\nschedulers = [\"preempt\"]\nprogram = { name = \"allreduce\", work = \"1ms\", iterations = 50 }\n\
        [[noise]]\nname = \"thread:backup\"\n[noise.model]\narrivals = { every = { exponential = { mean_ns = 5e7 } } }\n\
        length = { pareto = { least_ns = 2e4, shape = 1.2, most_ns = 2e9 } }\n";
    std::fs::write(&scenario, text_of).expect("written");
    let scenario = scenario.to_str().expect("plain");
    let table = text(&["sim", scenario]);
    let seen = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(seen.contains("no 95 % interval: the lengths of thread:backup vary so much"), "{table}");
    let found = json(&["sim", scenario, "--json"]);
    assert!(found["points"][0]["outcome"]["ci95_ns"].is_null(), "{found}");
}

#[test]
fn a_table_compares_spare_cores_and_windows_on_each_node_count() {
    let dir = tempfile::tempdir().expect("temp dir");
    let trace = trace(dir.path());
    let args = ["sim", "--what-if", &trace, "--choose", "--cores", "8", "--nodes", "1,128"];
    let table = text(&args);
    for part in [
        "nothing changed",
        "1 spare core",
        "4 spare cores",
        "windows 95 %",
        "128 nodes",
        "Best for throughput",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(
        table.contains(" * ") && table.lines().all(|l| l.chars().count() <= 80 && !l.ends_with(' ')),
        "{table}"
    );
    let found = json(&[&args[..], &["--json"]].concat());
    assert_eq!(found["schema"], "colony.sim.choose/1");
    let answer = &found["answer"];
    assert_eq!((&answer["cores"], &answer["bound"][0]), (&8.into(), &"irq:local_timer".into()));
    assert_eq!(answer["choices"][1]["taken"][0], "thread:kworker");
    let one = |scale: usize| answer["scales"][scale]["throughput"][1]["share"].as_f64().expect("a number");
    assert!(one(0) <= 7.0 / 8.0 && one(1) <= one(0) + 0.01, "{answer}");
    let shorter = json(&[&args[..], &["--duty", "70%", "--json"]].concat());
    let windows =
        shorter["answer"]["choices"].as_array().expect("choices").iter().filter(|c| !c["favored"].is_null());
    assert_eq!(windows.map(|c| c["favored"].as_f64()).collect::<Vec<_>>(), [Some(0.7)]);
}

#[test]
fn a_schedule_runs_to_the_nanosecond_and_a_deadlock_names_its_ranks() {
    let dir = tempfile::tempdir().expect("temp dir");
    let goal = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    let ping = goal("ping.goal", "num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n");
    let table = text(&["sim", "--goal", &ping, "--noise", "none"]);
    // o + L + 7 G + o
    assert!(table.contains("without noise: 5542 ns"), "{table}");
    let found =
        json(&["sim", "--goal", &ping, "--noise", "16us every 1ms", "--progress", "asynchronous", "--json"]);
    assert_eq!((&found["schema"], &found["progress"]), (&"colony.sim.goal/1".into(), &"asynchronous".into()));
    assert_eq!((&found["queue"], &found["quiet_ends_ns"]), (&"first-ready".into(), &vec![1500, 5542].into()));
    for row in found["results"].as_array().expect("rows") {
        let last = |run: &Value| run.as_array().expect("ranks").iter().filter_map(Value::as_u64).max();
        let lasts: Vec<_> = row["ends_ns"].as_array().expect("runs").iter().map(last).collect();
        let totals: Vec<_> = row["totals_ns"].as_array().expect("runs").iter().map(Value::as_u64).collect();
        assert_eq!(lasts, totals);
    }
    // LogGOPSim charges a message of 0 bytes G less than one of 1: its length less one wraps around
    let none = goal("none.goal", "num_ranks 2\nrank 0 {\nsend 0b to 1\n}\nrank 1 {\nrecv 0b from 0\n}\n");
    let found = json(&["sim", "--goal", &none, "--noise", "none", "--queue", "loggopsim", "--json"]);
    assert_eq!((&found["progress"], &found["queue"]), (&"asynchronous".into(), &"loggopsim".into()));
    assert_eq!(found["quiet_ends_ns"], Value::from(vec![1500, 5500 - 6]));
    fails(&["sim", "--goal", &none, "--queue", "loggopsim", "--progress", "program-order"], 2, "--progress");
    let stuck = "num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\n\
                 rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n";
    fails(&["sim", "--goal", &goal("stuck.goal", stuck)], 1, "deadlock: 2 ranks wait for ever: rank 0");
    fails(&["sim", "--goal", &goal("bad.goal", "num_ranks 1\nrank 0 {\nfly 8b\n}\n")], 2, "bad.goal:3");
    let sizes = "num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 7b from 0\n}\n";
    fails(&["sim", "--goal", &goal("sizes.goal", sizes)], 2, "sizes.goal:6");
    fails(&["sim", "--goal", "/nonexistent.goal"], 1, "/nonexistent.goal");
    for (rank, calls) in
        ["MPI_Send:1100:93:1:1,8,8:1:7:5,0,2:1105", "MPI_Recv:1100:93:1:1,8,8:0:7:5,1,2:99:1120"]
            .iter()
            .enumerate()
    {
        let trace = format!("MPI_Init:-:1:2:1000\n{calls}\nMPI_Finalize:1120:1121\n");
        std::fs::write(dir.path().join(format!("pmpi-trace-rank-{rank}.txt")), trace).expect("written");
    }
    let folder = dir.path().to_str().expect("plain");
    let found = json(&["sim", "--goal", folder, "--noise", "none", "--json"]);
    assert_eq!(found["ranks"], 2);
    assert_eq!(found["notes"].as_array().map(Vec::len), Some(0), "the trace says it all: {}", found["notes"]);
    let tested = "MPI_Init:-:1:2:1000\nMPI_Irecv:1000:93:1:1,8,8:0:7:5,1,2:4096:1000\nMPI_Test:1120:4096:1:2:1120\nMPI_Finalize:1120:1121\n";
    std::fs::write(dir.path().join("pmpi-trace-rank-1.txt"), tested).expect("written");
    let found = json(&["sim", "--goal", folder, "--noise", "none", "--json"]);
    let note = found["notes"][0].as_str().expect("an assumption");
    assert!(note.starts_with("1 calls of MPI_Test, Testall"), "{note}");
    std::fs::remove_file(dir.path().join("pmpi-trace-rank-0.txt")).expect("there");
    fails(&["sim", "--goal", folder], 2, "the file of rank 0 is missing");
    for (head, says) in [
        (&b"\xff\xaa\xddDUMPI\0\0"[..], "a trace of MPI calls in DUMPI (`dumpi2ascii FILE` prints it)"),
        (b"\x03BOTF2\0", "a part of an OTF2 archive (`otf2-print traces.otf2` prints it)"),
        (b"\x03B\x01\0\0\0\0\0\0\0", "a part of an OTF2 archive"),
        (b"# htor's PMPI Tracer 0.9 Output File\n", "give the folder that has the files of all ranks"),
        (b"PAR1\0", "a Parquet file"),
    ] {
        let file = dir.path().join("other");
        std::fs::write(&file, head).expect("written");
        fails(&["sim", "--goal", file.to_str().expect("plain")], 2, says);
    }
    fails(&["sim", "--goal", &ping, "--op", "barrier"], 2, "--op");
}

#[test]
fn fitted_models_stand_in_a_scenario() {
    let dir = tempfile::tempdir().expect("temp dir");
    let trace = trace(dir.path());
    let table = text(&["noise", "fit", &trace]);
    assert!(table.contains("irq:local_timer") && table.contains("1 source is too rare"), "{table}");
    let found = json(&["noise", "fit", &trace, "--json"]);
    assert_eq!(found["schema"], "colony.noise.fit/1");
    let toml = text_unwrapped(&["noise", "fit", &trace, "--toml"]);
    let file = dir.path().join("fitted.toml");
    std::fs::write(&file, toml).expect("written");
    let table = text(&["sim", file.to_str().expect("plain"), "--nodes", "16", "--iterations", "20"]);
    assert!(table.contains("irq:local_timer"), "{table}");
}

/// Output of a run without line breaks at the terminal's width, as programs read it.
fn text_unwrapped(args: &[&str]) -> String {
    let out = colony().args(args).output().expect("runs");
    assert!(out.status.success(), "{args:?}: {}", error(&out));
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn the_example_needs_no_words() {
    // its full size takes longer than a test should
    let out = colony().args(["sim", "--nodes", "16", "--iterations", "20"]).output().expect("runs");
    assert!(out.status.success(), "{}", error(&out));
    assert!(error(&out).contains("--print-scenario"), "{}", error(&out));
    let table = String::from_utf8(out.stdout).expect("text");
    is_plain(&table);
    assert!(["none", "fair", "coordinated", "bgl"].iter().all(|word| table.contains(word)), "{table}");
}

#[test]
fn a_report_has_the_sweep_and_what_makes_it_again() {
    let dir = tempfile::tempdir().expect("temp dir");
    let page = dir.path().join("mine.html");
    let page = page.to_str().expect("plain");
    let args = with(&["--noise", "16us every 1ms", "--sweep", "program.bytes=8,1024", "--report", page]);
    let out = colony().args(&args).output().expect("runs");
    assert!(out.status.success() && error(&out).contains("mine.html"), "{}", error(&out));
    let html = std::fs::read_to_string(page).expect("written");
    assert_eq!(html.matches("<canvas").count(), 2);
    for part in
        ["--noise &#39;16us every 1ms&#39; --sweep program.bytes=8,1024", "iterations = 20", "under preempt"]
    {
        assert!(html.contains(part), "{part}");
    }
    // told before anything runs
    fails(&with(&["--report", "/nonexistent/r.html"]), 1, "/nonexistent");
    fails(&["sim", "--what-if", "x", "--report", page], 2, "--report");
}

/// Results of `colony bench --json` on a machine of 900 ns a message and 100 ps a byte, as files.
pub(crate) fn benchmarks(folder: &Path) -> Vec<String> {
    let runs = [("barrier", 0, 1), ("allreduce", 1001, 1), ("alltoall", 10_001, 1), ("ring", 100_001, 2)];
    let file = |(program, bytes, messages): (&str, u64, u64)| {
        let p50_ns = messages * (900 + bytes.saturating_sub(1) / 10);
        let result = serde_json::json!({
            "schema": "colony.bench/2",
            "params": { "program": program, "bytes": bytes },
            "results": [{ "ranks": 2, "all": { "p50_ns": p50_ns } }],
        });
        let path = folder.join(format!("{program}.json"));
        std::fs::write(&path, result.to_string()).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    runs.into_iter().map(file).collect()
}

#[test]
fn a_machine_fitted_to_benchmarks_is_one_to_simulate() {
    let dir = tempfile::tempdir().expect("temp dir");
    let files = benchmarks(dir.path());
    let mut args = vec!["sim", "--fit-machine"];
    args.extend(files.iter().map(String::as_str));
    let found = json(&[&args[..], &["--json"]].concat());
    assert_eq!(found["schema"], "colony.sim.fit_machine/1");
    let p = &found["machine"]["loggops"];
    let ns = |key: &str| p[key].as_u64().expect("a number");
    assert_eq!((2 * ns("overhead_ns") + ns("latency_ns"), ns("gap_per_byte_ps")), (900, 100));
    assert!(found["rms"].as_f64().is_some_and(|rms| rms < 1e-6), "{found}");
    // what is printed and what is written: both a profile
    let here = dir.path().join("here.toml");
    let here = here.to_str().expect("plain");
    let table = text(&[&args[..], &["--out", here]].concat());
    assert!(table.contains("allreduce") && table.contains("900 ns a message"), "{table}");
    let written = std::fs::read_to_string(here).expect("written");
    let printed = text_unwrapped(&args);
    assert!(printed.starts_with(&written) && printed.contains("# allreduce"), "{printed}");
    for profile in [&written, &printed] {
        std::fs::write(here, profile).expect("written");
        let small = [
            "sim",
            "--machine",
            here,
            "--op",
            "barrier",
            "--noise",
            "none",
            "--nodes",
            "2,4",
            "--iterations=5",
        ];
        let points = json(&[&small[..], &["--schedulers", "none", "--json"]].concat());
        assert_eq!(points["points"][1]["outcome"]["quiet_ns"], 1800.0, "two rounds");
    }
    std::fs::write(dir.path().join("other.json"), "{\"schema\": \"colony.sim/1\"}").expect("written");
    let other = dir.path().join("other.json");
    let other = other.to_str().expect("plain");
    fails(&["sim", "--fit-machine", other], 2, "other.json is no result of `colony bench --json`");
    let old = std::fs::read_to_string(&files[0]).expect("written").replace("bench/2", "bench/1");
    let file = dir.path().join("old.json");
    std::fs::write(&file, old).expect("written");
    let file = file.to_str().expect("plain");
    for part in ["`colony.bench/1`", "`colony.bench/2`", "run the benchmark again"] {
        fails(&["sim", "--fit-machine", file], 2, part);
    }
    fails(&["sim", "--fit-machine", &files[0]], 2, "measure say 32 and 16384 bytes");
    fails(&["sim", "--fit-machine", "/nonexistent.json"], 1, "/nonexistent.json");
    fails(&["sim", "--fit-machine", &files[0], "--out", "x.json"], 2, ".toml");
    fails(&["sim", "--fit-machine", "--nodes", "8"], 2, "--nodes");
}

#[test]
fn without_mpi_the_fit_says_what_is_missing() {
    let dir = tempfile::tempdir().expect("temp dir");
    let lonely = dir.path().join("colony");
    copy(&program(), &lonely);
    let mut command = assert_cmd::Command::new(lonely);
    command.args(["sim", "--fit-machine"]).env("PATH", "").env_remove("COLONY_MPIRUN");
    failed(
        "no mpirun",
        &command.env("COLONY_BENCH", "/bin/true").output().expect("runs"),
        1,
        "apt install openmpi-bin",
    );
}
