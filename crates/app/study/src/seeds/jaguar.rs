// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reducing Application Runtime Variability on Jaguar XT5 (CUG 2010): the noise of a node on one core.
//!
//! Only the abstract is at hand: it names neither the noise nor the sizes. Chosen, for both figures alike:
//! on every core a tick of 5 µs, 250 a second, that stays; on every node daemons that come every 10 s on
//! average, at any instant, on any core, for 10 ms each (0.1 % of a node's time): the length of a scheduler's
//! turn.

use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Operation, Program, Step};
use colony_sim::scheduler::{Preempt, Scheduler, SpareCore};
use colony_sim::source::{Class, Dist, Model, Placement, Source};
use rayon::prelude::*;

use super::{Cited, Context, Document, Experiment, Method, Ours, settings};
use crate::results::{Basis, Published};
use crate::{Params, StudyError, format, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "jaguar-allreduce",
        document: Document::Jaguar2010,
        place: "Abstract",
        what: "allreduce of 8 bytes on six cores of a node, its noise on all of them or on a spare one",
        published: &["we were able to improve the MPI_Allreduce performance by two orders of magnitude"],
        method: Method::LongProjection,
        settings: settings::RANDOM,
        run: allreduce,
    },
    Experiment {
        name: "jaguar-pop",
        document: Document::Jaguar2010,
        place: "Abstract",
        what: "an ocean model in outline: work and halo, then a solver of many allreduces",
        published: &[
            "We demonstrated up to a 30% boost in the performance of the Parallel Ocean Program (POP) using this \
             technique.",
        ],
        method: Method::LongProjection,
        settings: settings::RANDOM,
        run: pop,
    },
];

const DAEMONS_EVERY_NS: f64 = 10e9;
const DAEMON_NS: u64 = 10_000_000;

fn node(scheduler: impl Scheduler + 'static, daemon_ns: u64) -> Node {
    let tick = Source::new("irq:local_timer", Model::periodic(4_000_000, 5_000)).class(Class::Local);
    let daemons = Model::poisson(DAEMONS_EVERY_NS, Dist::Fixed(daemon_ns));
    let daemons = Source::new("thread:daemons", daemons).placement(Placement::AnyCore);
    Node::new(vec![tick, daemons], scheduler)
}

/// Mean time of an iteration with the noise on all cores, and with the noise on a spare one.
fn both(
    params: &Params,
    machine: &Machine,
    program: &Program,
    nodes: u32,
    daemon_ns: u64,
) -> Result<[f64; 2], StudyError> {
    let mean = |node: &Node| -> Result<f64, StudyError> {
        let outcomes = project::outcomes(params, program, machine, node, &[nodes])?;
        Ok(outcomes.first().map_or(f64::NAN, |o| o.mean_ns))
    };
    Ok([mean(&node(Preempt, daemon_ns))?, mean(&node(SpareCore, daemon_ns))?])
}

fn allreduce(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let machine = Machine::named("jaguar-xt5")?;
    let program = Program::collective(Operation::Allreduce, 8, u64::from(c.params.projected_ops).min(60));
    let mut rows = Vec::new();
    for (nodes, daemon_ns) in
        [(1024, DAEMON_NS), (4096, DAEMON_NS), (18_688, DAEMON_NS), (18_688, 1_000_000), (18_688, 50_000_000)]
    {
        let [everywhere, spare] = both(c.params, &machine, &program, nodes, daemon_ns)?;
        let what = format!(
            "{}, daemons of {} ms: without over with a spare core ({} to {})",
            format::counted(nodes.into(), "node"),
            daemon_ns / 1_000_000,
            format::time(everywhere),
            format::time(spare)
        );
        let ours = Ours::Times(everywhere / spare);
        rows.push(if (nodes, daemon_ns) == (18_688, DAEMON_NS) {
            let published = Cited::value("two orders of magnitude", 100.0, Basis::Fitted);
            e.beside(what, published, ours, "simulated; the noise is chosen so that the result agrees")
        } else {
            e.row(what, ours, "how the result moves with what was chosen")
        });
    }
    Ok(rows)
}

/// A time step: work with a halo in three dimensions, then `passes` of the solver.
fn ocean(step_ns: u64, passes: u64, steps: u64) -> Program {
    let pass = vec![
        Step::compute(5_000),
        Step::Halo { bytes: 256, dims: 2 },
        Step::collective(Operation::Allreduce, 8),
    ];
    let work = Step::Compute { ns: step_ns, imbalance: 0.02 };
    let body = vec![work, Step::Halo { bytes: 4096, dims: 3 }, Step::Repeat { times: passes, body: pass }];
    Program::new("pop", steps, body)
}

fn pop(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let machine = Machine::named("jaguar-xt5")?;
    let cases = [(64, 100), (256, 100), (1024, 100), (2048, 100), (1024, 30), (1024, 300)];
    let params = c.params;
    let row = |(nodes, passes)| {
        let [everywhere, spare] = both(params, &machine, &ocean(100_000_000, passes, 10), nodes, DAEMON_NS)?;
        let what = format!(
            "{}, steps of 100 ms and {passes} passes of the solver: gain by a spare core",
            format::counted(nodes.into(), "node")
        );
        let published = Cited::limit("up to 30%", Basis::Fitted);
        Ok(e.beside(
            what,
            ((nodes, passes) == (1024, 100)).then_some(published),
            Ours::Share(everywhere / spare - 1.0),
            "simulated; the noise is that of jaguar-allreduce; step, passes and nodes are chosen",
        ))
    };
    cases.into_par_iter().with_max_len(1).map(row).collect()
}
