// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony lb`: load files made, replayed, refused.

use std::path::{Path, PathBuf};

use crate::common::{fails, json, text};

fn str(path: &Path) -> &str {
    path.to_str().expect("plain")
}

/// A folder with a small load file in it.
fn generated() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("loads.json");
    text(&["lb", "generate", "--pes", "64", "--objects", "4096", "-o", str(&file)]);
    (dir, file)
}

#[test]
fn strategies_are_compared_in_one_table() {
    let (dir, file) = generated();
    let plot = dir.path().join("plot.html");
    let table = text(&[
        "lb",
        "replay",
        str(&file),
        "--strategy",
        "all",
        "--topology",
        "torus:4x4x4",
        "--plot",
        str(&plot),
    ]);
    for name in
        ["before", "greedy", "greedy-refine", "refine", "hybrid", "gossip", "topology", "rotate", "random"]
    {
        assert!(table.lines().any(|l| l.starts_with(name)), "{name}: {table}");
    }
    assert!(table.lines().all(|l| l.chars().count() <= 80), "{table}");
    assert!(std::fs::read_to_string(plot).expect("the page").contains("<svg"));
    let shown = json(&["lb", "replay", str(&file), "--strategy", "refine,hybrid", "--json"]);
    assert_eq!(shown["schema"], "colony.lb.replay/1");
    let imbalance = |value: &serde_json::Value| value["imbalance"].as_f64().expect("a ratio");
    assert!((imbalance(&shown["before"]) - 1.86).abs() < 1e-6);
    assert!(
        shown["rows"].as_array().expect("rows").iter().all(|r| imbalance(&r["quality"]) < 1.01),
        "{shown}"
    );
}

#[test]
fn the_same_seed_makes_the_same_file_and_the_same_decisions() {
    let (dir, file) = generated();
    let (_again, other) = generated();
    assert_eq!(std::fs::read(&file).expect("a file"), std::fs::read(&other).expect("a file"));
    let decide = |name: &str, seed: &str| {
        let out = dir.path().join(name);
        text(&["lb", "replay", str(&file), "--strategy", "gossip", "--seed", seed, "--output", str(&out)]);
        std::fs::read_to_string(out).expect("an assignment")
    };
    assert_eq!(decide("a", "1"), decide("b", "1"));
    assert_ne!(decide("a", "1"), decide("c", "2"));
    let assignment: serde_json::Value = serde_json::from_str(&decide("a", "1")).expect("JSON");
    assert_eq!(
        (&assignment["schema"], assignment["objects"].as_array().map(Vec::len)),
        (&"colony.assignment/1".into(), Some(4096))
    );
}

#[test]
fn files_of_vt_are_read_from_a_folder() {
    let dir = tempfile::tempdir().expect("temp dir");
    let rank = |rank: u32, tasks: u32| {
        let task = |i: u32| {
            let id = rank * 100 + i;
            format!(
                r#"{{"entity":{{"id":{id},"home":{rank},"collection_id":7,"migratable":true,"type":"object"}},"node":{rank},"resource":"cpu","time":1.0}}"#
            )
        };
        let tasks: Vec<String> = (0..tasks).map(task).collect();
        let text = format!(r#"{{"type":"LBDatafile","phases":[{{"id":0,"tasks":[{}]}}]}}"#, tasks.join(","));
        std::fs::write(dir.path().join(format!("data.{rank}.json")), text).expect("a file");
    };
    rank(0, 6);
    rank(1, 2);
    let shown = json(&["lb", "replay", str(dir.path()), "--json"]);
    assert_eq!((shown["pes"].as_u64(), shown["objects"].as_u64()), (Some(2), Some(8)));
    assert_eq!(
        (&shown["before"]["max_s"], &shown["rows"][0]["quality"]["max_s"]),
        (&6.0.into(), &4.0.into())
    );
    let wider = json(&["lb", "replay", str(dir.path()), "--pes", "4", "--json"]);
    assert_eq!(wider["rows"][0]["quality"]["max_s"], 2.0);
    fails(&["lb", "replay", str(dir.path()), "--pes", "1"], 2, "at least 2");
    fails(&["lb", "replay", str(dir.path()), "--phase", "3"], 2, "no phase 3; it has 0");
    std::fs::write(dir.path().join("data.2.json.br"), [0x8b, 0x0b, 0x80, 0x7b, 0x22, 0xff]).expect("a file");
    fails(&["lb", "replay", str(dir.path())], 1, "data.2.json.br: the file is compressed with brotli");
}

#[test]
fn wrong_use_says_what_is_possible() {
    let (dir, file) = generated();
    let file = str(&file);
    fails(&["lb", "replay", file, "--strategy", "gredy"], 2, "known are greedy");
    fails(&["lb", "replay", file, "--strategy", "refine:tolerence=2"], 2, "tolerance");
    fails(&["lb", "replay", file, "--topology", "torus:5x5"], 2, "25");
    fails(&["lb", "replay", file, "--topology", "ring"], 2, "torus:16x32x32");
    fails(&["lb", "replay", file, "--strategy", "all", "--output", "/dev/null"], 2, "one strategy");
    fails(&["lb", "replay", file, "--pes", "3"], 2, "at least 64");
    fails(&["lb", "replay", "/no/such/file"], 1, "/no/such/file");
    fails(&["lb", "replay"], 2, "FILE");
    let folder = tempfile::tempdir().expect("temp dir");
    fails(&["lb", "replay", str(folder.path())], 2, "data.0.json");
    let out = dir.path().join("x.json");
    let out = str(&out);
    fails(&["lb", "generate", "--pes", "0", "--objects", "1", "-o", out], 2, "1 to");
    fails(&["lb", "generate", "--pes", "8", "--objects", "4", "-o", out], 2, "at least one object");
    fails(
        &["lb", "generate", "--pes", "8", "--objects", "64", "--imbalance", "9", "-o", out],
        2,
        "imbalance",
    );
    fails(&["lb", "generate", "--pes", "8", "--objects", "64", "--pattern", "ring", "-o", out], 2, "mesh2d");
    assert!(!Path::new(out).exists(), "nothing half-written");
    let whole = std::fs::read(file).expect("a file");
    std::fs::write(out, &whole[..whole.len() / 2]).expect("a file");
    fails(&["lb", "replay", out], 1, "EOF");
}
