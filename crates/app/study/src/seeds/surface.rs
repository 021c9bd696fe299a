// SPDX-License-Identifier: MIT OR Apache-2.0
//! The surface that ANL 2005 was going to plot: a reduction over length and frequency of detours, and over nodes.

use colony_sim::machine::Machine;
use colony_sim::program::{Algorithm, Operation, Program, Step};
use colony_sim::words::number_of;
use rayon::prelude::*;

use super::anl::{INTERRUPT_NS, detours};
use super::{Context, Document, Experiment, Method, Ours, settings};
use crate::chart::{HeatMap, Quantity, Surface};
use crate::results::Published;
use crate::{Params, StudyError, format, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "anl-surface",
    document: Document::Anl2005,
    place: "Conclusions",
    what: "reductions in the network and in software under detours of each length and frequency, on 512 to 16,384 nodes: \
           a heat map for each",
    published: &[
        "We varied both the length and frequency of the timer interrupts while benchmarking their effect on collective \
         operations",
        "While we generated lots of data, and are still working to plot 3D graphs, the preliminary numbers were fairly \
         dramatic.",
    ],
    method: Method::LongProjection,
    settings: settings::RANDOM,
    run,
}];

/// Lengths of a detour, nanoseconds.
const LENGTHS_NS: [u64; 6] = [2_000, 16_000, 50_000, 200_000, 1_000_000, 10_000_000];
/// Time between two detours of a node, nanoseconds.
const EVERY_NS: [u64; 5] = [200_000, 500_000, 1_000_000, 10_000_000, 100_000_000];
const NODES: [u32; 3] = [512, 4096, 16_384];
/// Operations on the most nodes. Fewer nodes do more, so that as many operations of a node are simulated: on few nodes, few
/// operations meet a rare detour.
const OPS_AT_MOST_NODES: u32 = 120;

fn run(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    const NOTE: &str =
        "simulated; the text has no figures of the surface. Each detour takes 1.8 µs more, for its interrupt";
    let reductions = [
        ("network", "reduction in the network", Step::collective(Operation::Allreduce, 8)),
        (
            "software",
            "user-defined reduction in software",
            Step::by(Operation::Allreduce, Algorithm::RecursiveDoubling, 8),
        ),
    ];
    let machine = project::blue_gene(1)?;
    let mut rows = Vec::new();
    for (id, name, step) in reductions {
        let title = format!("{name}: time over the time without detours");
        let draw = || heat_maps(c.params, &machine, &step);
        let maps = c.progress.during(&title, 10.0, draw)?;
        for map in &maps {
            let most = map.values.iter().flatten().flatten().copied().fold(f64::NAN, f64::max);
            let on = number_of(map.nodes.into(), "node");
            // the 16 µs of the text, at the frequency that the experiments with published times have
            let like_text = map.values.get(1).and_then(|row| *row.get(1)?).unwrap_or(f64::NAN);
            let what = format!("{name}, {on}, detours of 16 µs each 0.5 ms");
            rows.push(e.row(what, Ours::Times(like_text), NOTE));
            rows.push(e.row(format!("{name}, {on}: most of all"), Ours::Times(most), NOTE));
        }
        c.surfaces.push(Surface {
            id: id.into(),
            title,
            caption: "Rows: length of a detour. Columns: time between two detours of a node, whose phases are random. –: \
                      the detour would be longer than that."
                .into(),
            quantity: Quantity::Times,
            row_name: "detour".into(),
            rows: LENGTHS_NS.map(|ns| format::time(ns as f64)).to_vec(),
            columns: EVERY_NS.map(|ns| format!("each {}", format::time(ns as f64))).to_vec(),
            maps,
        });
    }
    Ok(rows)
}

/// A heat map for each number of nodes, all of them simulated side by side.
fn heat_maps(params: &Params, machine: &Machine, step: &Step) -> Result<Vec<HeatMap>, StudyError> {
    let mean_ns = |nodes: u32, every_ns, length_ns| -> Result<f64, StudyError> {
        let ops = u64::from(OPS_AT_MOST_NODES.min(params.projected_ops))
            * u64::from(NODES[NODES.len() - 1] / nodes);
        let program = Program::new("reduction", ops, vec![step.clone()]);
        let outcome = project::outcomes(params, &program, machine, &detours(every_ns, length_ns), &[nodes])?;
        Ok(outcome.first().map_or(f64::NAN, |o| o.mean_ns))
    };
    let one_map = |&nodes: &u32| {
        let quiet_ns = mean_ns(nodes, EVERY_NS[0], 0)?;
        let cell = |length_ns: u64, every_ns: u64| -> Result<Option<f64>, StudyError> {
            if length_ns + INTERRUPT_NS >= every_ns {
                return Ok(None);
            }
            Ok(Some(mean_ns(nodes, every_ns, length_ns)? / quiet_ns))
        };
        let row = |&length_ns: &u64| {
            EVERY_NS.par_iter().map(|&every_ns| cell(length_ns, every_ns)).collect::<Result<Vec<_>, _>>()
        };
        let values = LENGTHS_NS.par_iter().map(row).collect::<Result<Vec<_>, StudyError>>()?;
        Ok(HeatMap { nodes, values })
    };
    NODES.par_iter().map(one_map).collect()
}
