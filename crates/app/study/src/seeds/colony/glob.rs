// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fig. 7: an allreduce of the nodes of a part of the block, which the collective network does not serve.

use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Operation, Program};
use colony_sim::simulate::{Outcome, Simulation, simulate_for};

use super::model::{Chosen, OPS};
use super::{Context, DUTY, Experiment, Ours, Published};
use crate::chart::{Chart, Line, Quantity};
use crate::{Params, StudyError, format, project, simulated};

const PARTS: [u32; 7] = [2, 8, 32, 128, 512, 2048, 4096];
/// Simulated time after which a run ends: with noise, 500,000 operations of many nodes take hours.
const SPAN_NS: u64 = 200_000_000_000;

const SIMULATED: &str = "simulated: recursive doubling on the torus, whose messages have the times of the user-defined allreduce of \
     ANL 2005; the daemons of the nodes are at any phase, as the counts before take minutes; one network for all \
     kernels, so what their message software costs is not in it";

/// Mean time of an allreduce of 32 bytes, on each number of nodes and under each kernel.
pub(super) fn on_parts_of_the_block(
    e: &Experiment,
    c: &mut Context<'_>,
) -> Result<Vec<Published>, StudyError> {
    let chosen = Chosen::at_random();
    let kernels = [
        ("no noise", Node::quiet()),
        ("21 % noise, coordinated", chosen.coordinated(21.0, chosen.windows(DUTY)?)),
        ("21 % noise, unmodified", chosen.unmodified(21.0)),
    ];
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (kernel, node) in kernels {
        let mut values = Vec::new();
        for nodes in PARTS {
            let mean_ns = in_software(c.params, &node, nodes)?.mean_ns;
            let what = format!("part of {}, {kernel}: operation", format::counted(nodes.into(), "node"));
            rows.push(e.row(what, Ours::Ns(mean_ns), SIMULATED));
            values.push(mean_ns);
        }
        lines.push(Line { name: kernel.into(), values });
    }
    c.charts.push(Chart {
        id: "glob".into(),
        title: "Time of an allreduce of a part of the block".into(),
        caption: "Glob on fewer nodes than the block has: each operation runs in software on the torus."
            .into(),
        quantity: Quantity::Ns,
        nodes: PARTS.to_vec(),
        lines,
    });
    Ok(rows)
}

fn in_software(params: &Params, node: &Node, nodes: u32) -> Result<Outcome, StudyError> {
    let machine = Machine { hardware_reduce: None, ..project::blue_gene(1)? };
    let simulation = Simulation {
        program: Program::collective(Operation::Allreduce, 32, OPS),
        machine,
        node: node.clone(),
        nodes,
        begin_ns: None,
        repetitions: 1,
        seed: params.seed,
    };
    simulated::of(&("part of a block", SPAN_NS, &simulation), || Ok(simulate_for(&simulation, SPAN_NS)?.0))
}
