// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of a machine: its parts, its psets, and the personality of a node.

use std::fmt::Write;

use colony_model::{NodeRef, Partition, Personality, Role, Site};

use crate::table::{self, wrap};
use crate::units::{bytes, count, counted, three};

/// Psets that are shown; the others are counted.
const SHOWN: u32 = 16;

/// A machine that is one partition, with the personality of one of its nodes.
#[must_use]
pub fn layout(partition: &Partition, site: &Site, personality: &Personality) -> String {
    let mut out = format!("{}\n\n{}\n", wrap(&machine(partition)), psets(partition, site));
    let hidden = partition.psets().count().saturating_sub(SHOWN);
    if hidden > 0 {
        let _ = writeln!(out, "… and {} more psets", count(hidden.into()));
    }
    let _ = writeln!(out, "\n{}", table::trimmed(&told(personality)));
    out
}

fn machine(partition: &Partition) -> String {
    let (machine, psets) = (partition.machine(), partition.psets());
    let parts = [
        (machine.racks(), "rack"),
        (machine.midplanes(), "midplane"),
        (machine.node_cards(), "node card"),
        (machine.nodes(), "compute node"),
        (psets.count(), "I/O node"),
    ];
    let parts = parts.map(|(n, part)| counted(n.into(), part)).join(", ");
    let nearness = format!("mean distance in a pset {} hops", three(psets.mean_hops()));
    format!(
        "{} compute nodes: {parts}. Partition {}, psets of {} ({}; {nearness}), collective network of depth {}",
        machine.shape(),
        partition.name(),
        psets.size(),
        psets.shape(),
        partition.collective().depth()
    )
}

fn psets(partition: &Partition, site: &Site) -> String {
    let mut t =
        table::numbers(&["pset", "I/O node", "address", "first compute node", "compute nodes at x,y,z"], 5);
    let psets = partition.psets();
    for pset in 0..psets.count().min(SHOWN) {
        let nodes = [psets.node(pset, 0), psets.node(pset, psets.size().nodes() - 1)];
        let io = partition.io_location(pset);
        let number = partition.machine().io_number(io).unwrap_or(0);
        let at = nodes.map(|node| coords(partition.block().shape().coords(node)));
        t.add_row([
            pset.to_string(),
            io.to_string(),
            site.io_network(number, Default::default()).ip.to_string(),
            partition.location(nodes[0]).to_string(),
            format!("{} to {}", at[0], at[1]),
        ]);
    }
    table::trimmed(&t)
}

/// The fields of a personality.
fn told(p: &Personality) -> comfy_table::Table {
    let heading = match p.node() {
        NodeRef::Compute(node) => format!("compute node {}", count(node.into())),
        NodeRef::Io(pset) => format!("I/O node {}", count(pset.into())),
    };
    let mut t = table::numbers(&["personality", &heading], 2);
    let mut row = |field: &str, value: String| {
        t.add_row([field.to_owned(), value]);
    };
    row("location", p.location.to_string());
    row("memory", bytes(p.memory));
    row("steered bits", p.steering.to_string());
    row("torus", p.torus.to_string());
    if let Role::Compute { coords: at, in_pset, .. } = p.role {
        row("x,y,z", coords(at));
        row("pset", format!("{} of {}, rank {in_pset} of {}", p.pset, p.psets(), p.pset_size));
    } else {
        row("pset", format!("{} of {}, {} compute nodes", p.pset, p.psets(), p.pset_size));
    }
    let parent = p.route.parent.map_or("none: the root".into(), |node| node.to_string());
    row("collective parent", parent);
    let children: Vec<String> = p.route.children.iter().flatten().map(ToString::to_string).collect();
    row("collective children", if children.is_empty() { "none".into() } else { children.join(", ") });
    row("collective depth", p.route.depth.to_string());
    if let Role::Io(io) = &p.role {
        row("MAC", io.mac.to_string());
        row("IP", format!("{}/{}, broadcast {}", io.ip, io.prefix, io.broadcast));
        row("gateway", io.gateway.to_string());
        row("service node", io.service_node.to_string());
        row("file server", table::name(&format!("{}:{}", io.file_server, io.export), 58));
        row("security key", "32 bytes, not shown".into());
    }
    t
}

fn coords([x, y, z]: [u32; 3]) -> String {
    format!("{x},{y},{z}")
}
