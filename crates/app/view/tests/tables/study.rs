// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of studies.

use colony_doctor::{Finding, Level, Subject, Touches};
use colony_node::privilege::Privileges;
use colony_project::changes::{Added, Alone, AtScale};
use colony_project::choose::{Answer, Choice, Scale, Throughput};
use colony_sched::spare::Partition;
use colony_sim::spec::Scenario;
use colony_study::Params;
use colony_study::advice::{Advice, Cost, Costed, Noise, Stays, Step};
use colony_study::card::{Card, SourceShare};
use colony_study::das_boot::{self, Plan};
use colony_study::neighbours::{Load, Neighbours, Share};
use colony_study::results::{Cell, Figure, Missing, Results, SchedulerKind, Split};
use colony_study::seeds::{self, Context};
use colony_study::spare_here::SpareHere;

use crate::{HOSTILE, LONG_NS, MANY, WARNING, all_cpus, check, node};

#[test]
fn a_study() {
    let params = Params::default();
    let split = Split {
        stolen_favored_ns: 1,
        stolen_regular_ns: LONG_NS / 3,
        favored_ns: LONG_NS,
        regular_ns: LONG_NS,
    };
    let cell = |noise_percent, scheduler| Cell {
        command: String::new(),
        noise_percent,
        achieved_percent: Some(20.9),
        scheduler,
        ops: MANY,
        mean_ns: 123_456_789.0,
        mean_ci95_ns: Some(1.0),
        load: None,
        p50_ns: 123_456,
        p99_ns: LONG_NS,
        p99_9_ns: LONG_NS,
        max_ns: LONG_NS,
        histogram: Vec::new(),
        split: Some(split),
        edges: None,
    };
    let names = vec![Share { name: HOSTILE.into(), share: 0.5 }];
    let load = Load { seconds: 1.0, others: 0.5, steal: 0.1, waiting: Some(0.2), names };
    let results = Results {
        schema: Results::SCHEMA.into(),
        version: String::new(),
        command: String::new(),
        started_unix_s: 0,
        took_s: 200.0,
        node: node(),
        privileges: Privileges { real_time: false, bpf: false, mount: false },
        headline: WARNING.into(),
        warnings: vec![WARNING.into(), HOSTILE.into()],
        not_done: vec![WARNING.into()],
        neighbours: Some(Neighbours { before: load.clone(), during: Some(load), waited_s: 0.0 }),
        noise: None,
        card: Some(card()),
        allreduce: [0.0, 2.0, 21.0]
            .into_iter()
            .flat_map(|p| [cell(p, SchedulerKind::Unmodified), cell(p, SchedulerKind::Coordinated)])
            .collect(),
        spare_core: Some(SpareHere {
            commands: [WARNING, HOSTILE].map(str::to_owned),
            job: "1".parse().expect("a list"),
            spare: "0".parse().expect("a list"),
            partition: Partition::CpusetV1,
            stolen_without: 0.3,
            stolen_with: 1e-9,
        }),
        scaling: None,
        published: Vec::new(),
        missing: vec![Missing {
            noise_percent: 21.0,
            scheduler: SchedulerKind::Coordinated,
            figure: Figure::Projection,
            reason: WARNING.into(),
        }],
        params,
    };
    let text = colony_view::study::results(&results);
    check(&text);
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part}: {text}"));
    assert!(place("worst source") < place("What to change") && place("What to change") < place("published"));
    assert!(text.contains("since the study started them") && text.contains("Best for throughput"), "{text}");
    let unknown = Card { attributed: false, choice: None, stopped: true, ..card() };
    let unknown = colony_view::card::card(&Card { doctor: no_sequence(unknown.doctor.clone()), ..unknown });
    check(&unknown);
    assert!(unknown.contains("not known") && unknown.contains("the sources are not known"), "{unknown}");
    assert!(text.contains("left out: ") && text.contains("21 % noise"), "{text}");
}

fn no_sequence(advice: Advice) -> Advice {
    Advice { sequence: Vec::new(), ..advice }
}

/// A report card with long figures and hostile names.
fn card() -> Card {
    let added =
        Added { share: 12_345.678, ci95: Some(2_345.678), low: Some(10_000.0), high: Some(14_691.356) };
    let finding = Finding {
        id: format!("daemon:{HOSTILE}"),
        subject: Subject::Daemons,
        level: Level::High,
        title: HOSTILE.into(),
        evidence: Vec::new(),
        remedies: Vec::new(),
        advice: None,
        owners: vec![HOSTILE.into()],
        touches: Touches::default(),
    };
    let cost = Cost::Simulated { added, at_most: true, sources: vec![HOSTILE.into()] };
    let step = Step { finding: finding.id.clone(), remedy: 0, left: added };
    let noise = Noise {
        trace: HOSTILE.into(),
        cpus: all_cpus(),
        observed_s: 15.0,
        stolen_share: 0.999,
        worst: Some((HOSTILE.into(), 0.998)),
        nodes: 16_384,
        ranks: 1 << 20,
        quiet_ns: 123_456_789.0,
        all: added,
        stopped: true,
    };
    let share = || SourceShare { source: HOSTILE.into(), share: 0.5 };
    let stays = Stays { source: HOSTILE.into(), added, reason: WARNING.into() };
    let doctor = Advice {
        no_remedy: vec![stays],
        schema: Advice::SCHEMA.into(),
        version: String::new(),
        host: Some(HOSTILE.into()),
        kernel: None,
        cpus: all_cpus(),
        noise: Some(noise),
        findings: vec![Costed { finding, cost, commands: vec![HOSTILE.repeat(30); 5], undo: Vec::new() }],
        sequence: vec![step; 5],
        undecided: Vec::new(),
        passed: Vec::new(),
        notes: vec![HOSTILE.into()],
    };
    let alone = vec![Alone::Added(added), Alone::NotSeen, Alone::NotSimulated];
    let scaling = [1024, 16_384, 1 << 20].map(|nodes| AtScale {
        nodes,
        all: added,
        changed: None,
        alone: alone.clone(),
    });
    Card {
        doctor,
        attributed: true,
        own: vec![share()],
        sources: vec![share(); 3],
        scaling: scaling.into(),
        choice: Some(answer()),
        stopped: false,
        commands: Vec::new(),
    }
}

/// Choices of which none can be told from the best.
fn answer() -> Answer {
    let choice = |spare, favored, impossible: Option<&str>| Choice {
        spare,
        favored,
        given: 0.5,
        taken: Vec::new(),
        held: Vec::new(),
        impossible: impossible.map(str::to_owned),
    };
    let choices =
        vec![choice(0, None, None), choice(8, Some(0.9725), None), choice(0, Some(0.8), Some(WARNING))];
    let throughput = vec![
        Some(Throughput { share: 0.999_99, ci95: None, low: None, high: None, simulation_ci95: None }),
        None,
        None,
    ];
    let scale = |nodes| Scale {
        nodes,
        ranks_per_node: 2,
        throughput: throughput.clone(),
        best: Some(0),
        alike: vec![1],
    };
    Answer {
        cores: 999,
        measured: 999,
        choices,
        scales: [64, 1024, 16_384, 1 << 20].map(scale).into(),
        movable: vec![HOSTILE.into()],
        bound: vec![HOSTILE.into(); 9],
        stopped: true,
        warnings: Vec::new(),
    }
}

#[test]
fn boot_times() {
    let plan = Plan { sizes_mib: vec![1, 16, 1024], repeat: 2 };
    let mut turn = 0;
    let mut boot = |_: das_boot::System, _: u32| {
        turn += 1;
        Ok(das_boot::Boot { pushed_bytes: MANY, cpu_ns: LONG_NS * (turn % 2), guest_ns: LONG_NS })
    };
    let curves = plan.curves(&mut boot, || ()).expect("boots");
    let table = colony_view::das_boot::results(&das_boot::Results {
        schema: das_boot::Results::SCHEMA.into(),
        version: "1".into(),
        command: HOSTILE.into(),
        started_unix_s: 0,
        took_s: 1.0,
        plan,
        node: node(),
        kernel: HOSTILE.into(),
        memory_mib: [4096, 2048],
        published: das_boot::PUBLISHED.into(),
        curves,
    });
    check(&table);
    assert!(table.replace("\n  ", " ").contains(das_boot::PUBLISHED), "{table}");
}

#[test]
fn every_experiment_of_the_seeds_that_needs_no_machine() {
    let params = Params { projected_ops: 100, nodes: vec![1024], published: false, ..Params::default() };
    for e in seeds::all() {
        let context = &mut Context::new(&params, None, &());
        if let Ok(outcome) = e.run(context) {
            check(&colony_view::study::outcome(&outcome));
        }
    }
    check(&colony_view::study::experiments());
}

#[test]
fn spare_cores_and_windows() {
    let text = colony_view::choose::choices(&Scenario::default(), &answer());
    check(&text);
    assert!(text.contains("1,048,576 nodes") && text.contains("* ~100.0"), "{text}");
    assert!(text.contains("not possible") && text.contains("8 spare cores, windows 97.25 %"), "{text}");
}

#[test]
fn io_scaling() {
    use colony_study::io_scaling::{Case, PUBLISHED, Plan, Quoted, Results, Used};
    let plan = Plan { folders: vec![std::env::temp_dir()], block_bytes: 1 << 20, ..Plan::default() };
    let folders = plan.folders().expect("a folder");
    let huge = |case: &Case| {
        // nothing in no time, and much in long
        let s = if case.nodes == 1 { 0.0 } else { case.count as f64 * 1e-3 };
        Ok(Used { wall_s: s * 1e6, node_s: s * 1e5, io_s: s * 1e3 })
    };
    let mut tested = plan.measure(&folders, &mut huge.clone(), || ()).expect("measured");
    tested[0].path = HOSTILE.into();
    let table = colony_view::io_scaling::results(&Results {
        schema: Results::SCHEMA.into(),
        version: "1".into(),
        command: HOSTILE.into(),
        started_unix_s: 0,
        took_s: 1.0,
        plan,
        node: node(),
        cpus: 1024,
        published: PUBLISHED.map(Quoted::from).to_vec(),
        folders: tested,
    });
    check(&table);
    assert!(table.contains("I/O process") && table.contains("2048"), "{table}");
}
