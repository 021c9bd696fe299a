// SPDX-License-Identifier: MIT OR Apache-2.0
use std::cell::RefCell;

use super::*;
use crate::chart::Quantity;

/// A host whose nodes send 40 MB/s each, as far as the link carries it.
fn host(case: &Case) -> Used {
    let nodes = f64::from(case.nodes.unwrap_or(30));
    let bytes = (case.count * case.transfer) as f64;
    let total = bytes * f64::from(case.nodes.unwrap_or(1));
    let rate = (40e6 * nodes).min(case.link_bytes_per_s.map_or(f64::INFINITY, most_data));
    let transfers = total / case.transfer as f64;
    Used {
        wall_s: total / rate,
        node_s: 3e-3 * transfers + 0.5,
        io_s: 2e-4 * transfers + 0.1,
        server_s: 1e-4,
    }
}

fn results(plan: Plan) -> Results {
    let (references, measured) = plan.measure(&mut |case| Ok(host(case)), || ()).expect("measured");
    Results {
        schema: Results::SCHEMA.into(),
        version: "1".into(),
        command: "colony study io-sockets".into(),
        started_unix_s: 0,
        took_s: 1.0,
        compared: results::compare(&plan, &measured),
        plan,
        node: NodeRecord::now(),
        cpus: 2,
        references,
        measured,
    }
}

#[test]
fn nodes_saturate_the_link_and_the_published_share_stands_beside_ours() {
    let steps = RefCell::new(0);
    let plan = Plan::default();
    plan.measure(&mut |case| Ok(host(case)), || *steps.borrow_mut() += 1).expect("measured");
    assert_eq!(*steps.borrow(), plan.steps());
    let r = results(plan);
    assert_eq!(r.measured.len(), 2 * 4);
    let at = |nodes: u32| *r.jobs(Direction::Send).find(|m| m.nodes == nodes).expect("measured");
    assert!((at(2).bytes_per_s() / 80e6 - 1.0).abs() < 1e-9);
    assert_eq!(at(8).busiest(&r.plan, 64).0, Part::Link);
    assert_eq!(at(8).busiest(&r.plan, 1).0, Part::Host);
    let [node_ns, io_ns, _] = at(4).cpu_ns();
    assert!(
        (node_ns - 3e6).abs() < 1.0 && (io_ns - 2e5).abs() < 1.0,
        "a job that connects only is subtracted"
    );
    // 117.7 of 125 MB/s, 94 %
    assert_eq!(r.reached_from(Direction::Receive), Some(4));
    let row = &r.compared[0];
    assert_eq!((row.published.as_str(), row.ours.as_str()), ("over 88 %", "94.1 %"));
    // a limit has no error
    assert_eq!(row.fidelity(), "measured");
    let chart = r.chart();
    assert_eq!((chart.quantity, chart.lines.len()), (Quantity::BytesPerS, 4));
    assert!(r.headline().contains("94.1 % and 94.1 % of a link of 125 MB/s"), "{}", r.headline());
    assert!(
        r.without_nodes().contains("over the link send 118 MB/s") && r.without_nodes().contains("1.2 GB/s")
    );
}

#[test]
fn a_share_that_is_not_reached_and_a_run_without_a_link_are_told() {
    let slow = results(Plan { nodes: vec![1, 2], ..Plan::default() });
    assert_eq!(slow.reached_from(Direction::Send), None);
    assert!(slow.reached().contains("send does not reach it"), "{}", slow.reached());
    let open = results(Plan { link_bytes_per_s: None, ..Plan::default() });
    assert!(open.compared.is_empty() && open.reached().contains("--link none"));
    assert!(open.headline().ends_with("receive 320 MB/s, without a link."), "{}", open.headline());
}

#[test]
fn impossible_parameters_are_wrong_use() {
    let with = |change: fn(&mut Plan)| {
        let mut plan = Plan::default();
        change(&mut plan);
        plan
    };
    for (wrong, part) in [
        (with(|p| p.nodes = vec![65]), "--nodes are 1 to 64, not 65"),
        (with(|p| p.nodes.clear()), "--nodes at least one"),
        (with(|p| p.transfer = 100), "512 bytes to 16 MiB"),
        (with(|p| p.block_bytes = 100_000), "a multiple of --transfer"),
        (with(|p| p.block_bytes = 1 << 40), "16 GiB at most"),
        (with(|p| p.link_bytes_per_s = Some(1e3)), "--link is 1 MB/s to 100 GB/s"),
        (with(|p| p.link_bytes_per_s = Some(f64::NAN)), "--link is"),
    ] {
        let error = wrong.check().expect_err("impossible");
        assert!(error.is_wrong_use() && error.to_string().contains(part), "{error}");
    }
    Plan::default().check().expect("the default");
}
