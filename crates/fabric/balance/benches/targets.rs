// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load balancer's targets, measured here: `./x bench balance [1m]`. With `1m`, the tree is tried on a million PEs too.
//!
//! Times are CPU seconds of one thread, best of three. Extra memory is the most that a strategy has allocated at one
//! time beyond the database, its result included.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use colony_balance::database::Database;
use colony_balance::generate::{Generator, Shape};
use colony_balance::quality::Quality;
use colony_balance::strategy::{Hybrid, Strategies};
use colony_balance::topology::Topology;

type Failed = Box<dyn std::error::Error>;

/// Counts allocated bytes, and the most at one time.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promises about the layout are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the pointer is from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OBJECTS_A_PE: u32 = 64;

/// Targets at 16,384 PEs: strategy, imbalance, share moved in per cent, CPU seconds, extra megabytes, database megabytes.
type Target = (&'static str, f64, f64, f64, f64, f64);

const NONE: f64 = f64::INFINITY;
const TARGETS: [Target; 6] = [
    ("greedy", NONE, NONE, NONE, NONE, NONE),
    ("greedy-refine", 1.002, 6.0, 0.35, NONE, NONE),
    ("refine", NONE, NONE, 0.2, 10.0, NONE),
    ("hybrid", 1.01, NONE, NONE, NONE, 2.0),
    ("gossip", NONE, NONE, NONE, NONE, NONE),
    ("topology", NONE, NONE, NONE, NONE, NONE),
];

/// CPU time of this process's first thread, in seconds.
fn cpu_s() -> Result<f64, Failed> {
    // the kernel counts a running thread's time at its ticks, and when it gives way
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(stat.split(' ').next().unwrap_or("0").parse::<f64>()? / 1e9)
}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let largest = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 1 << 16,
        ["1m"] => 1 << 20,
        _ => return Err("give nothing, or 1m".into()),
    };
    strategies()?;
    tree(largest)
}

fn strategies() -> Result<(), Failed> {
    let database = Generator::new(Shape::lb_test(1 << 14, (1 << 14) * OBJECTS_A_PE))?.database()?;
    let before = Quality::of(&database, database.placement(), &Topology::Flat)?;
    println!("16,384 PEs, 1,048,576 objects, max/avg {:.2}\n", before.imbalance);
    println!(
        "| strategy | max/avg | moved | CPU | extra memory | database on one PE | targets | |\n|---|---|---|---|---|---|---|---|"
    );
    for target in TARGETS {
        strategy(&database, target)?;
    }
    Ok(())
}

fn strategy(database: &Database, target: Target) -> Result<(), Failed> {
    let (name, ..) = target;
    let strategy = Strategies::parse(name)?;
    let (mut seconds, mut extra) = (f64::INFINITY, 0);
    let mut outcome = None;
    for _ in 0..3 {
        drop(outcome.take());
        let before = NOW.load(Relaxed);
        MOST.store(before, Relaxed);
        let begin = cpu_s()?;
        outcome = Some(strategy.assign(database, &Topology::Flat)?);
        seconds = seconds.min(cpu_s()? - begin);
        extra = MOST.load(Relaxed) - before;
    }
    let outcome = outcome.ok_or("no run")?;
    let quality = Quality::of(database, &outcome.placement, &Topology::Flat)?;
    let moved = 100.0 * quality.moved_objects as f64 / database.objects() as f64;
    let (extra_mb, held_mb) = (extra as f64 / 1e6, outcome.effort.database_bytes_one_pe as f64 / 1e6);
    let found = [quality.imbalance, moved, seconds, extra_mb, held_mb];
    let asked = [target.1, target.2, target.3, target.4, target.5];
    let names = ["max/avg", "% moved", "s", "MB extra", "MB on one PE"];
    let texts: Vec<String> =
        asked.iter().zip(names).filter(|(a, _)| a.is_finite()).map(|(a, n)| format!("{a} {n}")).collect();
    let verdict = match (texts.is_empty(), found.iter().zip(asked).all(|(f, a)| *f <= a)) {
        (true, _) => "",
        (false, true) => "met",
        (false, false) => "missed",
    };
    println!(
        "| {name} | {:.5} | {moved:.2} % | {seconds:.3} s | {extra_mb:.1} MB | {held_mb:.2} MB | {} | {verdict} |",
        quality.imbalance,
        texts.join(", ")
    );
    Ok(())
}

/// The tree on more and more PEs, from a generator: only one domain is in memory at a time.
fn tree(largest: u32) -> Result<(), Failed> {
    println!(
        "\n| PEs | tree: on one PE | root alone | max/avg | CPU a domain | central | report: memory, time |"
    );
    println!("|---|---|---|---|---|---|---|");
    let report = |pes| match pes {
        0x1000 => "6.8 MB",
        0x2000 => "22.57 MB, 14.70 s",
        0x4000 => "22.63 MB, 23.16 s",
        _ => "",
    };
    for pes in [1u32 << 12, 1 << 13, 1 << 14, 1 << 16, 1 << 20].into_iter().filter(|&pes| pes <= largest) {
        let objects = pes * OBJECTS_A_PE;
        let generator = Generator::new(Shape::lb_test(pes, objects))?;
        let begin = cpu_s()?;
        let tree = Hybrid::default().balance_generated(&generator);
        let seconds = (cpu_s()? - begin) / f64::from(tree.domains);
        let central = Database::bytes_for(pes.into(), objects.into(), 4 * u64::from(objects));
        println!(
            "| {pes} | {:.2} MB | {:.1} kB | {:.4} | {seconds:.3} s | {:.0} MB | {} |",
            tree.database_bytes_one_pe as f64 / 1e6,
            tree.root_bytes as f64 / 1e3,
            tree.imbalance,
            central as f64 / 1e6,
            report(pes)
        );
    }
    Ok(())
}
