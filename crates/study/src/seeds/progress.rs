//! HPC-Colony progress report 2006: the effect of uncoordinated daemons.

use colony_sim::{BaseTime, CpuNoise, NodeNoise, Program, Scheduler};

use super::{Context, Document, Experiment, Method, Ours};
use crate::results::Published;
use crate::{StudyError, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "bsp-noise",
    document: Document::Progress2006,
    place: "Fig. 3",
    what: "10,000 iterations of 1 ms of work and a barrier; a daemon that wakes every second for 1 ms, in phase \
           on all nodes or not",
    published: &[
        "This benchmark consists of 10,000 iterations. Each of those iterations consists of 1ms of work followed by a \
         barrier across all processes in the parallel execution.",
        "The red, green and blue lines are all on top of each other.",
        "significant performance degradation happens only when the daemons are uncoordinated",
    ],
    method: Method::Projection,
    run: bsp,
}];

const ITERATIONS: f64 = 10_000.0;

fn bsp(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let program = Program::Bsp { work_ns: 1_000_000, barrier: BaseTime::blue_gene_barrier() };
    let daemon = NodeNoise::new(vec![CpuNoise::periodic(1_000_000_000, 1_000_000)?])?;
    let nodes: Vec<u64> = c.params.nodes.iter().copied().filter(|&n| n <= 16_384).collect();
    let mut rows = Vec::new();
    for (name, noise, scheduler, published) in [
        ("no daemon", &NodeNoise::quiet(), Scheduler::Unmodified, "on top of each other"),
        ("daemons in phase", &daemon, Scheduler::Aligned, "on top of each other"),
        ("daemons out of phase", &daemon, Scheduler::Unmodified, "significant performance degradation"),
    ] {
        for p in project::points(c.params, program.clone(), noise, scheduler, &nodes)? {
            rows.push(e.row(
                format!("{name}, {} nodes: 10,000 iterations", p.nodes),
                published,
                Ours::Ns(p.mean_ns * ITERATIONS),
                "projected",
            ));
        }
    }
    Ok(rows)
}
