// SPDX-License-Identifier: MIT OR Apache-2.0
//! SC06, Figures 6 and 7: weak scaling of Flash and strong scaling of Miranda, in outline, on the three kernels.
//!
//! The document at hand has the text on these figures and their captions, not the plots: no time, no speed-up and, for
//! Flash, no number of processors. So shapes are compared. Sizes of both programs are chosen: see `Program::flash`
//! and `Program::miranda`.

use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Program, Step};
use rayon::prelude::*;

use crate::chart::{Chart, Line, Quantity};
use crate::results::Published;
use crate::seeds::{Document, Experiment, Ours};
use crate::{Params, StudyError, format, project};

/// Numbers of nodes. Of Miranda the document names 8192 to 65,536 processors.
pub(super) const NODES: [u32; 5] = [1024, 4096, 8192, 16_384, 65_536];
/// The first number of the document's strong scaling.
const STRONG_FROM: u32 = 8192;

/// Sentences of the document on both.
pub(super) const FLASH: &str = "This is a weak scaling experiment, so ideal behavior would be for the execution time to \
    stay constant as the number of processors increase. We observe that that is true only for the Blue Gene/L machines.";
pub(super) const MIRANDA: &str = "This is a strong scaling experiment, and we observe an almost linear improvement in \
    performance from 8192 to 65536 processors.";

/// Size of the runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size<'a> {
    /// Numbers of nodes, ascending.
    pub(super) nodes: &'a [u32],
    /// Iterations: four time steps of Flash, one of Miranda.
    pub(super) iterations: u64,
}

/// What the study runs: a period of the noise or more.
pub(super) const USUAL: Size<'static> = Size { nodes: &NODES, iterations: 4 };

/// Growth of a program with the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scaling {
    /// As much work for each node.
    Weak,
    /// As much work for all nodes.
    Strong,
}

/// A program of the document, its size for each number of nodes.
struct Application {
    id: &'static str,
    name: &'static str,
    scaling: Scaling,
    title: &'static str,
    caption: &'static str,
    place: &'static str,
    /// Time steps of an iteration.
    steps: u64,
    program: fn(nodes: u32, iterations: u64) -> Program,
}

const APPLICATIONS: [Application; 2] = [
    Application {
        id: "flash",
        name: "Flash",
        scaling: Scaling::Weak,
        title: "Flash-like, weak scaling: time of a step",
        caption: "The same work on each node: six sweeps of 20 ms, each after an exchange with six neighbours, and an \
                  allreduce; every fourth step the mesh is refined. A level line is ideal.",
        place: "section 4.4 and Fig. 6",
        steps: 4,
        program: |_, iterations| {
            Program::flash(Step::Compute { ns: 20_000_000, imbalance: 0.01 }, 16_384, iterations)
        },
    },
    Application {
        id: "miranda",
        name: "Miranda",
        scaling: Scaling::Strong,
        title: "Miranda-like, strong scaling: speed-up over CNK on the fewest nodes",
        caption: "The same cube of 2048³ cells for all nodes: 1 µs a cell and step, four transposes within rows and columns \
                  of ranks, two allreduces. Twice the speed-up on twice the nodes is ideal.",
        place: "section 4.4 and Fig. 7",
        steps: 1,
        program: |nodes, iterations| Program::miranda(nodes, 2048, 1000, iterations),
    },
];

/// Simulates both programs on `kernels`, with the network of Blue Gene/L for all: charts, and rows beside the document.
///
/// # Errors
/// [`StudyError::Sim`] where it makes no sense.
pub(super) fn run(
    e: &Experiment,
    params: &Params,
    kernels: &[(String, Node)],
    size: Size<'_>,
) -> Result<(Vec<Published>, Vec<Chart>), StudyError> {
    let machine = project::blue_gene(1)?;
    let (mut rows, mut charts) = (Vec::new(), Vec::new());
    for application in &APPLICATIONS {
        let steps_ns = application.steps_ns(params, &machine, kernels, size)?;
        rows.extend(application.rows(e, &steps_ns, size.nodes));
        charts.push(application.chart(steps_ns, size.nodes));
    }
    Ok((rows, charts))
}

impl Application {
    /// Time of a step of each kernel on each number of nodes.
    fn steps_ns(
        &self,
        params: &Params,
        machine: &Machine,
        kernels: &[(String, Node)],
        size: Size<'_>,
    ) -> Result<Vec<Line>, StudyError> {
        // the longest first, so that no core waits for one of them at the end
        let all: Vec<(u32, &Node)> =
            size.nodes.iter().rev().flat_map(|&n| kernels.iter().map(move |k| (n, &k.1))).collect();
        let one = |&(nodes, node): &(u32, &Node)| {
            let program = (self.program)(nodes, size.iterations);
            let outcomes = project::outcomes(params, &program, machine, node, &[nodes])?;
            Ok(outcomes.first().map_or(f64::NAN, |o| o.mean_ns / self.steps as f64))
        };
        let found: Vec<f64> = all.par_iter().with_max_len(1).map(one).collect::<Result<_, StudyError>>()?;
        let line = |(i, (name, _)): (usize, &(String, Node))| {
            let values = found.chunks(kernels.len()).rev().map(|of_nodes| of_nodes[i]).collect();
            Line { name: name.clone(), values }
        };
        Ok(kernels.iter().enumerate().map(line).collect())
    }

    /// What the document says of the shape, beside ours.
    fn rows(&self, e: &Experiment, steps_ns: &[Line], nodes: &[u32]) -> Vec<Published> {
        let note = format!(
            "simulated: {} in outline on the network of Blue Gene/L, noise as measured; sizes are chosen. The document has \
             no figures of it, so shapes are compared; what it says is of CNK on Blue Gene/L",
            self.name
        );
        let (first, last) = (0, nodes.len() - 1);
        let from = nodes.iter().position(|&n| n == STRONG_FROM).unwrap_or(first);
        let count = |at: usize| format::count(nodes[at].into());
        let ideal_ns = steps_ns.first().map_or(f64::NAN, |cnk| cnk.values[first]);
        let row = |line: &Line| {
            let (what, ours) = match self.scaling {
                Scaling::Weak => (
                    format!("step on {} nodes over CNK's on {}", count(last), count(first)),
                    line.values[last] / ideal_ns,
                ),
                Scaling::Strong => (
                    format!("speed-up, {} to {} nodes", count(from), count(last)),
                    line.values[from] / line.values[last],
                ),
            };
            let mut row = e.row(format!("{}-like, {}: {what}", self.id, line.name), Ours::Times(ours), &note);
            row.place = format!("{}, {}", Document::BlueGene2006.title(), self.place);
            row
        };
        steps_ns.iter().map(row).collect()
    }

    fn chart(&self, steps_ns: Vec<Line>, nodes: &[u32]) -> Chart {
        let base_ns = steps_ns.first().and_then(|quiet| quiet.values.first()).copied().unwrap_or(f64::NAN);
        let speed_up =
            |line: Line| Line { values: line.values.iter().map(|ns| base_ns / ns).collect(), ..line };
        let (quantity, lines) = match self.scaling {
            Scaling::Weak => (Quantity::Ns, steps_ns),
            Scaling::Strong => (Quantity::Times, steps_ns.into_iter().map(speed_up).collect()),
        };
        Chart {
            id: self.id.into(),
            title: self.title.into(),
            caption: self.caption.into(),
            quantity,
            nodes: nodes.to_vec(),
            lines,
        }
    }
}
