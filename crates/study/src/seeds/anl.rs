//! Initial Results: Experiments on Watson BlueGene/L (ANL 2005): collectives under injected detours.

use colony_sim::{BaseTime, CpuNoise, NodeNoise, Program, Scheduler, ring};

use super::{Context, Document, Experiment, Method, Ours};
use crate::node::{BenchRun, Injection};
use crate::results::Published;
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
        method: Method::Arithmetic,
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
        run: |e, c| {
            let program = Program::Collective { base: BaseTime::blue_gene_barrier(), stages: 1 };
            let mut rows = collective(
                e,
                c,
                program,
                &[(512, 16_000, "about 18.5 microseconds"), (16_384, 16_000, "about 20 microseconds")],
            )?;
            rows.extend(on_node(e, c, "barrier", &[16_000])?);
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
        run: |e, c| {
            let mut rows = collective(
                e,
                c,
                project::allreduce(),
                &[
                    (512, 16_000, "43 microseconds"),
                    (16_384, 16_000, "49 microseconds"),
                    (512, 200_000, "412 microseconds"),
                    (16_384, 200_000, "417 microseconds"),
                ],
            )?;
            rows.extend(on_node(e, c, "allreduce", &[16_000, 200_000])?);
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
        run: |e, c| {
            let program = Program::Collective { base: BaseTime::blue_gene_myallreduce(), stages: 2 };
            let mut rows = collective(
                e,
                c,
                program,
                &[(512, 16_000, "71 microseconds"), (16_384, 16_000, "121 microseconds")],
            )?;
            rows.extend(on_node(e, c, "myallreduce", &[16_000])?);
            Ok(rows)
        },
    },
];

/// The paper varied the frequency and does not say which these values belong to.
const EVERY_NS: u64 = 1_000_000;

fn ring_trip(e: &Experiment, _: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let row = |detour_ns: f64, name: &str, published: &str| {
        let delay = ring::mean_delay_ns(100_000, 0.002, detour_ns);
        e.row(
            format!("100 K processors, detours of {name}"),
            published,
            Ours::Ns(delay),
            "processors × probability × detour",
        )
    };
    Ok(vec![row(10e3, "10 µs", "2 milliseconds"), row(100e6, "100 ms", "20 seconds")])
}

fn collective(
    e: &Experiment,
    c: &mut Context<'_>,
    program: Program,
    cases: &[(u64, u64, &str)],
) -> Result<Vec<Published>, StudyError> {
    let row = |&(nodes, detour_ns, published): &(u64, u64, &str)| {
        let noise = NodeNoise::new(vec![CpuNoise::periodic(EVERY_NS, detour_ns)?])?;
        let points = project::points(c.params, program.clone(), &noise, Scheduler::Unmodified, &[nodes])?;
        let ours = points.first().map_or(Ours::Missing, |p| Ours::Ns(p.mean_ns));
        Ok(e.row(
            format!("{nodes} nodes, detours of {} µs", detour_ns / 1000),
            published,
            ours,
            "projected, not an independent prediction: times without detours are the paper's, and the two stages of a \
             reduction were chosen knowing its values; one detour each ms is our choice; a timer signal's own cost \
             is not in it",
        ))
    };
    cases.iter().map(row).collect()
}

fn on_node(
    e: &Experiment,
    c: &mut Context<'_>,
    program: &'static str,
    detours: &[u64],
) -> Result<Vec<Published>, StudyError> {
    let Some(node) = c.node.as_deref_mut() else { return Ok(Vec::new()) };
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
        c.progress.begin(&what, c.params.bench_s);
        let cell = node.bench(&BenchRun {
            program,
            ranks: c.params.ranks,
            seconds: c.params.bench_s,
            ops: None,
            injection,
            windows: None,
            seed: c.params.seed,
        });
        c.progress.end();
        let cell = cell?;
        rows.push(e.row(what, "–", Ours::Ns(cell.mean_ns), &cell.command));
    }
    Ok(rows)
}
