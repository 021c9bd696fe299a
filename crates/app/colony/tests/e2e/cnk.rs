// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony cnk`, where no node needs to boot.

use crate::common::{fails, json};

#[test]
fn what_no_node_can_be_is_wrong_use() {
    for (args, code, part) in [
        (&["--memory", "100", "--", "true"][..], 2, "a power of two"),
        (&["--cpus", "5", "--", "true"], 2, "one to four CPUs"),
        (&["--icount", "--cpus", "2", "--", "true"], 2, "--cpus 1"),
        (&["--icount", "--mode", "virtual-node", "--", "true"], 2, "--cpus 2"),
        (&["--icount", "--accel", "kvm", "--", "true"], 2, "counts instructions"),
        (&["--counters", "--accel", "kvm", "--", "true"], 2, "only if QEMU emulates each instruction"),
        (&["--bind", "here", "--", "true"], 2, "FROM:TO"),
        (&["--env", "NO_SUCH_VARIABLE_HERE", "--", "true"], 2, "no variable"),
        (&["--", "no-such-program-here"], 2, "in no folder of PATH"),
        (&[], 2, "<CMD>"),
    ] {
        fails(&[&["cnk", "run"], args].concat(), code, part);
    }
}

#[test]
fn a_tlb_that_is_not_modelled_is_wrong_use() {
    for (args, part) in [
        (&["--tlb", "ppc970"][..], "give ppc440"),
        (&["--tlb", "0"], "1 to 1024"),
        (&["--tlb", "4096"], "1 to 1024"),
        (&["--tlb", "64", "--tlb-replacement", "fifo"], "round-robin, random or lru"),
        (&["--tlb", "64", "--tlb-pages", "4k,3k"], "a power of two from 4k to 1g"),
        (&["--tlb", "64", "--tlb-pages", "4k,4k"], "each once"),
        (&["--tlb", "64", "--tlb-mhz", "0"], "no number from 1 to 100000"),
        (&["--tlb", "64", "--tlb-miss-cycles", "nan"], "no number from 0.001 to 1000000"),
        (&["--tlb-data-only"], "--tlb <MODEL>"),
    ] {
        fails(&[&["cnk", "run"], args, &["--", "true"]].concat(), 2, part);
    }
}

#[test]
fn an_emulator_without_plugins_is_told_before_a_node_is_started() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let emulator = folder.path().join("qemu-system-x86_64");
    std::fs::write(&emulator, "#!/bin/sh\necho usage: -machine -cpu\n").expect("a file");
    std::fs::set_permissions(&emulator, PermissionsExt::from_mode(0o755)).expect("ours");
    let run = |path: &std::path::Path, option: &str| {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("colony"));
        command.env("PATH", path).args(["cnk", "run", option, "--", "/bin/true"]);
        let out = command.output().expect("it starts");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for option in ["--tlb=ppc440", "--counters"] {
        let (code, said) = run(folder.path(), option);
        assert!(code == Some(1) && said.contains("without plugins"), "{said}");
    }
    std::fs::remove_file(emulator).expect("ours");
    let (code, said) = run(folder.path(), "--counters");
    assert!(code == Some(1) && said.contains("install the package qemu-system-x86"), "{said}");
}

#[test]
fn too_few_descriptors_are_told_before_a_node_is_started() {
    let colony = assert_cmd::cargo::cargo_bin!("colony");
    let text = format!("ulimit -n 256; exec {} cnk run --nodes 512 -- /bin/true", colony.display());
    let out = std::process::Command::new("sh").args(["-c", &text]).output().expect("sh is there");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("512 nodes need") && said.contains("may have 256"), "{said}");
    assert!(!said.contains("install"), "{said}");
}

#[test]
fn every_system_call_is_listed_with_who_does_it() {
    let listed = json(&["cnk", "calls", "--json"]);
    let calls = listed["calls"].as_array().expect("a list");
    let class =
        |name: &str| calls.iter().find(|c| c["name"] == name).map(|c| c["class"].clone()).expect("listed");
    assert_eq!(listed["schema"], "colony.cnk.calls/1");
    assert_eq!(
        (class("getpid"), class("openat"), class("fork")),
        ("local".into(), "shipped".into(), "refused".into())
    );
}
