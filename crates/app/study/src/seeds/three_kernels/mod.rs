// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colony Linux kernel technical report, Figs. 5 to 9: allreduce on the lightweight kernel, on Linux and on coordinated Linux,
//! with noise as measured on a node of each. Two applications of the SC06 paper on the same nodes.

mod applications;

use colony_sched::run::RunReport;
use colony_sim::node::Node;
use colony_sim::scheduler::{Coordinated, Fair};
use colony_sim::source::Source;
use rayon::prelude::*;

use super::colony::model::{self, Chosen};
use super::virtual_node::{lateness, left, turn_ns};
use super::{Context, Document, Experiment, Method, Ours, settings};
use crate::results::Published;
use crate::three_kernels::{Case, Runs, WHAT};
use crate::{Params, StudyError, format, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "three-kernels",
    document: Document::Colony,
    place: "Figs. 5 to 9 and section 3.5",
    what: "allreduce on the lightweight kernel, on Linux and on coordinated Linux beside 0, 2 and 21 % noise: one node of each \
           measured, 1024 to 16,384 of them simulated; Flash-like weak and Miranda-like strong scaling (SC06) of the same \
           nodes to 65,536",
    published: &[
        "The CNK kernel demonstrated the best scaling performance in most cases",
        "The behavior of the unmodified scheduler without the noise program running and the Colony coordinated \
         scheduler (with and without noise) were almost identical.",
        "The Colony Linux kernel was successful at mitigating the effect of the noise program and prevented any \
         significant increase in Allreduce run time.",
        applications::FLASH,
        applications::MIRANDA,
    ],
    method: Method::Compute,
    settings: settings::RANDOM,
    run,
}];

const NODES: [u32; 3] = [1024, 4096, 16_384];

fn run(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let Some(node) = c.node.as_deref_mut() else { return Ok(Vec::new()) };
    let runs = c.progress.during(WHAT, 240.0, || node.three_kernels())?;
    let mut rows = measured(e, &runs);
    let projected = c.progress.during("projecting", 30.0, || projected(e, c.params, &runs))?;
    rows.extend(projected);
    let kernels = nodes(&runs);
    let simulate = || applications::run(e, c.params, &kernels, applications::USUAL);
    let (more, charts) = c.progress.during("simulating two applications", 90.0, simulate)?;
    rows.extend(more);
    c.charts.extend(charts);
    Ok(rows)
}

/// How a row names the noise.
fn noise(level: u32) -> String {
    if level == 0 { "without noise".into() } else { format!("{level} % noise") }
}

/// The share of the job's time that others took while it was to have its CPU.
fn stolen(report: &RunReport) -> f64 {
    let favored = &report.proof.favored;
    favored.stolen_ns as f64 / favored.observed_ns.max(1) as f64
}

fn measured(e: &Experiment, runs: &Runs) -> Vec<Published> {
    let note = format!(
        "measured on one virtual node of one CPU, time counted in instructions: ep.S twice, Linux {}; again: colony study {}",
        runs.release, e.name
    );
    let quiet = runs.cases.first().map_or(1, |case| case.unmodified.wall_ns) as f64;
    let mut rows = vec![
        e.row("CNK: the job", Ours::Ns(runs.node_ns as f64), &note),
        e.row("Linux, without noise: the job", Ours::Ns(runs.linux_ns as f64), &note),
    ];
    for Case { level, unmodified, coordinated } in &runs.cases {
        for (name, report) in [("Linux", unmodified), ("coordinated", coordinated)] {
            let name = format!("{name}, {}", noise(*level));
            let longer = report.wall_ns as f64 / quiet;
            let what = format!("{name}: run on the node, over Linux without noise");
            rows.push(e.row(what, Ours::Times(longer), &note));
            let what = format!("{name}: taken from the job in favored windows");
            rows.push(e.row(what, Ours::Share(stolen(report)), &note));
        }
    }
    rows
}

/// Nodes as measured, with their names.
fn nodes(runs: &Runs) -> Vec<(String, Node)> {
    let mut nodes = vec![("CNK".to_owned(), Node::quiet())];
    for Case { level, unmodified, coordinated } in &runs.cases {
        let daemon = project::daemon(f64::from(*level));
        let daemons =
            || if *level == 0 { Vec::new() } else { vec![Source::new("thread:noise", daemon.clone())] };
        // of Linux itself, what was measured without the noise
        let own = runs.cases.first().map_or_else(Vec::new, |quiet| left(&quiet.unmodified));
        let turn_ns = turn_ns(&unmodified.proof.threads).unwrap_or(1_000_000);
        let sources = daemons().into_iter().chain(own).collect();
        let turns = Fair { noise_slice_ns: turn_ns, job_slice_ns: turn_ns };
        nodes.push((format!("Linux, {}", noise(*level)), Node::new(sources, turns)));
        let sources = daemons().into_iter().chain(left(coordinated)).collect();
        let buckets = lateness(coordinated).map(crate::cell::edge_buckets).unwrap_or_default();
        let edge_lateness_ns = project::spread(&buckets);
        let windows = Coordinated { edge_lateness_ns, ..Coordinated::exact(coordinated.windows) };
        nodes.push((format!("coordinated, {}", noise(*level)), Node::new(sources, windows)));
    }
    nodes
}

fn projected(e: &Experiment, params: &Params, runs: &Runs) -> Result<Vec<Published>, StudyError> {
    const SIMULATED: &str = "simulated: 500,000 allreduces, the network of Blue Gene/L for all kernels; noise as described in the \
        report, at its own instant on each node, with turns as measured; beside it, what was measured to be left in favored \
        windows, and the lateness of edges; clocks agree. GLOB on all nodes of the block is the same operation";
    let chosen = Chosen { begin_ns: None, ..Chosen::default() };
    let all: Vec<_> = nodes(runs).into_iter().flat_map(|node| NODES.map(|n| (node.clone(), n))).collect();
    let row = |((name, node), n): &((String, Node), u32)| {
        let total = model::total(params, &chosen, node, *n)?;
        let what = format!("{name}, {}: run", format::counted((*n).into(), "node"));
        Ok(e.row(what, Ours::Ns(total.ns), SIMULATED))
    };
    all.par_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::applications::Size;
    use super::*;
    use crate::seeds::virtual_node::tests::report;

    const MS: u64 = 1_000_000;

    fn runs() -> Runs {
        let case = |level: u64| Case {
            level: level as u32,
            unmodified: report(
                (1000 + 10 * level) * MS,
                false,
                super::super::virtual_node::tests::daemon(level),
            ),
            coordinated: report((1000 + 11 * level) * MS, true, Vec::new()),
        };
        let cases = [0, 2, 21].map(case).to_vec();
        Runs { release: "7.3".into(), node_ns: 990 * MS, linux_ns: 1000 * MS, cases }
    }

    #[test]
    fn applications_keep_their_published_shape_without_noise_and_with_windows() {
        let kernels = nodes(&runs());
        let size = Size { nodes: &[64, 512], iterations: 2 };
        let (rows, charts) =
            applications::run(&EXPERIMENTS[0], &Params::default(), &kernels, size).expect("sound");
        assert_eq!((rows.len(), charts.len()), (2 * 7, 2));
        assert!(rows.iter().all(|r| r.place.contains("SC06") && r.note.contains("no figures")));
        assert!(rows.iter().all(|r| r.published == "–"), "the document has plots without figures");
        let [flash, miranda] = [0, 1].map(|i| {
            let lines = charts[i].lines.iter();
            lines.map(|l| (l.name.as_str(), l.values.clone())).collect::<std::collections::BTreeMap<_, _>>()
        });
        assert!((flash["CNK"][1] / flash["CNK"][0] - 1.0).abs() < 0.02, "{flash:?}");
        assert!((miranda["CNK"][0] - 1.0).abs() < 1e-9 && miranda["CNK"][1] > 7.5, "{miranda:?}");
        for (noise, most) in [("without noise", 1.4), ("2 % noise", 1.4), ("21 % noise", 1.4)] {
            let (linux, windows) = (format!("Linux, {noise}"), format!("coordinated, {noise}"));
            assert!(flash[windows.as_str()][1] < most * flash["CNK"][1], "{flash:?}");
            if noise != "without noise" {
                assert!(flash[linux.as_str()][1] > flash[windows.as_str()][1], "{flash:?}");
                assert!(miranda[linux.as_str()][1] < miranda["CNK"][1], "{miranda:?}");
            }
        }
    }

    #[test]
    fn noise_costs_linux_more_with_every_node_and_the_others_nothing() {
        let e = &EXPERIMENTS[0];
        let rows: Vec<_> = measured(e, &runs())
            .into_iter()
            .chain(projected(e, &Params::default(), &runs()).expect("sound"))
            .collect();
        let value = |what: &str| rows.iter().find(|r| r.what == what).and_then(|r| r.value).expect(what);
        assert!((value("CNK: the job") - 9.9e8).abs() < 1.0);
        let longer = value("Linux, 21 % noise: run on the node, over Linux without noise");
        assert!((longer - 1.21).abs() < 1e-9, "{longer}");
        let on = |name: &str, nodes: &str| value(&format!("{name}, {nodes} nodes: run"));
        let quiet = on("CNK", "16,384");
        assert!((on("Linux, without noise", "16,384") / quiet - 1.0).abs() < 0.01);
        assert!(on("Linux, 21 % noise", "16,384") > 100.0 * quiet);
        assert!(on("Linux, 21 % noise", "16,384") > on("Linux, 2 % noise", "16,384"));
        for level in ["without noise", "2 % noise", "21 % noise"] {
            let coordinated = on(&format!("coordinated, {level}"), "16,384");
            // a fifth of each period is not the job's
            assert!(coordinated < 1.4 * quiet, "{level}: {coordinated} for {quiet}");
        }
    }
}
