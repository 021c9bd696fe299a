// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony lb`: load balancing strategies, tried on load files.

use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use colony_balance::database::Database;
use colony_balance::file;
use colony_balance::generate::{Generator, Pattern, Shape};
use colony_balance::quality::Quality;
use colony_balance::strategy::{Strategies, Strategy};
use colony_balance::topology::Topology;
use colony_view::lb as view;
use colony_view::progress::Progress;
use serde::Serialize;

use crate::exit::wrong;
use crate::words::some_of;

/// Compare load balancing strategies on recorded or generated loads
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Replay(Replay),
    Generate(Generate),
}

/// Run strategies on a load database and compare their placements
///
/// Reads files of schema colony.loads/1, or the files of all ranks of DARMA/vt (LBDatafile).
#[derive(clap::Args)]
#[command(after_help = "Strategies: greedy, greedy-refine, refine, hybrid, gossip, topology, rotate, random
Options of a strategy follow its name: refine:tolerance=1.01, hybrid:domain=256
Examples:
  colony lb replay loads.json --strategy all
  colony lb replay vt-data/ --phase 3 --strategy greedy-refine,hybrid
  colony lb replay loads.json --strategy topology --topology torus:16x32x32 --output new.json")]
struct Replay {
    /// Load files, or folders with the files of all ranks
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Strategies, with options; `all` stands for every one
    #[arg(long, value_name = "NAMES", default_value = "greedy-refine", value_delimiter = ',')]
    strategy: Vec<String>,
    /// PEs to balance over, at least as many as the files have [default: as many]
    #[arg(long, value_name = "NUMBER")]
    pes: Option<u32>,
    /// Phase to take from files of vt [default: the last]
    #[arg(long, value_name = "NUMBER")]
    phase: Option<u64>,
    /// Network for hop-bytes: flat, torus:16x32x32, fattree:32x16
    #[arg(long, value_name = "NETWORK", default_value = "flat")]
    topology: Topology,
    /// Seed of strategies that draw random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
    /// Write the new PE of each object to this file (one strategy)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a page with a plot to this file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Make a load file of a seed
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony lb generate --pes 64 --objects 4096 -o loads.json
  colony lb generate --pes 16384 --objects 1048576 --pattern mesh2d --imbalance 1.86 -o loads.json")]
struct Generate {
    /// Number of PEs
    #[arg(long, value_name = "NUMBER")]
    pes: u32,
    /// Number of objects
    #[arg(long, value_name = "NUMBER")]
    objects: u32,
    /// Seed of the random loads
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Objects that exchange messages: mesh2d, random
    #[arg(long, value_name = "PATTERN", default_value = "mesh2d")]
    pattern: Pattern,
    /// Load of the fullest PE over the average
    #[arg(long, value_name = "RATIO", default_value_t = 1.86)]
    imbalance: f64,
    /// Bytes of each object's state
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 10)]
    state_bytes: u64,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// New PEs of objects, as `--output` writes them.
#[derive(Serialize)]
struct Assignment<'a> {
    schema: &'static str,
    strategy: &'a str,
    pes: usize,
    /// Id and PE of each object.
    objects: Vec<(u64, u32)>,
}

/// The largest load file, in bytes.
const MAX_BYTES: u64 = 8 << 30;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Replay(a) => replay(&a)?,
        Action::Generate(a) => generate(&a)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn replay(a: &Replay) -> anyhow::Result<()> {
    let strategies = strategies(&a.strategy, a.seed)?;
    if a.output.is_some() && strategies.len() != 1 {
        return Err(wrong("--output writes the placement of one strategy; name one with --strategy"));
    }
    a.output.iter().chain(&a.plot).try_for_each(|path| super::can_write(path))?;
    let (database, skipped_edges) = read(a)?;
    let topology = &a.topology;
    topology.check(database.pes().len())?;
    let before = Quality::of(&database, database.placement(), topology)?;
    let bar = Progress::steps_of_work("strategies", strategies.len() as u64);
    let mut rows = Vec::new();
    for (text, strategy) in &strategies {
        let begin = cpu_s()?;
        let outcome = strategy.assign(&database, topology)?;
        let row = view::Row {
            strategy: text.clone(),
            cpu_s: cpu_s()? - begin,
            quality: Quality::of(&database, &outcome.placement, topology)?,
            database_bytes_one_pe: outcome.effort.database_bytes_one_pe,
            messages: outcome.effort.messages,
        };
        rows.push(row);
        bar.step();
        if let Some(path) = &a.output {
            let objects = database.ids().iter().copied().zip(outcome.placement).collect();
            let pes = database.pes().len();
            super::keep(path, &Assignment { schema: "colony.assignment/1", strategy: text, pes, objects })?;
        }
    }
    let (pes, objects, edges) = (database.pes().len(), database.objects(), database.edges().len());
    let topology = topology.to_string();
    let replayed = view::Replay {
        schema: view::Replay::SCHEMA,
        pes,
        objects,
        edges,
        skipped_edges,
        topology,
        before,
        rows,
    };
    if let Some(path) = &a.plot {
        colony_node::file::write_atomically::<std::io::Error>(path, |w| {
            w.write_all(view::page(&replayed).as_bytes())
        })
        .with_context(|| format!("writing {}", path.display()))?;
    }
    super::print(a.json, &replayed, view::table)?;
    for written in a.output.iter().chain(&a.plot) {
        note!("written: {}", written.display());
    }
    Ok(())
}

/// The strategies of their names; `all` is every one.
fn strategies(names: &[String], seed: u64) -> anyhow::Result<Vec<(String, Box<dyn Strategy>)>> {
    let all = Strategies::names().map(ToOwned::to_owned).collect::<Vec<_>>();
    let names = names.iter().flat_map(|n| if n == "all" { all.clone() } else { vec![n.clone()] });
    names
        .map(|text| {
            let draws = ["random", "gossip"].contains(&text.split(':').next().unwrap_or_default());
            let seeded =
                if draws && !text.contains(":seed=") { format!("{text}:seed={seed}") } else { text.clone() };
            Ok((text, Strategies::parse(&seeded)?))
        })
        .collect()
}

/// The database of all files, and the edges left out.
fn read(a: &Replay) -> anyhow::Result<(Database, u64)> {
    let mut files = Vec::new();
    for path in &a.files {
        if path.is_dir() {
            files.extend(of_folder(path)?);
        } else {
            files.push(path.clone());
        }
    }
    let bar = Progress::steps_of_work("files", files.len() as u64);
    let mut contents = Vec::new();
    for path in files {
        let name = path.display().to_string();
        let content = content(&path).with_context(|| format!("reading {name}"))?;
        anyhow::ensure!(
            content.len() as u64 <= MAX_BYTES,
            "{name} has more than {MAX_BYTES} bytes, and a load file has no more"
        );
        contents.push((name, content));
        bar.step();
    }
    drop(bar);
    let file::Read { mut database, skipped_edges, missing_ranks } =
        file::read(&contents, a.phase).map_err(|(name, e)| anyhow::Error::from(e).context(name))?;
    if let Some(pes) = a.pes {
        let there = database.pes().len();
        if (pes as usize) < there {
            return Err(wrong(format!(
                "--pes is {pes}, and the files have objects on {there} PEs; give at least {there}"
            )));
        }
        database.grow(pes)?;
    }
    match missing_ranks[..] {
        [] => {}
        [rank] => note!("rank {rank} has no file: its PE is taken for idle"),
        _ => note!(
            "{} of {} ranks have no file ({}): their PEs are taken for idle",
            missing_ranks.len(),
            database.pes().len(),
            some_of(&missing_ranks)
        ),
    }
    if skipped_edges > 0 {
        note!(
            "{skipped_edges} communications were left out: an end of theirs is a node, or no file has the object"
        );
    }
    Ok((database, skipped_edges))
}

/// The content of a load file, which may be compressed with gzip or zstd; one byte more than [`MAX_BYTES`] if it has more.
fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    colony_trace::convert::unpacked(File::open(path)?)?.0.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// The JSON files of a folder, in the order of their names. Those with a compression that is not read are in it, so that they are
/// refused by name.
fn of_folder(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = folder.display();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {name}"))? {
        let path = entry.with_context(|| format!("reading {name}"))?.path();
        let named = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if [".json", ".json.gz", ".json.zst", ".json.br"].iter().any(|end| named.ends_with(end)) {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(wrong(format!("{name} has no file with a name such as data.0.json")));
    }
    files.sort_unstable();
    Ok(files)
}

/// CPU time of this thread, in seconds.
fn cpu_s() -> anyhow::Result<f64> {
    let time = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now().context("reading the thread's CPU time")?;
    Ok(std::time::Duration::from(time).as_secs_f64())
}

fn generate(a: &Generate) -> anyhow::Result<()> {
    let Generate { pes, objects, seed, pattern, imbalance, state_bytes, .. } = *a;
    super::can_write(&a.output)?;
    let generator = Generator::new(Shape { pes, objects, pattern, imbalance, state_bytes, seed })?;
    const BATCH: u32 = 1 << 12;
    let bar = Progress::steps_of_work("objects (thousands)", u64::from(objects / BATCH) * 4);
    colony_node::file::write_atomically::<std::io::Error>(&a.output, |w| {
        file::write_generated(&generator, w, |number| {
            if number % BATCH == BATCH - 1 {
                bar.steps_more(4);
            }
        })
    })
    .with_context(|| format!("writing {}", a.output.display()))?;
    drop(bar);
    note!("written: {}", a.output.display());
    Ok(())
}
