// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine`: layout and plan.

use crate::common::{colony, fails, json};

fn shown(args: &[&str]) -> String {
    let out = colony().arg("machine").args(args).output().expect("runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

#[test]
fn a_plan_of_65536_nodes_names_every_step_and_fits_the_terminal() {
    let text = shown(&["plan", "--shape", "64x32x32"]);
    for part in
        ["64 racks, 128 midplanes, 65,536 compute nodes", "I/O nodes, level 2", "heartbeats", "Assumed: "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plan = json(&["machine", "plan", "--shape", "64x32x32", "--json"]);
    assert_eq!((&plan["schema"], &plan["io_nodes"]), (&"colony.machine.plan/1".into(), &1024.into()));
    assert_eq!(plan["messages"]["service_connections"], 32);
    assert_eq!(plan["steps"].as_array().map(Vec::len), Some(3));
}

#[test]
fn assumptions_come_from_a_file_and_go_into_the_plan() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("text");
    std::fs::write(file.path(), "[sizes]\nio_image = 1048576\n[transport]\nio_boot_s = 30").expect("written");
    let plan = json(&["machine", "plan", "--shape", "8x8x8", "--assume", path, "--json"]);
    let boot = &plan["boot"];
    assert_eq!(
        (&boot["sizes"]["io_image"], &boot["transport"]["io_boot_s"]),
        (&1_048_576.into(), &30.0.into())
    );
    assert!(plan["reported_s"].as_f64().is_some_and(|s| s > 30.0), "{plan}");
    std::fs::write(file.path(), "[transport]\nspeed = 1").expect("written");
    fails(&["machine", "plan", "--shape", "8x8x8", "--assume", path], 2, "unknown field `speed`");
    std::fs::write(file.path(), "[transport]\nheartbeat_s = 0.0").expect("written");
    fails(&["machine", "plan", "--shape", "8x8x8", "--assume", path], 2, "heartbeat interval of 0");
    fails(&["machine", "plan", "--shape", "8x8x8", "--assume", "/no/such/file"], 1, "/no/such/file");
}

#[test]
fn a_layout_shows_psets_and_the_personality_of_a_node() {
    let text = shown(&["layout", "--shape", "8x8x8", "--pset", "64", "--node", "R00-M0-N04-J12"]);
    for part in ["16 node cards", "R00-M0-N11-I00", "0 of 8, rank 44 of 64", "0,3,2"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = shown(&["layout", "--shape", "64x32x32", "--node", "R77-M1-N11-I00"]);
    assert!(text.contains("02:43:4f:") && text.contains("… and 1008 more psets"), "{text}");
    let layout = json(&["machine", "layout", "--shape", "4x4x4", "--pset", "16", "--json"]);
    assert_eq!(layout["schema"], "colony.machine.layout/1");
    assert_eq!(layout["psets"].as_array().map(Vec::len), Some(4));
    assert_eq!(layout["encoded"].as_str().map(str::len), Some(512));
}

#[test]
fn machines_psets_and_nodes_that_cannot_be_are_wrong_use() {
    for (args, part) in [
        (&["plan", "--shape", "8x8"][..], "is not a shape"),
        (&["plan", "--shape", "64x64x65"], "at most 262144 nodes"),
        (&["plan", "--shape", "4294967296x1x1"], "is not a shape"),
        (&["plan", "--shape", "12x8x8"], "use multiples of 8"),
        (&["plan", "--shape", "8x8x8", "--fanout", "0"], "--fanout"),
        (&["layout", "--shape", "8x8x8", "--pset", "12"], "use 8, 16, 32, 64 or 128"),
        (&["layout", "--shape", "2x2x2", "--pset", "16"], "use a smaller pset"),
        (&["layout", "--shape", "8x8x8", "--node", "R00"], "R00 is not a node"),
        (&["layout", "--shape", "8x8x8", "--node", "R00-M0-N04-I00"], "use R00-M0-N00-I00"),
        (&["layout", "--shape", "8x8x8", "--node", "R01-M0-N00-J00"], "has no R01-M0-N00-J00"),
        (&["layout", "--shape", "8x8x8", "--node", "elsewhere"], "is not a location"),
    ] {
        fails(&[&["machine"], args].concat(), 2, part);
    }
}

#[test]
fn a_port_needs_an_address_and_both_files_or_none() {
    let up = ["machine", "up", "--shape", "2x2x2", "--machine", "/no/machine"];
    let with = |more: &[&'static str]| [&up, more].concat();
    fails(&with(&["--listen", "8443"]), 2, "8443");
    fails(&with(&["--tls-cert", "c", "--tls-key", "k"]), 2, "--listen");
    fails(&with(&["--listen", "127.0.0.1:0", "--tls-cert", "c"]), 2, "--tls-key");
    fails(&with(&["--listen", "127.0.0.1:0", "--tls-cert", "/no/c", "--tls-key", "/no/k"]), 1, "/no/c");
    fails(&["machine", "web", "--close", "--renew"], 2, "--renew");
}

#[test]
fn a_server_needs_an_address_a_token_of_ones_own_and_a_certificate() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path");
    std::fs::write(file.path(), "0".repeat(64)).expect("written");
    let print = "ab".repeat(32);
    let status =
        |more: &[&str], part: &str| fails(&[&["machine", "status", "--server"], more].concat(), 2, part);
    status(&["https://127.0.0.1:1"], "colony machine web --token-file FILE");
    status(&["https://127.0.0.1:1", "--token-file", path], "--server-fingerprint");
    status(&["http://127.0.0.1:1", "--token-file", path, "--server-fingerprint", &print], "is not encrypted");
    status(
        &["https://127.0.0.1:1", "--token-file", path, "--server-fingerprint", "ab"],
        "no SHA-256 fingerprint",
    );
    status(&["https://127.0.0.1:1", "--token-file", path, "--server-cert", path], "PEM");
    status(&["https://127.0.0.1:1", "--machine", "/m"], "cannot be used with");
    fails(
        &[
            "job",
            "--server",
            "https://127.0.0.1:1",
            "--token-file",
            path,
            "--server-fingerprint",
            &print,
            "list",
        ],
        1,
        "nothing listens at 127.0.0.1:1",
    );
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).expect("set");
    status(&["https://127.0.0.1:1", "--token-file", path, "--server-fingerprint", &print], "chmod 600");
}

#[test]
fn an_allocation_that_is_none_is_refused_before_anything_is_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let fails = |words: &[&str], variables: &[(&str, &str)], said: &str| {
        let mut command = colony();
        for name in ["SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_MEM_PER_NODE", "FLUX_JOB_ID"] {
            command.env_remove(name);
        }
        command.env("COLONY_MACHINE", folder.path().join("m")).args(["machine", "up"]).args(words);
        let out = command.envs(variables.iter().copied()).output().expect("runs");
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && text.contains(said), "{words:?}: {text}");
        assert!(!folder.path().join("m").exists());
    };
    let (job, host) = (("SLURM_JOB_ID", "77"), ("SLURMD_NODENAME", "n1"));
    fails(&["--slurm"], &[], "this is no Slurm allocation");
    fails(&["--slurm"], &[job], "run `srun --overlap --pty bash` first");
    fails(
        &["--slurm"],
        &[job, host, ("SLURM_MEM_PER_NODE", "2G")],
        "the variable SLURM_MEM_PER_NODE is \"2G\"",
    );
    fails(&["--flux"], &[job, host], "no task of a Flux job");
    fails(&["--slurm", "--flux"], &[job, host], "cannot be used with");
    fails(&[], &[job, host], "--shape");
}

#[test]
fn a_steered_bit_is_in_the_personality_and_a_rank_has_one_spare_bit() {
    let layout = ["machine", "layout", "--shape", "2x2x2", "--pset", "8"];
    let report = json(&[&layout[..], &["--steer", "1:17", "--steer", "3:0", "--json"]].concat());
    assert_eq!(report["personality"]["steering"], serde_json::json!([null, 17, null, 0]));
    let encoded = report["encoded"].as_str().expect("bytes");
    assert_eq!(&encoded[448..456], "00120001", "a byte for each rank");
    fails(
        &[&layout[..], &["--steer", "1:17", "--steer", "1:18"]].concat(),
        2,
        "take the node out of service",
    );
    fails(&[&layout[..], &["--steer", "4:0"]].concat(), 2, "write RANK:BIT");
}
