// SPDX-License-Identifier: MIT OR Apache-2.0
//! Core specialization, measured: daemons beside a job on a virtual node of four CPUs, with windows, a spare core, and both.

use colony_sched::proof::Deferred;
use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Operation, Program};
use colony_sim::scheduler::Preempt;

use super::virtual_node::rate;
use super::{Cited, Context, Document, Experiment, Method, Ours, settings};
use crate::results::{Basis, Published};
use crate::spare_node::{Case, SpareRuns};
use crate::{StudyError, format, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "spare-core",
    document: Document::Jaguar2010,
    place: "Abstract",
    what: "the time that daemons steal from a job on a virtual node of four CPUs: nothing, windows, a spare core, both; \
           and allreduce on 1,024 to 18,688 such nodes",
    published: &[
        "We aggregated OS noise sources onto a single core for each node.",
        "we were able to improve the MPI_Allreduce performance by two orders of magnitude",
        "We demonstrated up to a 30% boost in the performance of the Parallel Ocean Program (POP) using this technique.",
    ],
    method: Method::Virtual,
    settings: settings::RANDOM,
    run,
}];

const NODES: [u32; 3] = [1024, 4096, 18_688];

fn run(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let Some(node) = c.node.as_deref_mut() else { return Ok(Vec::new()) };
    let runs = c
        .progress
        .during("a job beside daemons on a virtual node of four CPUs", 120.0, || node.spare_node())?;
    let mut rows = measured(e, &runs);
    rows.extend(projected(e, c, &runs)?);
    Ok(rows)
}

fn measured(e: &Experiment, runs: &SpareRuns) -> Vec<Published> {
    let note = format!(
        "measured with Linux {} on a virtual node of four CPUs, emulated on one thread; three processes of the job on CPUs 1 \
         to 3, a daemon bound to each CPU; again: colony study spare-core",
        runs.kernel
    );
    let Some(nothing) = runs.cases.first() else { return Vec::new() };
    let mut rows = Vec::new();
    for case in &runs.cases {
        let name = &case.name;
        rows.push(e.row(format!("{name}: stolen from the job's CPUs"), Ours::Share(case.stolen()), &note));
        if case.report.backend != colony_client::Backend::None {
            let share = Ours::Share(case.stolen_in_favored());
            rows.push(e.row(format!("{name}: stolen in favored windows"), share, &note));
        }
    }
    for case in runs.cases.iter().skip(1).filter(|case| case.report.spare.is_some()) {
        let less = nothing.stolen() / case.stolen().max(f64::MIN_POSITIVE);
        rows.push(e.row(format!("{}: less stolen than with nothing", case.name), Ours::Times(less), &note));
    }
    rows
}

/// Allreduce on many nodes whose noise is that of a case.
fn projected(e: &Experiment, c: &Context<'_>, runs: &SpareRuns) -> Result<Vec<Published>, StudyError> {
    const SIMULATED: &str = "simulated: allreduce of 8 bytes, the network of Jaguar; on each core detours as long and as \
         frequent as measured, each at any instant";
    let machine = Machine::named("jaguar-xt5")?;
    let program = Program::collective(Operation::Allreduce, 8, u64::from(c.params.projected_ops).min(60));
    let find = |spare: bool| {
        let mut of = runs.cases.iter().filter(|case| case.report.backend == colony_client::Backend::None);
        of.find(|case| case.report.spare.is_some() == spare)
    };
    let (Some(nothing), Some(spare)) = (find(false), find(true)) else { return Ok(Vec::new()) };
    let mean = |case: &Case, nodes: u32| -> Result<f64, StudyError> {
        let outcomes = project::outcomes(c.params, &program, &machine, &node(case), &[nodes])?;
        Ok(outcomes.first().map_or(f64::NAN, |o| o.mean_ns))
    };
    let mut rows = Vec::new();
    for nodes in NODES {
        let [everywhere, left] = [mean(nothing, nodes)?, mean(spare, nodes)?];
        let what = format!(
            "{}: allreduce without over with a spare core ({} to {})",
            format::counted(nodes.into(), "node"),
            format::time(everywhere),
            format::time(left)
        );
        let published = Cited::value("two orders of magnitude", 100.0, Basis::Predicted);
        // the document's machine has this many nodes
        let published = (nodes == 18_688).then_some(published);
        rows.push(e.beside(what, published, Ours::Times(everywhere / left), SIMULATED));
    }
    Ok(rows)
}

/// The measured noise of a case, one source for each thread.
fn node(case: &Case) -> Node {
    let proof = &case.report.proof;
    let observed_ns = (proof.favored.observed_ns + proof.regular.observed_ns) as f64;
    let source = |t: &Deferred| {
        let piece_ns = (t.favored_ns + t.regular_ns).checked_div(t.times).filter(|&ns| ns > 0)?;
        rate(format!("thread:{}", t.comm), t.times as f64, piece_ns, observed_ns)
    };
    Node::new(proof.threads.iter().filter_map(source).collect(), Preempt)
}
