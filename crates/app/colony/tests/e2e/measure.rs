// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony measure`, as a user runs it.

use colony_node::privilege::Privileges;

use crate::common::{alone, colony, json, text};

#[test]
fn json_has_what_it_takes_to_run_it_again() {
    let _alone = alone();
    let m = json(&[
        "measure",
        "--duration",
        "300ms",
        "--threshold",
        "50ns",
        "--cpus",
        &crate::common::last_cpu(),
        "--json",
    ]);
    assert_eq!(m["schema"], "colony.measure/1");
    assert_eq!(m["threshold_ns"], 50);
    assert!(m["node"]["kernel"].is_string() && m["counter"]["hz"].is_number());
    let cpu = &m["per_cpu"][0];
    assert!(cpu["observed_s"].as_f64() >= Some(0.29), "{cpu}");
    // every nanosecond of stolen time has a source, `unexplained` included
    let by_source: u64 =
        m["sources"].as_array().expect("a list").iter().filter_map(|s| s["stolen_ns"].as_u64()).sum();
    assert!(cpu["dropped"] != 0 || Some(by_source) == cpu["stolen_ns"].as_u64());
}

#[test]
fn with_privileges_the_tick_is_named_and_the_explained_share_is_told() {
    let _alone = alone();
    let m = json(&["measure", "--duration", "1s", "--cpus", &crate::common::last_cpu(), "--json"]);
    if !Privileges::here().bpf {
        colony_testing::skip("needs root, or CAP_BPF and CAP_PERFMON");
        return;
    }
    assert_eq!(m["attribution"]["active"], true, "{}", m["attribution"]["reason"]);
    let sources = m["sources"].as_array().expect("a list");
    assert!(sources.iter().any(|s| s["source"] == "irq:local_timer"), "{sources:?}");
    for share in ["explained", "explained_without_throttle"] {
        let share = &m["attribution"][share];
        assert!((0.0..=1.0).contains(&share["stolen"].as_f64().expect("a share")), "{share}");
        assert!((0.0..=1.0).contains(&share["detours"].as_f64().expect("a share")), "{share}");
    }
    assert!(m["attribution"]["lost_events"].is_u64());
    // a kernel that does not tell who sends interrupts to other CPUs gives the reason
    let ipi = &m["attribution"]["ipi"];
    let senders = ipi["senders"].as_array().expect("a list");
    assert!(ipi["not_known"].is_string() || ipi["not_known"].is_null(), "{ipi}");
    assert!(senders.is_empty() || ipi["not_known"].is_null(), "{ipi}");
    assert!(
        senders.iter().all(|s| s["sent"].as_u64() > Some(0) && s["pid"].is_i64() && s["cpu"].is_u64()),
        "{ipi}"
    );
}

#[test]
fn the_table_fits_80_columns() {
    let _alone = alone();
    let text = text(&["measure", "--duration", "200ms"]);
    assert!(text.lines().count() > 5, "{text}");
}

#[test]
fn a_real_time_observer_leaves_the_node_as_it_was() {
    let _alone = alone();
    let out =
        colony().args(["measure", "--duration", "300ms", "--fifo", "10", "--json"]).output().expect("runs");
    let error = String::from_utf8_lossy(&out.stderr);
    let may = Privileges::here().real_time && colony_node::cpu::usable().expect("linux").len() > 1;
    assert_eq!(out.status.success(), may, "{error}");
    if !may {
        assert!(
            error.contains("CAP_SYS_NICE") || error.contains("--all-cpus") || error.contains("no CPU"),
            "{error}"
        );
        colony_testing::skip("needs CAP_SYS_NICE and two CPUs");
        return;
    }
    let m: serde_json::Value = serde_json::from_slice(&out.stdout).expect("json");
    assert_eq!(m["observer"]["fifo"], 10);
}
