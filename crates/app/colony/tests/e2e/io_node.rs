// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony cnk run --io-nodes linux`: compute nodes whose I/O node is a Linux machine.

use crate::common::{colony, error, fails};

#[test]
fn a_linux_io_node_serves_the_calls_of_several_compute_nodes_with_its_own_files() {
    if let Some(reason) = colony_vm::testing::missing() {
        return colony_testing::skip(reason);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (given, made) = (folder.path().join("given"), folder.path().join("made"));
    let report = folder.path().join("report.json");
    std::fs::write(&given, "of the host\n").expect("written");
    let script = format!(
        "printf 'rank %s of %s\\n' $COLONY_RANK $COLONY_SIZE > {made}.$COLONY_RANK || exit 9
         read line < {made}.$COLONY_RANK; read file < {given}; read kernel < /proc/version
         echo \"$line: $file: $kernel\"; exit $COLONY_RANK",
        made = made.display(),
        given = given.display()
    );
    let out = colony()
        .args(["cnk", "run", "--nodes", "2", "--io-nodes", "linux", "--dir", "/tmp", "--io-file"])
        .arg(&given)
        .arg("--out")
        .arg(&report)
        .args(["--", "busybox", "sh", "-c", &script])
        .output()
        .expect("runs");
    let kept = std::fs::read(&report).unwrap_or_else(|e| panic!("{e}: {}", error(&out)));
    let report: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!(out.status.code(), Some(1), "{report}");
    let kernel = report["io_kernel"].as_str().expect("a release");
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{stdout}");
    for (rank, line) in lines.iter().enumerate() {
        let expected = format!("rank {rank} of 2: of the host: Linux version {kernel} ");
        assert!(line.starts_with(&expected), "{line}");
    }
    let here = std::fs::read_dir(folder.path()).expect("ours").count();
    assert_eq!(here, 2, "the job has written nothing on this machine");
}

#[test]
fn a_linux_io_node_refuses_what_it_cannot_have() {
    for (more, part) in
        [("--root=/", "no --root"), ("--nodes=129", "1 to 128 compute nodes"), ("--polled", "no --polled")]
    {
        fails(&["cnk", "run", "--io-nodes", "linux", more, "--", "busybox", "true"], 2, part);
    }
    let twice = ["--io-export=/a", "--io-export=/a/b:ro"];
    let linux = ["cnk", "run", "--io-nodes", "linux"];
    fails(&[&linux[..], &twice, &["--", "busybox", "true"]].concat(), 2, "one is inside the other");
    fails(&[&linux[..], &["--io-export=a", "--", "busybox", "true"]].concat(), 2, "absolute path");
    for word in ["--io-file", "--io-export"] {
        fails(&["cnk", "run", word, "/etc", "--", "busybox", "true"], 2, "--io-nodes linux");
    }
}
