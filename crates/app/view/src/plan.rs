// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a boot.

use std::fmt::Write;

use colony_model::plan::{Plan, Step};

use crate::table::{self, wrap};
use crate::units::{bytes, count, counted, time};

/// The plan: what is booted, the steps of the push, totals, other fan-outs, and what was assumed.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let parts = [
        (plan.racks, "rack"),
        (plan.midplanes, "midplane"),
        (plan.nodes, "compute node"),
        (plan.io_nodes, "I/O node"),
    ];
    let parts = parts.map(|(n, part)| counted(n.into(), part)).join(", ");
    let boot = &plan.boot;
    let heading = format!(
        "Boot of {} compute nodes: {parts}; psets of {}, fan-out {}",
        boot.machine.shape(),
        boot.pset,
        count(boot.fanout.get().into())
    );
    let mut out = format!("{}\n\n{}\n\n", wrap(&heading), steps(plan));
    let _ = writeln!(out, "{}\n\n{}\n", totals(plan), fanouts(plan));
    let _ = writeln!(out, "{}", wrap(&assumptions(plan)));
    out
}

fn steps(plan: &Plan) -> String {
    let mut t = table::new(["push to", "senders", "receivers", "bytes", "all have it after"]);
    for step in &plan.steps {
        t.add_row([
            receivers(step),
            count(step.senders.into()),
            count(step.receivers.into()),
            bytes(step.bytes),
            time(step.given_s * 1e9),
        ]);
    }
    table::trimmed(&t)
}

fn receivers(step: &Step) -> String {
    if step.is_compute { "compute nodes".into() } else { format!("I/O nodes, level {}", step.level) }
}

fn totals(plan: &Plan) -> String {
    let mut t = table::new(["total", ""]);
    let messages = &plan.messages;
    let per_s = |n: f64| format!("{}/s", count(n.round() as u64));
    let mut row = |what: &str, value: String| {
        t.add_row([what.to_owned(), value]);
    };
    row("all nodes have reported after", time(plan.reported_s * 1e9));
    row("sent by the service node", bytes(plan.bytes.service));
    row("sent by the busiest I/O node", bytes(plan.bytes.busiest_io_node));
    row("sent by all", bytes(plan.bytes.total));
    row("personalities among that", bytes(plan.bytes.personalities));
    row("connections of the service node", count(messages.service_connections.into()));
    row("pushes and reports", count(messages.pushes.saturating_add(messages.reports)));
    row("heartbeats of all nodes", per_s(messages.heartbeats_per_s));
    row("heartbeats at the service node", per_s(messages.service_heartbeats_per_s));
    row("bytes of these", format!("{}/s", bytes(messages.service_heartbeat_bytes_per_s.round() as u64)));
    row("state of the control daemon", bytes(plan.state_bytes));
    row("depth of the collective network", plan.collective_depth.to_string());
    table::trimmed(&t)
}

fn fanouts(plan: &Plan) -> String {
    let mut t = table::new(["fan-out", "levels", "sent by the service node", "all have reported after"]);
    for other in &plan.fanouts {
        t.add_row([
            count(other.fanout.get().into()),
            other.levels.to_string(),
            bytes(other.service_bytes),
            time(other.reported_s * 1e9),
        ]);
    }
    table::trimmed(&t)
}

fn assumptions(plan: &Plan) -> String {
    let (sizes, transport) = (&plan.boot.sizes, &plan.boot.transport);
    let rate = |per_s: f64| format!("{:.0} MB/s", per_s / 1e6);
    format!(
        "Assumed: kernel of compute nodes {}, image of I/O nodes {}, network {} ({} connections at a time), \
         collective network {} ({} at a time), start of an I/O node {}, of a compute node {}, a heartbeat every {}.",
        bytes(sizes.kernel),
        bytes(sizes.io_image),
        rate(transport.network.bytes_per_s),
        transport.network.parallel,
        rate(transport.collective.bytes_per_s),
        transport.collective.parallel,
        time(transport.io_boot_s * 1e9),
        time(transport.node_boot_s * 1e9),
        time(transport.heartbeat_s * 1e9)
    )
}
