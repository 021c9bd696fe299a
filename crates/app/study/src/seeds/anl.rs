// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initial Results: Experiments on Watson BlueGene/L (ANL 2005): collectives under injected detours.

use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Algorithm, Operation, Program, Step};
use colony_sim::scheduler::Preempt;
use colony_sim::source::{Class, Model, Source};
use colony_sim::words::number_of;
use colony_sim::{LogGops, ring};

use super::{Cited, Context, Document, Experiment, Method, Ours, on_this_node, settings};
use crate::node::{BenchRun, Injection};
use crate::results::{Basis, Cell, Published};
use crate::{StudyError, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "anl-ring",
        document: Document::Anl2005,
        place: "Background: The Nature of Detours",
        what: "delay of one trip around a ring of processors, each hit by a detour with 0.2 % probability",
        published: &[
            "If an OS detour is 10 microseconds and there are 100K processors, the average delay for a single trip \
             around the ring would be 2 milliseconds.",
            "if an OS detour was 100 milliseconds […] the delay would be 20 seconds!",
        ],
        method: Method::Projection,
        settings: settings::RANDOM,
        run: ring_trip,
    },
    Experiment {
        name: "anl-barrier",
        document: Document::Anl2005,
        place: "Barrier",
        what: "hardware barrier under 16 µs detours at random phases",
        published: &[
            "for small numbers of nodes (512) the raw barrier time went from about 1 microsecond to about 18.5 \
             microseconds for tests with detours of 16 microseconds",
            "on 16K nodes, the time went from 1.3 microseconds with no asynchronous detours to about 20 microseconds \
             for a detour of 16 microseconds",
        ],
        method: Method::Both,
        settings: settings::BENCHMARK,
        run: |e, c| {
            let mut rows = collective(
                e,
                c,
                &Step::collective(Operation::Barrier, 0),
                &[
                    (512, 0, "about 1 microsecond", 1.0),
                    (16_384, 0, "1.3 microseconds", 1.3),
                    (512, 16_000, "about 18.5 microseconds", 18.5),
                    (16_384, 16_000, "about 20 microseconds", 20.0),
                ],
            )?;
            rows.extend(on_node(e, c, "barrier", &[16_000]));
            Ok(rows)
        },
    },
    Experiment {
        name: "anl-allreduce",
        document: Document::Anl2005,
        place: "All_Reduce",
        what: "reduction in the network under 16 µs and 200 µs detours at random phases",
        published: &[
            "For simple reductions, the speed ranged from 8.3 microseconds on 512 nodes to 11.6 microseconds on 16K \
             CPUs.",
            "For detours of 16 microseconds, the reductions went from 43 microseconds for 512 nodes to 49 \
             microseconds for 16K nodes.",
            "Detours of 200 microseconds […] only slowed the All_Reduce functions from 412 microseconds to 417 \
             microseconds for between 512 and 16K nodes.",
        ],
        method: Method::Both,
        settings: settings::BENCHMARK,
        run: |e, c| {
            let mut rows = collective(
                e,
                c,
                &Step::collective(Operation::Allreduce, 8),
                &[
                    (512, 0, "8.3 microseconds", 8.3),
                    (16_384, 0, "11.6 microseconds", 11.6),
                    (512, 16_000, "43 microseconds", 43.0),
                    (16_384, 16_000, "49 microseconds", 49.0),
                    (512, 200_000, "412 microseconds", 412.0),
                    (16_384, 200_000, "417 microseconds", 417.0),
                ],
            )?;
            rows.extend(on_node(e, c, "allreduce", &[16_000, 200_000]));
            Ok(rows)
        },
    },
    Experiment {
        name: "anl-myallreduce",
        document: Document::Anl2005,
        place: "myAll_Reduce",
        what: "reduction with a user-defined operation, in software, under 16 µs detours at random phases",
        published: &[
            "Times ranged from 38 microseconds to 73 microseconds for between 512 and 16K nodes.",
            "For detours of 16 microseconds, the user-defined reductions went from 71 microseconds to 121 \
             microseconds.",
        ],
        method: Method::Both,
        settings: settings::BENCHMARK,
        run: |e, c| {
            let software = Step::by(Operation::Allreduce, Algorithm::RecursiveDoubling, 8);
            let mut rows = collective(
                e,
                c,
                &software,
                &[
                    (512, 0, "38 microseconds", 38.0),
                    (16_384, 0, "73 microseconds", 73.0),
                    (512, 16_000, "71 microseconds", 71.0),
                    (16_384, 16_000, "121 microseconds", 121.0),
                ],
            )?;
            rows.extend(on_node(e, c, "myallreduce", &[16_000]));
            Ok(rows)
        },
    },
    Experiment {
        name: "anl-alltoall",
        document: Document::Anl2005,
        place: "Experiments: Detour_alltoall",
        what: "alltoall of 8 bytes under 16 µs and 200 µs detours at random phases",
        published: &[
            "Detour_barrier, Detour_allreduce, Detour_alltoall, and Detour_myallreduce: These benchmarks run as \
             applications on the BG/L compute kernel, and simulate heavy OS interaction by artificially introducing \
             detours via timer interrupts.",
        ],
        method: Method::Projection,
        settings: settings::RANDOM,
        run: alltoall,
    },
];

/// The paper varied the frequency and does not say which these values belong to.
const EVERY_NS: u64 = 500_000;
/// Time of the timer's interrupt before and after the detour it makes: "a fast interrupt can be handled
/// in 1.8 microseconds".
pub(super) const INTERRUPT_NS: u64 = 1800;

fn ring_trip(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    const PROCESSORS: u32 = 100_000;
    let mut rows = Vec::new();
    for (detour_ns, name, text, s) in
        [(10_000, "10 µs", "2 milliseconds", 0.002), (100_000_000, "100 ms", "20 seconds", 20.0)]
    {
        let what = format!("100 K processors, detours of {name}");
        let delay = ring::mean_delay_ns(u64::from(PROCESSORS), 0.002, detour_ns as f64);
        let published = |basis| Cited::s(text, s, basis);
        rows.push(e.beside(
            what.clone(),
            published(Basis::Arithmetic),
            Ours::Ns(delay),
            "processors × probability × detour",
        ));
        rows.push(e.beside(
            format!("{what}, simulated"),
            published(Basis::Predicted),
            Ours::Ns(ring_delay(c, PROCESSORS, detour_ns)?),
            "a message passed on by each; a detour hits 0.2 % of them while it has the message",
        ));
    }
    Ok(rows)
}

/// Delay of a trip around a ring whose processors have the message for ten detours' length each.
fn ring_delay(c: &Context<'_>, processors: u32, detour_ns: u64) -> Result<f64, StudyError> {
    let held_ns = 10 * detour_ns;
    let loggops = LogGops { latency_ns: 0, overhead_ns: held_ns / 2, gap_ns: 0, ..LogGops::default() };
    let machine = Machine { loggops, ..Machine::loggopsim() };
    let program = Program::new("ring", 1, vec![Step::RingTrip { bytes: 1 }]);
    let detours = Model::periodic(held_ns * 500, detour_ns);
    let node = Node::new(vec![Source::new("detours", detours)], Preempt);
    let outcome = project::outcomes(c.params, &program, &machine, &node, &[processors])?;
    Ok(outcome.first().map_or(f64::NAN, |o| o.mean_ns - o.quiet_ns))
}

/// A node with a detour of this length each `every_ns`, at a random phase; without any if the length is 0.
pub(super) fn detours(every_ns: u64, length_ns: u64) -> Node {
    let sources = match length_ns {
        0 => Vec::new(),
        _ => {
            let detours = Model::periodic(every_ns, length_ns + INTERRUPT_NS);
            vec![Source::new("irq:timer", detours).class(Class::Local)]
        }
    };
    Node::new(sources, Preempt)
}

fn alltoall(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    const NOTE: &str = "the text names the benchmark and gives no time; simulated with Bruck's algorithm in log2 N rounds, a detour \
                        each 0.5 ms at a random phase";
    let machine = project::blue_gene(1)?;
    let step = Step::by(Operation::Alltoall, Algorithm::Bruck, 8);
    let program = Program::new("alltoall", u64::from(c.params.projected_ops).min(40), vec![step]);
    let mut rows = Vec::new();
    for nodes in [512, 4096, 16_384] {
        let mut quiet_ns = None;
        for length_ns in [0, 16_000, 200_000] {
            let node = detours(EVERY_NS, length_ns);
            let outcomes = project::outcomes(c.params, &program, &machine, &node, &[nodes])?;
            let mean_ns = outcomes.first().map_or(f64::NAN, |o| o.mean_ns);
            let on = number_of(nodes.into(), "node");
            let what = match length_ns {
                0 => format!("{on}, no detours"),
                _ => format!("{on}, detours of {} µs", length_ns / 1000),
            };
            rows.push(e.row(what.clone(), Ours::Ns(mean_ns), NOTE));
            match quiet_ns {
                None => quiet_ns = Some(mean_ns),
                Some(quiet_ns) => {
                    rows.push(e.row(
                        format!("{what}: over no detours"),
                        Ours::Times(mean_ns / quiet_ns),
                        NOTE,
                    ));
                }
            }
        }
    }
    Ok(rows)
}

/// Nodes, length of detours in nanoseconds, and the published time of an operation, as text and in microseconds.
type Case = (u32, u64, &'static str, f64);

fn collective(
    e: &Experiment,
    c: &mut Context<'_>,
    step: &Step,
    cases: &[Case],
) -> Result<Vec<Published>, StudyError> {
    let machine = project::blue_gene(1)?;
    // noise at random phases is stationary: a few hundred operations tell the mean
    let program = Program::new("collective", u64::from(c.params.projected_ops).min(500), vec![step.clone()]);
    let mean = |nodes, every_ns, length_ns| -> Result<f64, StudyError> {
        let node = detours(every_ns, length_ns);
        let outcome = project::outcomes(c.params, &program, &machine, &node, &[nodes])?;
        Ok(outcome.first().map_or(f64::NAN, |o| o.mean_ns))
    };
    let mut rows = Vec::new();
    for &(nodes, length_ns, published, us) in cases {
        let on = number_of(nodes.into(), "node");
        let what = match length_ns {
            0 => format!("{on}, no detours"),
            _ => format!("{on}, detours of {} µs", length_ns / 1000),
        };
        let (basis, note) = match length_ns {
            0 => (Basis::Fitted, "the machine's profile: fitted to this value"),
            _ => (
                Basis::Predicted,
                "simulated; a detour each 0.5 ms (chosen) at a random phase, and 1.8 µs for its interrupt (as the text \
                 has it)",
            ),
        };
        let published = Cited::us(published, us, basis);
        rows.push(e.beside(what, published, Ours::Ns(mean(nodes, EVERY_NS, length_ns)?), note));
    }
    for &(nodes, length_ns, ..) in cases.iter().filter(|c| c.1 == 16_000) {
        for every_us in [200, 1000, 2000, 10_000] {
            let mean = mean(nodes, every_us * 1000, length_ns)?;
            let what =
                format!("{}, detours of 16 µs, one each {every_us} µs", number_of(nodes.into(), "node"));
            rows.push(e.row(what, Ours::Ns(mean), "how the result moves with what was chosen"));
        }
    }
    Ok(rows)
}

fn on_node(e: &Experiment, c: &mut Context<'_>, program: &'static str, detours: &[u64]) -> Vec<Published> {
    let mut rows = Vec::new();
    for &length_ns in [0].iter().chain(detours) {
        let injection = match length_ns {
            0 => Injection::None,
            _ => Injection::Detours { length_ns, every_ns: EVERY_NS, aligned: false },
        };
        let what = match length_ns {
            0 => format!("{program} on this node, no detours"),
            _ => format!("{program} on this node, detours of {} µs each ms", length_ns / 1000),
        };
        let run = BenchRun {
            program,
            ranks: c.params.ranks,
            seconds: c.params.bench_s,
            ops: None,
            injection,
            windows: None,
            seed: c.params.seed,
        };
        let row = |what: &str, cell: &Cell| vec![e.row(what, Ours::Ns(cell.mean_ns), &cell.command)];
        rows.extend(on_this_node(e, c, (what, run), row));
    }
    rows
}
