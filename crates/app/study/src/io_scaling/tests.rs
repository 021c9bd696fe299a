// SPDX-License-Identifier: MIT OR Apache-2.0
use std::cell::RefCell;

use super::model::Saturated;
use super::*;

/// A host on which a transfer takes a node 40 µs, an I/O process 8 µs, and a job half a second by itself.
fn host(case: &Case) -> Used {
    let transfers = case.count as f64 * f64::from(case.nodes);
    let [node_s, io_s] = [40e-6, 8e-6].map(|s| s * transfers + 0.5);
    Used { wall_s: 24e-6 * transfers, node_s, io_s }
}

fn plan(place: &std::path::Path) -> Plan {
    Plan {
        folders: vec![place.into()],
        nodes: vec![1, 2, 8],
        io_nodes: vec![1, 4],
        transfers: vec![4096, 65_536],
        block_bytes: 1 << 20,
    }
}

#[test]
fn service_times_are_those_of_transfers_alone_and_lines_end_where_something_saturates() {
    let place = tempfile::tempdir().expect("folder");
    let plan = plan(place.path());
    let folders = plan.folders().expect("a folder");
    let (cases, steps) = (RefCell::new(Vec::new()), RefCell::new(0));
    let mut job = |case: &Case| {
        cases.borrow_mut().push(case.clone());
        Ok(host(case))
    };
    let mut tested = plan.measure(&folders, &mut job, || *steps.borrow_mut() += 1).expect("measured");
    assert_eq!(*steps.borrow(), plan.steps());
    assert!(cases.borrow().iter().all(|c| c.io_nodes <= c.nodes), "an I/O node has a compute node");
    let of_phase = |phase| cases.borrow().iter().filter(|c| c.phase == phase && c.count > 0).count();
    assert_eq!(of_phase(Phase::Write), of_phase(Phase::Read));
    let groups = tested.remove(0).groups;
    assert_eq!(groups.len(), 2 * 2 * 2);
    for group in groups {
        let s = group.services;
        for (ours, right) in [(s.node_ns, 40_000.0), (s.io_ns + s.file_system_ns, 8000.0)] {
            assert!((ours - right).abs() < 1e-3, "{s:?}");
        }
        let one = &group.lines[0];
        assert_eq!((one.io_nodes, one.saturated), (1, Saturated::IoProcess));
        assert!(one.from_nodes.is_some_and(|from| from >= 6.0), "{one:?}");
        let most = one.points.last().expect("points").bytes_per_s;
        assert!((most / (group.transfer as f64 / 8e-6) - 1.0).abs() < 0.01, "{most}");
        // two CPUs: 24 µs a transfer, whatever the number of nodes
        let wide = group.measured.iter().find(|m| (m.nodes, m.io_nodes) == (8, 4)).expect("measured");
        let (part, share) = wide.busiest(2);
        assert!(part == Saturated::Host && (share - 1.0).abs() < 1e-6, "{part:?} {share}");
        assert!((group.modelled_here(wide, 2) / wide.bytes_per_s() - 1.0).abs() < 1e-6);
        let lone = group.measured.iter().find(|m| m.nodes == 1).expect("measured");
        assert_eq!(lone.busiest(64).0, Saturated::Nodes);
    }
    drop(folders);
    assert_eq!(place.path().read_dir().expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn a_job_that_fails_ends_the_study_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().expect("folder");
    let plan = plan(place.path());
    let folders = plan.folders().expect("a folder");
    let mut job = |case: &Case| {
        std::fs::write(case.place.join("rank-0"), "part of a file").expect("written");
        let full = crate::error::step(WHAT, &"colony-ior: write in /x: No space left on device");
        if case.count > 0 { Err(full) } else { Ok(host(case)) }
    };
    let error = plan.measure(&folders, &mut job, || ()).expect_err("full").to_string();
    assert!(error.contains("No space left"), "{error}");
    drop(folders);
    assert_eq!(place.path().read_dir().expect("there").count(), 0);
}

#[test]
fn impossible_parameters_are_wrong_use() {
    let with = |change: fn(&mut Plan)| {
        let mut plan = Plan::default();
        change(&mut plan);
        plan
    };
    for (wrong, part) in [
        (with(|p| p.nodes = vec![0]), "--nodes are 1 to 64, not 0"),
        (with(|p| p.nodes = vec![65]), "not 65"),
        (with(|p| p.io_nodes = vec![]), "--io-nodes at least one"),
        (with(|p| p.io_nodes = vec![9]), "--nodes has 8 at most"),
        (with(|p| p.transfers = vec![100]), "512 bytes to 16 MiB"),
        (with(|p| p.transfers = vec![1 << 30]), "512 bytes to 16 MiB"),
        (with(|p| p.block_bytes = 100_000), "a multiple of each transfer"),
        (with(|p| p.block_bytes = 0), "a multiple of each transfer"),
        (with(|p| (p.transfers, p.block_bytes) = (vec![512], 1 << 40)), "transfers at most"),
        (with(|p| p.folders.clear()), "--folder"),
    ] {
        let error = wrong.check().expect_err("impossible");
        assert!(error.is_wrong_use() && error.to_string().contains(part), "{error}");
    }
    Plan::default().check().expect("the default");
}
