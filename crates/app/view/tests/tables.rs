// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every table of results that are as wide as they get: at most 80 columns, and no name from elsewhere can draw
//! on the terminal.

use colony_client::AgentStats;
use colony_client::Backend;
use colony_client::{CpuTimes, ExtStats, Waited};
use colony_doctor::{Finding, Level, Subject, Touches};
use colony_inject::leibniz::{Amount, CpuNoise, LeibnizPlan, LeibnizReport};
use colony_inject::noise_table::{NoiseRow, NoiseTable, TablePlan};
use colony_inject::report::{CpuInjection, VictimView};
use colony_inject::{
    CpuMap, DetourPlan, DetourReport, Injection, Intervals, Phase, Quantiles, ReplayPlan, ReplayReport,
    Target,
};
use colony_model::plan::{Boot, Sizes, Transport, plan};
use colony_model::{Block, Machine, PsetSize, SecurityKey, Site};
use colony_node::class::Class;
use colony_node::cpu::CpuSet;
use colony_node::privilege::Privileges;
use colony_node::record::NodeRecord;
use colony_pages::{
    Counted, Faults, How, Mode, Moved, PagePolicy, PagesReport, Sample, Segment, SegmentBytes, Support,
};
use colony_project::changes::{Added, Alone, AtScale};
use colony_project::choose::{Answer, Choice, Scale, Throughput};
use colony_sched::proof::{Deferred, Proof, ProofSource, WindowTimes};
use colony_sched::run::{Ending, RunReport};
use colony_sched::spare::{Arrivals, Partition, SettingChange, SpareReport, Staying};
use colony_sim::spec::Scenario;
use colony_stats::{Bucket, Distribution};
use colony_study::Params;
use colony_study::advice::{Advice, Cost, Costed, Noise, Step};
use colony_study::card::{Card, SourceShare};
use colony_study::das_boot::{self, Plan};
use colony_study::neighbours::{Load, Neighbours, Share};
use colony_study::results::{Cell, Results, SchedulerKind, Split};
use colony_study::seeds::{self, Context};
use colony_study::spare_here::SpareHere;
use colony_time::{DutyCycle, Windows};
use colony_timeline::analysis::summary::Summary as RunSummary;
use colony_timeline::{Names, Observed, Timeline, sample};
use colony_trace::diff::Diff;
use colony_trace::summary::Summary;
use colony_trace::{Detour, Source, Trace, TraceMeta, periodic};

/// A name a thread or a host could have.
const HOSTILE: &str =
    "\u{1b}[2Jevil\nname that is far longer than any column of any table could ever be wide";
const WARNING: &str = "this is a warning of more than eighty characters, as they are when they say what was \
                       found, why that matters and what to do about it";
/// An hour.
const LONG_NS: u64 = 3_599_999_999_999;
const MANY: u64 = 987_654_321;

fn check(table: &str) {
    assert!(table.lines().count() > 1, "{table}");
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}\n{table}", line.chars().count());
    }
    // the rule is as wide as the header above it and the row below
    let lines: Vec<&str> = table.lines().collect();
    for three in lines.windows(3).filter(|l| l[1].starts_with("──")) {
        let [above, rule, below] = [three[0], three[1], three[2]].map(|l| l.trim_end().chars().count());
        assert!(rule >= above && rule >= below, "{rule} columns of rule\n{table}");
    }
    assert!(!table.contains('\u{1b}') && !table.contains("evil\nname"), "{table}");
}

fn node() -> NodeRecord {
    let long = || HOSTILE.to_owned();
    NodeRecord { host: long(), cpu_model: long(), kernel: long(), ..NodeRecord::now() }
}

fn all_cpus() -> CpuSet {
    (0..256).step_by(2).collect()
}

fn windows() -> Windows {
    Windows::new(100_000_000, DutyCycle::Ppm(953_125), 0).expect("possible")
}

fn quantiles() -> Quantiles {
    Quantiles { count: MANY, min: 1, p50: 123_456, p99: 987_654_321, max: LONG_NS, mean: 1e9 }
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
fn a_run() {
    let times = WindowTimes {
        observed_ns: LONG_NS,
        job_ns: LONG_NS - 1,
        stolen_ns: 123_456_789,
        contended_ns: LONG_NS - 2,
        waking_ns: 999_999,
        filled_ns: 0,
        idle_ns: 0,
        interrupts_ns: 123_456_789_012,
    };
    let thread = |i: u64| Deferred {
        comm: format!("{i}{HOSTILE}"),
        favored_ns: LONG_NS,
        regular_ns: LONG_NS,
        times: MANY,
    };
    let buckets = (4..40).map(|i| Bucket { up_to_ns: 1 << i, count: MANY >> (i % 30) }).collect();
    let lateness = Distribution {
        count: MANY,
        p50_ns: 123_456,
        p99_ns: LONG_NS,
        max_ns: LONG_NS,
        buckets,
        ..Default::default()
    };
    let agent = AgentStats {
        edges: MANY,
        missed: MANY,
        lateness,
        switches: MANY,
        tasks: MANY,
        cpu_ns: LONG_NS,
        wall_ns: LONG_NS,
        ..AgentStats::default()
    };
    let waited =
        |i: u64| Waited { comm: format!("{i}{HOSTILE}"), times: MANY, total_ns: LONG_NS, max_ns: LONG_NS };
    let times_of_cpu =
        CpuTimes { job_ns: LONG_NS, filled_ns: LONG_NS, exempt_ns: LONG_NS, ..CpuTimes::default() };
    let sched_ext = ExtStats {
        favored: times_of_cpu,
        edges: MANY,
        missed: MANY,
        lateness: agent.lateness.clone(),
        favored_windows: MANY,
        windows_hit: MANY,
        worst_window_ns: LONG_NS,
        ticks_favored: MANY,
        ticks_regular: MANY,
        deferred: (0..30).map(waited).collect(),
        ..ExtStats::default()
    };
    let report = |source, agent| RunReport {
        schema: "colony.run/1".into(),
        command: vec!["true".into()],
        windows: windows(),
        backend: Backend::Agent,
        cpus: all_cpus(),
        ending: Ending::Exited(0),
        wall_ns: LONG_NS,
        job_cpu_ns: LONG_NS,
        proof: Proof {
            source,
            favored: times,
            regular: times,
            threads: (0..30).map(thread).collect(),
            notes: vec![WARNING.into()],
        },
        agent,
        sched_ext: Some(sched_ext.clone()),
        spare: Some(spare()),
        pages: Some(pages()),
        left_running: (4_000_000..4_000_030).collect(),
        warnings: vec![WARNING.into(), HOSTILE.into()],
    };
    check(&colony_view::run::render(&report(ProofSource::Bpf, Some(agent))));
    let text = colony_view::run::render(&report(ProofSource::Schedstat, None));
    check(&text);
    assert!(text.contains("schedstat"));
}

fn spare() -> SpareReport {
    let row = |i: usize| Arrivals {
        name: format!("{i} {HOSTILE}"),
        before_per_s: 123_456_789.0,
        count: MANY,
        per_s: 123_456_789.0,
    };
    let setting = |refused: Option<&str>| SettingChange {
        rule: "irq-movable".into(),
        setting: HOSTILE.into(),
        refused: refused.map(str::to_owned),
    };
    SpareReport {
        spare: all_cpus(),
        partition: Partition::Balanced,
        fallbacks: vec![WARNING.into(), HOSTILE.into()],
        settings: vec![setting(None), setting(Some(HOSTILE))],
        left: vec![("nohz-full".into(), HOSTILE.into())],
        moved: usize::MAX,
        brought_back: MANY,
        staying: (0..30)
            .map(|i| Staying { name: format!("{i}{HOSTILE}"), count: i, reason: HOSTILE.into() })
            .collect(),
        interrupts: (0..30).map(row).collect(),
        not_undone: vec![HOSTILE.into()],
    }
}

/// The largest values, and every text that is printed.
fn pages() -> PagesReport {
    let segment = |segment| SegmentBytes { segment, resident: MANY, huge: MANY / 2, medium: Some(MANY / 4) };
    PagesReport {
        policy: PagePolicy::Huge,
        node: Support {
            huge_bytes: 2 << 20,
            all: Some(Mode::Madvise),
            huge: Some(Mode::Inherit),
            medium: None,
        },
        moved: vec![Moved { segment: Segment::Text, start: 1 << 46, bytes: MANY, how: How::Copied }],
        sample: Some(Sample {
            at_ns: LONG_NS,
            processes: 4096,
            segments: Segment::ALL.map(segment).to_vec(),
        }),
        faults: Faults { minor: MANY, major: MANY },
        dtlb_misses: Counted::NotCounted(WARNING.into()),
        dtlb_event: None,
        perf_map: Some("/tmp/perf-4194304.map".into()),
        warnings: vec![WARNING.into()],
    }
}

fn injection() -> Injection {
    let cpu = |cpu| CpuInjection {
        cpu,
        made: MANY,
        missed: MANY,
        cut: MANY,
        duty_asked: 0.123_456,
        duty: 0.123_456,
        cpu_share: 0.123_456,
        spin_error_ns: quantiles(),
        late_ns: quantiles(),
    };
    let victim = |cpu| VictimView {
        cpu,
        observed_s: 3600.0,
        had_cpu: 0.5,
        made: MANY,
        seen: MANY,
        buried: MANY,
        asked_per_s: 49_999.9,
        seen_per_s: 49_999.9,
        length_ns: quantiles(),
        interval_ns: quantiles(),
        foreign: MANY,
    };
    Injection {
        class: Class::Fifo(98),
        not_real_time: Some(WARNING.into()),
        start_ns: 0,
        elapsed_s: 86_400.0,
        stopped: false,
        cpus: vec![cpu(0), cpu(4095)],
        check: vec![victim(0), victim(4095)],
        warnings: vec![WARNING.into()],
        node: node(),
    }
}

#[test]
fn injected_detours_and_a_replayed_trace() {
    let plan = DetourPlan {
        length_ns: 123_456_789,
        interval_ns: LONG_NS,
        intervals: Intervals::Exponential,
        phase: Phase::Aligned,
        seed: u64::MAX,
        node: u32::MAX,
        on: Target::default(),
        duration_ns: LONG_NS,
        check_ns: 0,
    };
    let schema = String::new();
    let text = colony_view::injection::detours(&DetourReport {
        schema: schema.clone(),
        plan,
        injection: injection(),
    });
    check(&text);
    assert!(text.contains("asked for: 123 ms every 3600 s, phase aligned"), "{text}");
    let plan = ReplayPlan {
        node: 0,
        map: CpuMap::Same,
        speed: 1.0,
        again: false,
        on: Target::default(),
        duration_ns: None,
        check_ns: 0,
    };
    check(&colony_view::injection::replay(&ReplayReport {
        schema,
        plan,
        trace_s: 86_400.0,
        cpus: (0..64).map(|c| (c, usize::from(c) + 1000)).collect(),
        left_out: Vec::new(),
        injection: injection(),
    }));
}

#[test]
fn the_noise_daemon_and_its_table() {
    let cpu = CpuNoise {
        cpu: 4095,
        calculations: MANY,
        terms: u64::MAX,
        mean_calculation_ns: 1e12,
        mean_elapsed_ns: 1e12,
        noise: 0.951_234,
        noise_long_run: 0.951_234,
        cpu_time_ns: LONG_NS,
        cpu_share: 0.951_234,
    };
    check(&colony_view::injection::leibniz(&LeibnizReport {
        schema: String::new(),
        plan: LeibnizPlan { amount: Amount::Noise(0.95), ..LeibnizPlan::default() },
        terms_per_s: 1.234e9,
        max_terms: 1 << 48,
        noise_asked: 0.95,
        elapsed_s: 86_400.0,
        stopped: false,
        cpus: vec![cpu],
        warnings: vec![WARNING.into()],
        node: node(),
    }));
    let row = NoiseRow {
        max_terms: 1 << 48,
        bgl_max_terms: 1 << 48,
        predicted: 0.351_234,
        measured: 0.351_234,
        long_run: 0.351_234,
        calculations: MANY,
        published: Some("approximately 21%".into()),
    };
    check(&colony_view::injection::noise_table(&NoiseTable {
        schema: String::new(),
        plan: TablePlan::default(),
        cpu: 4095,
        terms_per_s: 1.234e9,
        rows: vec![row],
        node: node(),
    }));
}

/// Ten seconds of two CPUs: a tick, and a thread with a hostile name.
fn trace(detour_ns: u64) -> Trace {
    let detours = (0..20_000u64).map(|i| Detour {
        node: 0,
        cpu: (i % 2) as u16,
        start_ns: (i / 2 * 1_000_000) as i64,
        duration_ns: detour_ns + i % 7 * 100,
        source: (i % 5 == 0).into(),
    });
    Trace {
        meta: TraceMeta {
            observed_s: 10.0,
            threshold_ns: 100,
            cpus: (0..2).collect(),
            node: Some(node()),
            ..TraceMeta::default()
        },
        sources: vec![Source::Irq("local_timer".into()), Source::Thread(HOSTILE.into())],
        detours: detours.collect(),
    }
}

#[test]
fn a_trace_and_two_of_them_compared() {
    let t = trace(1500);
    let findings = periodic::of_trace(&t);
    let text = colony_view::trace::summary(&t.meta, &Summary::of(&t, Some(windows())), &findings);
    check(&text);
    assert!(text.contains("favored windows:") && text.contains("periodic: "), "{text}");
    let mut other = trace(900_000);
    other.meta.threshold_ns = 5000;
    let diff = Diff::of(&t, &other).expect("comparable");
    check(&colony_view::trace::diff(&diff));
}

#[test]
fn time_lines_of_few_and_many_pes() {
    let ([a, b], rows) = sample::stencil();
    let t = a.merge(b).expect("one run");
    let mut names: Names = t.names().clone();
    names.entries.iter_mut().for_each(|e| e.name = HOSTILE.into());
    let many = (0..1_000_000).step_by(99_991).map(|pe| {
        let mut track = t.tracks()[pe as usize % 4].clone();
        track.pe = pe;
        track.dropped = MANY;
        track
    });
    let mut noise = colony_timeline::Noise::default();
    let (begin_ns, end_ns) = t.span();
    let hostile = rows.iter().map(|&(cpu, from, to, _)| (cpu, from, to, HOSTILE));
    noise.add(sample::HOST, Observed { begin_ns, end_ns }, hostile);
    for tracks in [t.tracks().to_vec(), many.collect(), Vec::new()] {
        let mut meta = t.meta().clone();
        meta.program = HOSTILE.into();
        let run = Timeline::new(meta, t.processes().to_vec(), names.clone(), tracks).expect("a run");
        for noise in [None, Some(&noise)] {
            check(&colony_view::timeline::summary(&RunSummary::of(&run, noise, 10, 20)));
        }
    }
}

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
    let added = Added { share: 12_345.678, ci95: Some(2_345.678) };
    let finding = Finding {
        id: format!("daemon:{HOSTILE}"),
        subject: Subject::Daemons,
        level: Level::High,
        title: HOSTILE.into(),
        evidence: Vec::new(),
        remedies: Vec::new(),
        advice: None,
        touches: Touches::default(),
    };
    let cost = Cost::Simulated { added, at_most: true, sources: vec![HOSTILE.into()] };
    let step = Step { finding: finding.id.clone(), left: added };
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
    let doctor = Advice {
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
    let throughput = vec![Some(Throughput { share: 0.999_99, ci95: None }), None, None];
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
    }
}

#[test]
fn spare_cores_and_windows() {
    let text = colony_view::choose::choices(&Scenario::default(), &answer());
    check(&text);
    assert!(text.contains("1,048,576 nodes") && text.contains("* 100.00 ± ?"), "{text}");
    assert!(text.contains("not possible") && text.contains("8 spare cores, windows 97.25 %"), "{text}");
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
fn the_layout_and_the_plan_of_the_largest_machine() {
    let machine = Machine::new("64x64x64".parse().expect("a shape")).expect("a machine");
    let block = Block::whole(machine);
    let partition =
        colony_model::Partition::new(machine, &"P".repeat(31), block, PsetSize::ALL[0]).expect("a partition");
    let site = Site { export: format!("/{}", "x".repeat(62)), prefix: 8, ..Site::default() };
    let last = partition.compute_personality(machine.nodes() - 1, u64::MAX);
    check(&colony_view::layout::layout(&partition, &site, &last));
    let pset = partition.psets().count() - 1;
    let io = partition.io_personality(pset, u64::MAX, &site, SecurityKey::default()).expect("a personality");
    let text = colony_view::layout::layout(&partition, &site, &io);
    check(&text);
    assert!(text.contains("… and 32,752 more psets") && text.contains("not shown"), "{text}");
    let sizes = Sizes { kernel: u64::MAX, io_image: u64::MAX, message: u64::MAX, node_state: u64::MAX };
    let fanout = std::num::NonZeroU32::MAX;
    let boot = Boot { machine, pset: PsetSize::ALL[0], fanout, sizes, transport: Transport::default() };
    check(&colony_view::plan::plan(&plan(&boot).expect("a plan")));
}
