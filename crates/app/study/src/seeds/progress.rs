// SPDX-License-Identifier: MIT OR Apache-2.0
//! HPC-Colony progress report 2006: the effect of uncoordinated daemons.

use colony_sim::node::Node;
use colony_sim::program::Program;
use colony_sim::scheduler::Preempt;
use colony_sim::source::{Model, Phase, Source};
use colony_sim::words::number_of;

use super::{Context, Document, Experiment, Method, Ours, settings};
use crate::results::Published;
use crate::{StudyError, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "bsp-noise",
    document: Document::Progress2006,
    place: "Fig. 3",
    what: "10,000 iterations of 1 ms of work and a barrier; a daemon that wakes every second for 1 ms, in phase \
           on all nodes or not; 1 to 4096 nodes",
    published: &[
        "This benchmark consists of 10,000 iterations. Each of those iterations consists of 1ms of work followed by a \
         barrier across all processes in the parallel execution.",
        "The red, green and blue lines are all on top of each other.",
        "significant performance degradation happens only when the daemons are uncoordinated",
    ],
    method: Method::Projection,
    settings: settings::RANDOM,
    run: bsp,
}];

const ITERATIONS: u64 = 10_000;
const NODES: [u32; 7] = [1, 4, 16, 64, 256, 1024, 4096];

fn bsp(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let program = Program::bsp(1_000_000, ITERATIONS);
    let machine = project::blue_gene(1)?;
    let daemon = |phase| {
        let daemon = Source::new("thread:daemon", Model::periodic(1_000_000_000, 1_000_000));
        Node::new(vec![daemon.phase(phase)], Preempt)
    };
    let mut rows = Vec::new();
    for (name, node) in [
        ("CNK", Node::quiet()),
        ("Linux, no daemon", Node::new(Vec::new(), Preempt)),
        ("Linux, daemons in phase", daemon(Phase::Aligned)),
        ("Linux, daemons out of phase", daemon(Phase::Random)),
    ] {
        for o in project::outcomes(c.params, &program, &machine, &node, &NODES)? {
            let total = o.totals_ns.iter().sum::<u64>() as f64 / o.totals_ns.len().max(1) as f64;
            let what = format!("{name}, {}: 10,000 iterations", number_of(o.nodes.into(), "node"));
            rows.push(e.row(what, Ours::Ns(total), "simulated; the barrier of Blue Gene/L's hardware"));
        }
    }
    Ok(rows)
}
