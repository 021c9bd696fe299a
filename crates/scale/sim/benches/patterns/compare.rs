// SPDX-License-Identifier: MIT OR Apache-2.0
//! Beside the program LogGOPSim: the same schedules under its order of service.

use std::path::Path;
use std::process::Command;

use colony_sim::event::{EventError, Rules, run};
use colony_sim::goal::{self, Schedule};
use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::rng::Key;

use crate::Failed;
use crate::patterns::{PATTERNS, Random, SIZES, pattern, random};

/// Most ranks of which LogGOPSim prints each; of more it prints the last end.
const BY_RANK: u32 = 16;

/// Runs patterns and random schedules here and there, and prints which differ.
pub(crate) fn table(directory: &Path) -> Result<(), Failed> {
    println!("\n| schedules | compared | equal | both wait for ever | different |\n|---|---|---|---|---|");
    for ranks in [8, BY_RANK, 64] {
        let all = PATTERNS
            .iter()
            .flat_map(|&p| SIZES.map(|bytes| Ok((format!("{p} {bytes} B"), pattern(p, ranks, bytes)?))));
        let compared = if ranks > BY_RANK { "the last rank" } else { "every rank" };
        row(&format!("patterns, {ranks} ranks"), compared, all, directory)?;
    }
    for kind in [Random::Eager, Random::Rendezvous, Random::Cpus] {
        let all = (0..150).map(|seed| Ok((format!("seed {seed}"), random(kind, seed)?)));
        row(&format!("random, {kind:?}"), "every rank", all, directory)?;
    }
    Ok(())
}

fn row(
    name: &str,
    compared: &str,
    all: impl Iterator<Item = Result<(String, Schedule), Failed>>,
    directory: &Path,
) -> Result<(), Failed> {
    let (mut equal, mut stuck, mut different) = (0, 0, Vec::new());
    for schedule in all {
        let (name, schedule) = schedule?;
        match (ours(&schedule)?, theirs(&schedule, directory)?) {
            (None, None) => stuck += 1,
            (a, b) if a == b => equal += 1,
            _ => different.push(name),
        }
    }
    let shown = if different.is_empty() { "none".into() } else { different.join(", ") };
    println!("| {name} | {compared} | {equal} | {stuck} | {shown} |");
    Ok(())
}

/// The times that LogGOPSim would print, computed here; `None`: ranks wait for ever.
fn ours(schedule: &Schedule) -> Result<Option<Vec<u64>>, Failed> {
    let network = Machine::loggopsim().network(schedule.ranks())?;
    match run(schedule, &network, &Node::quiet(), Rules::LOGGOPSIM, Key::new(1), 0) {
        Ok(outcome) if schedule.ranks() > BY_RANK => Ok(Some(vec![outcome.total_ns()])),
        Ok(outcome) => Ok(Some(outcome.ends_ns)),
        Err(EventError::Deadlock { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn theirs(schedule: &Schedule, directory: &Path) -> Result<Option<Vec<u64>>, Failed> {
    let file = std::env::temp_dir().join(format!("colony-patterns-{}.bin", std::process::id()));
    goal::write_binary(schedule, std::io::BufWriter::new(std::fs::File::create(&file)?))?;
    let output = Command::new(directory.join("LogGOPSim")).arg("-f").arg(&file).output()?;
    std::fs::remove_file(&file)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |text: &str| text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    let times: Vec<u64> = (said.lines())
        .filter(|l| l.starts_with("Host ") || l.starts_with("Maximum finishing time"))
        .filter_map(|l| l.split_once(": ").and_then(|(_, time)| number(time)))
        .collect();
    Ok((!times.is_empty()).then_some(times))
}
