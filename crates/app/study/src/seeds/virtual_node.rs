// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colony Linux kernel technical report: coordinated scheduling inside the kernel's scheduler, measured on a virtual
//! node and projected.

use colony_sched::proof::Deferred;
use colony_sched::run::RunReport;
use colony_sim::node::Node;
use colony_sim::program::{Operation, Program, Step};
use colony_sim::scheduler::{Coordinated, Fair};
use colony_sim::source::{Arrivals, Class, Dist, Model, Source};
use rayon::prelude::*;

use super::{Context, Document, Experiment, Method, Ours, settings};
use crate::results::Published;
use crate::virtual_node::{Case, Runs, SLEEP_NS};
use crate::{StudyError, format, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "vm",
    document: Document::Colony,
    place: "Sections 3.2 and 3.7",
    what: "coordinated scheduling inside the kernel's scheduler: duty cycle and overhead, measured on a virtual node of \
           Linux 7.3 and simulated on 1024 to 16,384 of them",
    published: &[
        "The overhead was very low; in fact, many times the coordinated scheduling kernel actually ran faster than \
         the kernel with standard scheduling.",
        "The performance of the Allreduce application increased as the duty cycle was increased.",
    ],
    method: Method::Virtual,
    settings: settings::RANDOM,
    run,
}];

/// The node alone shows what the projection makes of it, beside what was measured there.
const NODES: [u32; 4] = [1, 1024, 4096, 16_384];
/// Steps of the projected job, ten periods without noise, and the work of each.
const STEPS: u64 = 2000;
const STEP_NS: u64 = 1_000_000;

fn run(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let Some(node) = c.node.as_deref_mut() else { return Ok(Vec::new()) };
    let what = "running the scheduler in the kernel on a virtual node";
    let runs = c.progress.during(what, 60.0, || node.virtual_node())?;
    let measured = format!(
        "measured with Linux {} on a virtual node of one CPU, time counted in instructions; a job of {} beside a daemon \
         that calculates for {} and sleeps for {}; again: colony study vm",
        runs.kernel,
        format::time(runs.quiet.job_cpu_ns as f64),
        format::time(runs.burst_ns as f64),
        format::time(SLEEP_NS as f64),
    );
    let mut rows = vec![e.row(
        "without noise, in the kernel: CPU time more than unmodified",
        Ours::Share(overhead(&runs)),
        &measured,
    )];
    let project = |case| rows_of(e, c.params, &runs, case, &measured);
    let projected: Vec<_> = c
        .progress
        .during("projecting", 10.0, || runs.cases.par_iter().map(project).collect::<Result<_, _>>())?;
    rows.extend(projected.into_iter().flatten());
    Ok(rows)
}

/// CPU time of the job scheduled in the kernel, beyond what it takes unmodified, as a share of that.
fn overhead(runs: &Runs) -> f64 {
    runs.quiet_sched_ext.job_cpu_ns as f64 / runs.quiet.job_cpu_ns as f64 - 1.0
}

/// Rows of one case: the measurement, and its cost to a job on many such nodes.
fn rows_of(
    e: &Experiment,
    params: &crate::Params,
    runs: &Runs,
    case: &Case,
    measured: &str,
) -> Result<Vec<Published>, StudyError> {
    const SIMULATED: &str = "simulated: steps of 1 ms and an allreduce, the network of Blue Gene/L; the daemon as \
         measured, at its own instant on each node; beside it, coordinated, what was measured to be left in favored windows \
         (of threads met there twice or more in a run) and the lateness of edges; clocks agree";
    let (name, report) = (&case.name, &case.report);
    let favored = &report.proof.favored;
    let stolen = favored.stolen_ns as f64 / favored.observed_ns.max(1) as f64;
    let longer = report.wall_ns as f64 / runs.quiet.wall_ns as f64;
    let mut rows = vec![
        e.row(format!("{name}: stolen in favored windows"), Ours::Share(stolen), measured),
        e.row(format!("{name}: run on the node, over the one without noise"), Ours::Times(longer), measured),
    ];
    if let Some(lateness) = lateness(report) {
        let latest = Ours::Ns(lateness.max_ns as f64);
        rows.push(e.row(format!("{name}: latest edge"), latest, measured));
    }
    let program =
        Program::new("steps", STEPS, vec![Step::compute(STEP_NS), Step::collective(Operation::Allreduce, 8)]);
    let machine = project::blue_gene(1)?;
    for o in project::outcomes(params, &program, &machine, &node(runs, report), &NODES)? {
        let nodes = format::counted(o.nodes.into(), "node");
        rows.push(e.row(format!("{name}, {nodes}: slowdown"), Ours::Times(o.slowdown), SIMULATED));
    }
    Ok(rows)
}

pub(super) fn lateness(report: &RunReport) -> Option<&colony_stats::Distribution> {
    let agent = report.agent.as_ref().map(|a| &a.lateness);
    agent.or(report.sched_ext.as_ref().map(|s| &s.lateness))
}

/// A node as measured: the daemon, and whatever makes the windows or, unmodified, lets it take turns with the job.
fn node(runs: &Runs, report: &RunReport) -> Node {
    let daemon =
        Model { arrivals: Arrivals::AfterSleep(Dist::Fixed(SLEEP_NS)), length: Dist::Fixed(runs.burst_ns) };
    let mut sources = vec![Source::new("thread:daemon", daemon)];
    match lateness(report) {
        None => {
            let turn_ns = turn_ns(&report.proof.threads).unwrap_or(runs.burst_ns);
            Node::new(sources, Fair { noise_slice_ns: turn_ns, job_slice_ns: turn_ns })
        }
        Some(lateness) => {
            sources.extend(left(report));
            let edge_lateness_ns = project::spread(&crate::cell::edge_buckets(lateness));
            Node::new(sources, Coordinated { edge_lateness_ns, ..Coordinated::exact(report.windows) })
        }
    }
}

/// The command that starts the job and takes leave of it: once a run, not noise.
const OURS: &str = "colony";

/// Threads that took a CPU from the job, with the mean time they kept it.
fn pieces(threads: &[Deferred]) -> impl Iterator<Item = (&Deferred, u64)> {
    let taking = threads.iter().filter(|t| t.comm != OURS && t.times > 0);
    taking.map(|t| (t, (t.favored_ns + t.regular_ns) / t.times)).filter(|(_, ns)| *ns > 0)
}

/// Time for which the thread that takes most keeps the CPU before the job's next turn.
pub(super) fn turn_ns(threads: &[Deferred]) -> Option<u64> {
    pieces(threads).max_by_key(|(t, _)| t.favored_ns + t.regular_ns).map(|(_, ns)| ns)
}

/// The fewest pieces in a run that make a rate.
const LEAST_PIECES: f64 = 2.0;

/// Noise left in favored windows, one source for each thread: pieces as long as the thread's are on average, at
/// any instant with equal probability, as many as make up its time there. Nothing holds them back. One piece has no rate: it is
/// the start of a run, before the windows were kept.
pub(super) fn left(report: &RunReport) -> Vec<Source> {
    let observed_ns = report.proof.favored.observed_ns as f64;
    let source = |(thread, piece_ns): (&Deferred, u64)| {
        let pieces = thread.favored_ns as f64 / piece_ns as f64;
        rate(format!("left:{}", thread.comm), pieces, piece_ns, observed_ns)
    };
    pieces(&report.proof.threads).filter_map(source).collect()
}

/// A source that stays on its core: so many pieces in the time observed, each at any instant; `None` if they make no rate.
pub(super) fn rate(name: String, pieces: f64, piece_ns: u64, observed_ns: f64) -> Option<Source> {
    (pieces >= LEAST_PIECES).then(|| {
        let model = Model::poisson(observed_ns / pieces, Dist::Fixed(piece_ns));
        Source::new(name, model).class(Class::Local)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use colony_client::AgentStats;
    use colony_client::Backend;
    use colony_sched::proof::{Proof, ProofSource, WindowTimes};
    use colony_sched::run::Ending;
    use colony_stats::{Bucket, Distribution};
    use colony_time::{DutyCycle, Windows};

    use super::*;

    const MS: u64 = 1_000_000;
    const PERIOD_NS: u64 = 200 * MS;

    fn thread(comm: &str, favored_ns: u64, regular_ns: u64, times: u64) -> Deferred {
        Deferred { comm: comm.into(), favored_ns, regular_ns, times }
    }

    /// A daemon that has taken so much of a hundred milliseconds, in pieces of a millisecond.
    pub(in crate::seeds) fn daemon(percent: u64) -> Vec<Deferred> {
        vec![thread("noise", percent * MS, 0, percent)]
    }

    /// A run of a second; with windows, its edges are late by 100 µs.
    pub(in crate::seeds) fn report(wall_ns: u64, windows: bool, threads: Vec<Deferred>) -> RunReport {
        let stolen_ns = threads.iter().map(|t| t.favored_ns).sum();
        let favored = WindowTimes { observed_ns: 800 * MS, stolen_ns, ..WindowTimes::default() };
        let buckets = vec![Bucket { up_to_ns: 100_000, count: 10 }];
        let lateness = Distribution { count: 10, max_ns: 100_000, buckets, ..Distribution::default() };
        RunReport {
            schema: "colony.run/1".into(),
            command: Vec::new(),
            windows: Windows::new(PERIOD_NS, DutyCycle::Ppm(800_000), 0).expect("windows"),
            backend: if windows { Backend::Agent } else { Backend::None },
            cpus: "0".parse().expect("a list"),
            ending: Ending::Exited(0),
            wall_ns,
            job_cpu_ns: 1000 * MS,
            proof: Proof {
                source: ProofSource::Bpf,
                favored,
                regular: WindowTimes::default(),
                threads,
                notes: Vec::new(),
            },
            agent: windows.then(|| AgentStats { lateness, ..AgentStats::default() }),
            sched_ext: None,
            spare: None,
            pages: None,
            left_running: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn runs() -> Runs {
        let quiet = || report(1000 * MS, false, Vec::new());
        let case = |name: &str, report| Case { name: name.into(), report };
        Runs {
            kernel: "7.3".into(),
            quiet: quiet(),
            quiet_sched_ext: RunReport { job_cpu_ns: 1002 * MS, ..quiet() },
            burst_ns: 20 * MS,
            cases: vec![
                case("unmodified", report(1200 * MS, false, vec![thread("sh", 180 * MS, 20 * MS, 100)])),
                case("windows", report(1110 * MS, true, vec![thread("colony", 2 * MS, MS, 3)])),
            ],
            host_cpu_ns: 1,
        }
    }

    #[test]
    fn what_is_left_is_what_was_measured_without_our_own_start() {
        let threads = vec![
            thread("sh", 4 * MS, 12 * MS, 8),
            thread("colony", 9 * MS, 0, 1),
            thread("gone", 0, 0, 0),
            thread("once", MS, 9 * MS, 10),
        ];
        assert_eq!(turn_ns(&threads), Some(2 * MS));
        assert_eq!(turn_ns(&[]), None);
        let left = left(&report(1000 * MS, true, threads));
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].name.as_str(), left[0].class), ("left:sh", Class::Local));
        // 4 ms of 800 ms
        assert!((left[0].noise.load() - 0.005).abs() < 1e-9, "{}", left[0].noise.load());
    }

    #[test]
    fn the_daemon_costs_its_share_on_one_node_and_windows_keep_that_on_many() {
        let runs = runs();
        assert!((overhead(&runs) - 0.002).abs() < 1e-12);
        let e = &EXPERIMENTS[0];
        let rows: Vec<_> = (runs.cases.iter())
            .flat_map(|case| rows_of(e, &crate::Params::default(), &runs, case, "").expect("sound"))
            .collect();
        let value = |what: &str| rows.iter().find(|r| r.what == what).and_then(|r| r.value).expect(what);
        assert!((value("unmodified: stolen in favored windows") - 0.225).abs() < 1e-9);
        assert!((value("windows: run on the node, over the one without noise") - 1.11).abs() < 1e-9);
        assert!((value("windows: latest edge") - 1e5).abs() < 1e-9);
        // 20 of 120 ms, in turns; 20 of 200 ms, once a period
        assert!((value("unmodified, 1 node: slowdown") - 1.2).abs() < 0.05);
        assert!((value("windows, 1 node: slowdown") - 1.11).abs() < 0.03);
        assert!(value("unmodified, 16,384 nodes: slowdown") > 2.5);
        assert!(value("windows, 16,384 nodes: slowdown") < 1.2);
    }
}
