// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every table of results that are as wide as they get: at most 80 columns, and no name from elsewhere can draw
//! on the terminal.

mod doctor;
mod jobs;
mod measurement;
mod noise;
mod study;
mod wakeups;

use colony_model::plan::{Boot, Sizes, Transport, plan};
use colony_model::{Block, Machine, PsetSize, SecurityKey, Site};
use colony_node::cpu::CpuSet;
use colony_node::record::NodeRecord;
use colony_time::{DutyCycle, Windows};
use colony_timeline::analysis::summary::Summary as RunSummary;
use colony_timeline::{Names, Observed, Timeline, sample};

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
