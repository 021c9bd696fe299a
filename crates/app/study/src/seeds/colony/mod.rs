// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colony Linux kernel technical report: coordinated scheduling under Leibniz noise.

mod fit;
mod glob;
pub(super) mod model;

use colony_sim::node::Node;
use colony_sim::scheduler::Fair;
use colony_sim::source::Noise;
use colony_time::{DutyCycle, Windows, cycles};

use self::model::Chosen;
use super::{Cited, Context, Document, Experiment, Method, Ours, Setting, on_this_node, settings};
use crate::node::{BenchRun, Injection};
use crate::project;
use crate::results::{Basis, Published, SchedulerKind};
use crate::{StudyError, format};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "noise-level",
        document: Document::Colony,
        place: "Section 3.1.7",
        what: "what a noise level means: calculation time over the pause",
        published: &[
            "an average 10,000 microsecond calculation followed by the fixed 500,000 microsecond sleep after each \
             calculation was termed 2% Noise Overhead",
        ],
        method: Method::Arithmetic,
        settings: settings::NONE,
        run: noise_level,
    },
    Experiment {
        name: "cycles",
        document: Document::Colony,
        place: "Section 3.2",
        what: "period and duty cycle in the notation of /proc/hpc",
        published: &[
            "The maximum period of 0xffffffff represents approximately 6 seconds on BlueGene/L's 700,000,000 \
             cycles/second processor clock.",
            "a duty cycle of 0x7fffffff represents 50% of the cycles in a period",
        ],
        method: Method::Arithmetic,
        settings: settings::NONE,
        run: notation,
    },
    Experiment {
        name: "fig3",
        document: Document::Colony,
        place: "Fig. 3",
        what: "the effect of the duty cycle on allreduce, 16,384 nodes",
        published: &[
            "The performance of the Allreduce application increased as the duty cycle was increased.",
            "The average increase in performance was 3.33% for each increase in the duty cycle.",
            "Increases beyond 0xf4000000 showed little or no application performance improvement. At 0xfc000000 the \
             performance increase versus 0xf4000000 was less than 0.26 %.",
        ],
        method: Method::Both,
        settings: &[Setting::Cpus, Setting::Period, Setting::Seed, Setting::Faster],
        run: duty_cycle,
    },
    Experiment {
        name: "fig4",
        document: Document::Colony,
        place: "Fig. 4",
        what: "noise made by each upper bound of terms (maxTermsPerCalc): the calibration curve",
        published: &[
            "This parameter allowed us to easily choose noise levels between 0 and 35%",
            "approximately 21% (maxTermsPerCalc = 5.9 million terms)",
        ],
        method: Method::Both,
        settings: settings::ON_CPUS,
        run: terms,
    },
    Experiment {
        name: "fig5",
        document: Document::Colony,
        place: "Fig. 5",
        what: "allreduce without noise, with 2 % and with 21 %, with and without coordination",
        published: &[
            "The behavior of the unmodified scheduler without the noise program running and the Colony coordinated \
             scheduler (with and without noise) were almost identical.",
        ],
        method: Method::Both,
        settings: settings::WINDOWED,
        run: |e, c| {
            let mut rows = Vec::new();
            for percent in [0.0, 2.0, 21.0] {
                rows.extend(scaled(e, c, percent, &NODES)?);
            }
            rows.extend(on_node(e, c, "allreduce", &[0.0, 2.0, 21.0])?);
            Ok(rows)
        },
    },
    Experiment {
        name: "fig6",
        document: Document::Colony,
        place: "Fig. 6 and section 3.5",
        what: "allreduce under 21 % noise",
        published: &[
            "measurements for individual operations ranged from about 4 microseconds to over 9900 microseconds",
            "the overall runtime for one of the tests reduced from 3175.7 seconds to 1.73 seconds!",
        ],
        method: Method::Both,
        settings: settings::WINDOWED,
        run: moderate,
    },
    Experiment {
        name: "fig7",
        document: Document::Colony,
        place: "Fig. 7",
        what: "glob under 21 % noise, by number of nodes",
        published: &[
            "The performance at the maximum is significantly better than the other node counts because under those \
             node counts BlueGene's collective hardware cannot be utilized.",
            "GLOB showed nearly identical behavior where there was no noise interference or the when the Colony Linux \
             kernel was used.",
        ],
        method: Method::Both,
        settings: settings::WINDOWED,
        run: |e, c| {
            let mut rows = scaled(e, c, 0.0, &[8192])?;
            rows.extend(scaled(e, c, 21.0, &[8192])?);
            rows.extend(glob::on_parts_of_the_block(e, c)?);
            rows.extend(on_node(e, c, "glob", &[21.0])?);
            Ok(rows)
        },
    },
    Experiment {
        name: "fig8",
        document: Document::Colony,
        place: "Fig. 8 and section 3.6",
        what: "allreduce under 2 % noise",
        published: &[
            "the parallel-aware coordinated scheduling typically resulted in about a 10% improvement in overall \
             runtimes",
        ],
        method: Method::Both,
        settings: settings::WINDOWED,
        run: |e, c| {
            let mut rows =
                gains(e, c, 2.0, Cited::value("about a 10% improvement (1.1×)", 1.1, Basis::Fitted))?;
            rows.extend(on_node(e, c, "allreduce", &[2.0])?);
            Ok(rows)
        },
    },
    Experiment {
        name: "fig9",
        document: Document::Colony,
        place: "Fig. 9",
        what: "glob under 2 % noise, all nodes of the block",
        published: &[
            "On average the glob application performed just over 12% better on the Colony Linux kernel with \
             coordinated scheduling versus typical Linux scheduling during small amounts of noise.",
        ],
        method: Method::Both,
        settings: settings::WINDOWED,
        run: |e, c| {
            let mut rows =
                gains(e, c, 2.0, Cited::value("just over 12% better (1.12×)", 1.12, Basis::Fitted))?;
            rows.extend(on_node(e, c, "glob", &[2.0])?);
            Ok(rows)
        },
    },
    Experiment {
        name: "beyond",
        document: Document::Colony,
        place: "Section 3.3",
        what: "growth of the run with the noise, up to 35 %",
        published: &[
            "Due to the non-linear fashion of performance impact in the presence of noise, we limited the “moderate” \
             setting to 21%.",
            "Both Allreduce and GLOB are able to perform all their work within this window of 0xbffffff cycles if the \
             number of terms in its calculation is kept below approximately 21%",
            "Beyond 21% yields rapidly increasing Allreduce and GLOB run times.",
        ],
        method: Method::Projection,
        settings: settings::RANDOM,
        run: beyond,
    },
    Experiment {
        name: "kernels",
        document: Document::Colony,
        place: "Section 3.5",
        what: "the lightweight kernel, Linux and coordinated Linux on 1024 to 16,384 nodes",
        published: &[
            "The CNK kernel demonstrated the best scaling performance in most cases",
            "The Colony Linux kernel was successful at mitigating the effect of the noise program and prevented any \
             significant increase in Allreduce run time.",
        ],
        method: Method::Projection,
        settings: settings::RANDOM,
        run: kernels,
    },
    Experiment {
        name: "overhead",
        document: Document::Colony,
        place: "Section 3.7",
        what: "overhead of coordination without noise",
        published: &[
            "The overhead was very low; in fact, many times the coordinated scheduling kernel actually ran faster than \
             the kernel with standard scheduling.",
        ],
        method: Method::Both,
        settings: settings::WINDOWED,
        run: overhead,
    },
    Experiment {
        name: "daemons-begin",
        document: Document::Colony,
        place: "Figs. 3, 6, 8 and 9",
        what: "begin and wake-ups of the noise daemons, fitted on half of the figures, tested on the other half",
        published: &[
            "the overall runtime for one of the tests reduced from 3175.7 seconds to 1.73 seconds!",
            "The average increase in performance was 3.33% for each increase in the duty cycle.",
        ],
        method: Method::LongProjection,
        settings: settings::RANDOM,
        run: fit::both_halves,
    },
];

/// The duty cycle of the report's experiments.
const DUTY: u32 = 0xf400_0000;

const SIMULATED: &str = "simulated: 500,000 operations from the boot on; noise daemons that begin 340 ms after the job (fitted to \
     Figs. 6 and 8), wake at ticks of 4 ms and drift apart; turns of 10 ms for a daemon, 4 ms for the job: chosen, the \
     same for all figures of the report; period 0xffffffff, and duty cycle 0xf4000000 where no other is named";

fn noise_level(e: &Experiment, _: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let load = project::daemon(2.0).load();
    let what = "10,000 µs of calculation on average, 500,000 µs of sleep";
    Ok(vec![e.beside(
        what,
        Cited::value("2%", 0.02, Basis::Arithmetic),
        Ours::Share(load / (1.0 - load)),
        "stolen time over the rest",
    )])
}

fn notation(e: &Experiment, _: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let duty = |c: u32| f64::from(c) / f64::from(u32::MAX);
    Ok(vec![
        e.beside(
            "period 0xffffffff",
            Cited::s("approximately 6 seconds", 6.0, Basis::Arithmetic),
            Ours::Ns(cycles::MAX_NS as f64),
            "cycles at 700 MHz",
        ),
        e.beside(
            "duty cycle 0x7fffffff",
            Cited::value("50%", 0.5, Basis::Arithmetic),
            Ours::Share(duty(0x7fff_ffff)),
            "share of the longest period, 0xffffffff",
        ),
        e.beside(
            "regular window at 0xf4000000",
            Cited::value("0x0bfffff cycles", cycles::to_ns(0x0bff_ffff) as f64, Basis::Arithmetic),
            Ours::Ns(cycles::MAX_NS as f64 - cycles::to_ns(0xf400_0000) as f64),
            "the text's 0x0bfffff is 0x0bffffff",
        ),
    ])
}

fn duty_cycle(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    // the mean of the first three gains is published, and a limit of the last
    const STEPS: [(u32, Option<Cited>); 5] = [
        (0x000f_4000, None),
        (0x00f4_0000, None),
        (0x0f40_0000, None),
        (0xf400_0000, None),
        (0xfc00_0000, Some(Cited::limit("less than 0.26 %", Basis::Predicted))),
    ];
    let chosen = Chosen::default();
    let mut totals = Vec::new();
    for (duty, _) in STEPS {
        let node = chosen.coordinated(2.0, chosen.windows(duty)?);
        totals.push(model::total(c.params, &chosen, &node, 16_384)?.ns);
    }
    let mut rows = Vec::new();
    for (i, (duty, published)) in STEPS.into_iter().enumerate() {
        let what = format!("duty cycle {duty:#010x}, 2 % noise");
        rows.push(match i.checked_sub(1) {
            None => e.row(format!("{what}: run"), Ours::Ns(totals[i]), SIMULATED),
            Some(before) => {
                let gain = totals[before] / totals[i] - 1.0;
                e.beside(format!("{what}: gain over the one before"), published, Ours::Share(gain), SIMULATED)
            }
        });
    }
    let mean = ((totals[0] / totals[3]).ln() / 3.0).exp_m1();
    let published = Cited::value("3.33%", 0.0333, Basis::Predicted);
    let what = "mean gain of the three steps to 0xf4000000 (geometric)";
    rows.push(e.beside(what, published, Ours::Share(mean), SIMULATED));
    for share in [0.05, 0.5, 0.95] {
        let windows = Windows::new(c.params.period_ns, DutyCycle::Ppm((share * 1e6) as u32), 0)
            .map_err(|e| StudyError::Params(e.to_string()))?;
        rows.extend(bench(e, c, "allreduce", 2.0, Some(windows)));
    }
    Ok(rows)
}

fn terms(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    const TERMS: [u64; 6] = [500_000, 1_000_000, 2_000_000, 4_000_000, 5_900_000, 10_000_000];
    let published = |n| (n == 5_900_000).then_some(Cited::value("approximately 21%", 0.21, Basis::PutIn));
    // calculations are uniform up to the bound: noise is proportional to it
    let described = |n: u64| {
        let share = 0.21 * n as f64 / 5.9e6;
        let what = format!("maxTermsPerCalc {}, 700 MHz", format::count(n));
        e.beside(
            what,
            published(n),
            Ours::Share(share),
            "proportional to the bound, scaled by the 21% of 5.9 million",
        )
    };
    let mut rows: Vec<Published> = TERMS.into_iter().map(described).collect();
    let Some(node) = c.node.as_deref_mut() else { return Ok(rows) };
    let levels = c.progress.during("calibrating the noise daemon", 5.0, || node.leibniz_levels(&TERMS))?;
    rows.extend(TERMS.iter().zip(levels).map(|(&n, share)| {
        let what = format!("maxTermsPerCalc {}, this node", format::count(n));
        e.row(what, Ours::Share(share), "on this node's CPU; theirs ran at 700 MHz")
    }));
    Ok(rows)
}

/// Both schedulers at each node count.
fn scaled(
    e: &Experiment,
    c: &Context<'_>,
    percent: f64,
    nodes: &[u32],
) -> Result<Vec<Published>, StudyError> {
    let chosen = Chosen::default();
    let windows = chosen.windows(DUTY)?;
    let mut rows = Vec::new();
    for (kind, node) in [
        (SchedulerKind::Unmodified, chosen.unmodified(percent)),
        (SchedulerKind::Coordinated, chosen.coordinated(percent, windows)),
    ] {
        for &n in nodes {
            let total = model::total(c.params, &chosen, &node, n)?;
            let what =
                format!("{percent} % noise, {}, {}: run", kind.name(), format::counted(n.into(), "node"));
            rows.push(e.row(what, Ours::Ns(total.ns), SIMULATED));
        }
    }
    Ok(rows)
}

/// Slowdown of the unmodified run, with the chosen parameters and with the other possible ones.
fn gains(
    e: &Experiment,
    c: &Context<'_>,
    percent: f64,
    published: Cited,
) -> Result<Vec<Published>, StudyError> {
    const MS: u64 = 1_000_000;
    let usual = Chosen::default();
    let turns = |daemon, job| Fair { noise_slice_ns: daemon * MS, job_slice_ns: job * MS };
    let mut rows = Vec::new();
    for (what, chosen) in [
        ("", usual),
        (", job's turn 1 ms", Chosen { turns: turns(10, 1), ..usual }),
        (", job's turn 10 ms", Chosen { turns: turns(10, 10), ..usual }),
        (", daemon's turn 20 ms", Chosen { turns: turns(20, 4), ..usual }),
        (", two phases", Chosen { phases: 2, ..usual }),
        (", daemons wake at any instant", Chosen { tick_ns: None, ..usual }),
        (", daemons begin with the job", Chosen { daemons_begin_ns: 0, ..usual }),
        (", daemons begin 400 ms after the job", Chosen { daemons_begin_ns: 400 * MS, ..usual }),
        (", daemons begin 10 s before the job", Chosen { begin_ns: Some(10_340 * MS), ..usual }),
        (", daemons at random", Chosen::at_random()),
    ] {
        let unmodified = model::total(c.params, &chosen, &chosen.unmodified(percent), 8192)?;
        let node = chosen.coordinated(percent, chosen.windows(DUTY)?);
        let coordinated = model::total(c.params, &chosen, &node, 8192)?;
        let ratio = unmodified.ns / coordinated.ns;
        let what = format!("{percent} % noise, 8192 nodes: unmodified over coordinated{what}");
        rows.push(match chosen.is_usual() {
            true => e.beside(what, published, Ours::Times(ratio), SIMULATED),
            false => e.row(what, Ours::Times(ratio), "how the result moves with what was chosen"),
        });
    }
    Ok(rows)
}

fn moderate(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let chosen = Chosen::default();
    let unmodified = model::total(c.params, &chosen, &chosen.unmodified(21.0), 8192)?;
    let node = chosen.coordinated(21.0, chosen.windows(DUTY)?);
    let coordinated = model::total(c.params, &chosen, &node, 8192)?;
    let mut rows = vec![
        e.beside(
            "21 % noise, 8192 nodes, unmodified: run",
            Cited::s("3175.7 seconds", 3175.7, Basis::Fitted),
            Ours::Ns(unmodified.ns),
            SIMULATED,
        ),
        e.beside(
            "21 % noise, 8192 nodes, coordinated: run",
            Cited::s("1.73 seconds", 1.73, Basis::PutIn),
            Ours::Ns(coordinated.ns),
            "simulated; the time of an operation without noise is this very figure over 500,000: what is shown is \
             that coordination adds no more",
        ),
        e.beside(
            "shortest operation",
            Cited::us("about 4 microseconds", 4.0, Basis::PutIn),
            Ours::Ns(unmodified.min_ns as f64),
            "simulated; without noise an operation takes 1.73 s over 500,000, which is put in",
        ),
        e.beside(
            "longest operation",
            Cited::limit("over 9900 microseconds", Basis::Fitted),
            Ours::Ns(unmodified.max_ns as f64),
            SIMULATED,
        ),
    ];
    rows.push(anywhere(e, c, 21.0)?);
    rows.extend(gains(
        e,
        c,
        21.0,
        Cited::value("3175.7 to 1.73 seconds (1836×)", 3175.7 / 1.73, Basis::Fitted),
    )?);
    rows.extend(on_node(e, c, "allreduce", &[21.0])?);
    Ok(rows)
}

/// The coordinated run, begun at ten instants over a period: those that meet a regular window are longer.
fn anywhere(e: &Experiment, c: &Context<'_>, percent: f64) -> Result<Published, StudyError> {
    const BEGINS: u64 = 10;
    let windows = Chosen::default().windows(DUTY)?;
    let node = Chosen::default().coordinated(percent, windows);
    let mut sum = 0.0;
    for k in 0..BEGINS {
        let begin_ns = windows.period_ns() + k * windows.period_ns() / BEGINS;
        let chosen = Chosen { begin_ns: Some(begin_ns), ..Chosen::default() };
        sum += model::total(c.params, &chosen, &node, 8192)?.ns;
    }
    Ok(e.row(
        format!("{percent} % noise, 8192 nodes, coordinated: mean of runs begun at ten instants of a period"),
        Ours::Ns(sum / BEGINS as f64),
        "simulated; a run that meets a regular window loses its daemons' longest calculation",
    ))
}

/// Beyond 21 %.
fn beyond(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let chosen = Chosen::default();
    let mut rows = Vec::new();
    for percent in [2.0, 5.0, 10.0, 15.0, 21.0, 25.0, 30.0, 35.0] {
        let unmodified = model::total(c.params, &chosen, &chosen.unmodified(percent), 8192)?;
        let what = format!("{percent} % noise, 8192 nodes, unmodified: run");
        rows.push(e.row(what, Ours::Ns(unmodified.ns), SIMULATED));
    }
    let in_window_ns = chosen.longest_in_window_ns(chosen.windows(DUTY)?.regular_ns());
    let longest_ns = |noise: f64| 2.0 * noise * project::DAEMON_SLEEP_NS as f64;
    let turns = "arithmetic; daemon and job take turns of 10 ms and 4 ms in a regular window, so the daemon has 10/14 of it";
    for percent in [15.0, 21.0, 25.0, 30.0, 35.0] {
        rows.push(e.row(
            format!("{percent} % noise: longest calculation over the daemon's turns in a regular window"),
            Ours::Share(longest_ns(percent / 100.0) / in_window_ns),
            "arithmetic; above 100 % a calculation does not end in its window",
        ));
    }
    rows.push(e.beside(
        "noise up to which the longest calculation ends in the regular window",
        Cited::value("approximately 21%", 0.21, Basis::Predicted),
        Ours::Share(in_window_ns / longest_ns(1.0)),
        turns,
    ));
    Ok(rows)
}

/// The lightweight kernel, Linux, and Linux with coordination.
fn kernels(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let chosen = Chosen::default();
    let windows = chosen.windows(DUTY)?;
    let mut rows = Vec::new();
    for (name, node) in [
        ("CNK", Node::quiet()),
        ("Linux, 21 % noise", chosen.unmodified(21.0)),
        ("coordinated, 21 % noise", chosen.coordinated(21.0, windows)),
    ] {
        for nodes in NODES {
            let total = model::total(c.params, &chosen, &node, nodes)?;
            let what = format!("{name}, {}: run", format::counted(nodes.into(), "node"));
            let note =
                "simulated, one network for all kernels: what their message software costs is not in it";
            rows.push(e.row(what, Ours::Ns(total.ns), note));
        }
    }
    Ok(rows)
}

const NODES: [u32; 5] = [1024, 2048, 4096, 8192, 16_384];

fn overhead(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let chosen = Chosen::default();
    let node = chosen.coordinated(0.0, chosen.windows(DUTY)?);
    let coordinated = model::total(c.params, &chosen, &node, 16_384)?;
    let unmodified = model::total(c.params, &chosen, &chosen.unmodified(0.0), 16_384)?;
    let what = "no noise, 16,384 nodes: coordinated over unmodified";
    let note = "simulated: nothing is held back, and what switching costs is not simulated; measured below";
    let mut rows = vec![e.row(what, Ours::Times(coordinated.ns / unmodified.ns), note)];
    rows.extend(on_node(e, c, "allreduce", &[0.0])?);
    Ok(rows)
}

/// Unmodified, then coordinated, at each level, on this node.
fn on_node(
    e: &Experiment,
    c: &mut Context<'_>,
    program: &'static str,
    levels: &[f64],
) -> Result<Vec<Published>, StudyError> {
    let windows = c.params.windows()?;
    let mut rows = Vec::new();
    for &percent in levels {
        for windows in [None, Some(windows)] {
            rows.extend(bench(e, c, program, percent, windows));
        }
    }
    Ok(rows)
}

fn bench(
    e: &Experiment,
    c: &mut Context<'_>,
    program: &'static str,
    percent: f64,
    windows: Option<Windows>,
) -> Vec<Published> {
    let how = windows.map_or("unmodified".into(), |w| format!("coordinated ({})", format::percent(w.duty())));
    let run = BenchRun {
        program,
        ranks: c.params.ranks,
        seconds: c.params.bench_s,
        ops: None,
        injection: Injection::leibniz(percent),
        windows,
        seed: c.params.seed,
    };
    let what = format!("{program} on this node, {percent} % noise, {how}");
    on_this_node(e, c, (what, run), |what, cell| {
        vec![
            e.row(format!("{what}: mean"), Ours::Ns(cell.mean_ns), &cell.command),
            e.row(format!("{what}: longest"), Ours::Ns(cell.max_ns as f64), &cell.command),
        ]
    })
}
