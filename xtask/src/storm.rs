// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x storm`: processes that are killed at random times, and fuzzers with many inputs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use guests::{Profile, target_folder};

use crate::{cargo, check, statics};

/// Kills without an argument.
const KILLS: u32 = 1000;

/// Kills of ranks for each job of the storm on a machine.
const KILLS_A_JOB: u32 = 20;

/// Inputs that each fuzzer gets beside its seeds.
const INPUTS: u32 = 100_000;

/// Kills and seed, as given on the command line.
///
/// # Errors
/// A word that is no number, or too many words.
fn numbers(words: &[&str]) -> Result<(u32, u64)> {
    let [kills, seed] = match words {
        [] => [None, None],
        [kills] => [Some(*kills), None],
        [kills, seed] => [Some(*kills), Some(*seed)],
        _ => bail!("usage: ./x storm [KILLS [SEED]]"),
    };
    let kills = kills
        .map_or(Ok(KILLS), |word| word.parse().with_context(|| format!("{word} is no number of kills")))?;
    let seed = seed.map_or(Ok(1), |word| word.parse().with_context(|| format!("{word} is no seed")))?;
    Ok((kills, seed))
}

/// Runs the storms: programs and commands that change the node, ranks over sockets and over MPI, a machine, fuzzers. One after another, so
/// that they do not wait for each other.
///
/// # Errors
/// A build or a storm that fails.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (kills, seed) = numbers(words)?;
    let root = guests::root();
    let in_checkout = |words: &[&str]| {
        let mut cargo = cargo();
        cargo.args(words).current_dir(&root).env("STORM_SEED", seed.to_string());
        cargo
    };
    for test in ["harm::whatever_is_killed", "harm::kinds_that_change"] {
        let mut storm = in_checkout(&["test", "--locked", "-p", "colony-sched", "--test", "sched", "--"]);
        check(storm.args(["--nocapture", test]).env("COLONY_KILLS", kills.to_string()))?;
    }
    let of_commands = ["-p", "colony", "-p", "colonyd"];
    check(in_checkout(&["build", "--locked"]).args(of_commands))?;
    let mut storm = in_checkout(&["test", "--locked", "-p", "colony", "--test", "e2e", "--"]);
    storm.args(["--nocapture", "storm::commands_that_change_the_node"]);
    check(storm.env("COLONY_KILLS", kills.to_string()))?;
    let runtime = ["--locked", "--release", "-p", "colony-runtime", "--features", "mpi"];
    check(in_checkout(&["build"]).args(runtime).arg("--examples"))?;
    for network in ["storm::a_long_storm", "storm::a_long_storm_over_mpi"] {
        let mut storm = in_checkout(&["test"]);
        storm.args(runtime).args(["--test", "runtime", "--", "--ignored", "--exact", "--nocapture", network]);
        check(storm.env("STORM_KILLS", kills.to_string()))?;
    }
    statics::build(&target_folder().join("static"), Profile::Release, &[])?;
    check(&mut in_checkout(&[
        "build",
        "--locked",
        "-p",
        "colony",
        "-p",
        "colony-ciod",
        "-p",
        "colony-control",
    ]))?;
    let mut storm =
        in_checkout(&["test", "--locked", "-p", "colony", "--test", "cnk", "--", "--ignored", "--exact"]);
    storm.args(["--nocapture", "storm::a_long_storm_on_a_machine"]);
    check(storm.env("STORM_JOBS", (kills / KILLS_A_JOB).to_string()))?;
    fuzz(&root, seed)
}

/// Gives each fuzzer random inputs.
fn fuzz(root: &Path, seed: u64) -> Result<()> {
    let mut build = cargo();
    check(build.args(["build", "--locked", "-p", "colony-fuzz", "--bins"]).current_dir(root))?;
    let seeds = root.join("fuzz/seeds");
    for folder in fs::read_dir(&seeds).with_context(|| format!("cannot read {}", seeds.display()))? {
        let folder = folder.with_context(|| format!("cannot read {}", seeds.display()))?.path();
        let name = folder.file_name().unwrap_or_default();
        let mut fuzzer = Command::new(target_folder().join("debug").join(name));
        fuzzer.arg(format!("-runs={INPUTS}")).arg(format!("-seed={seed}")).arg("-verbosity=0");
        fuzzer.arg(format!("-artifact_prefix={}/", target_folder().display())).arg(&folder);
        check(fuzzer.current_dir(root))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_and_seed_are_optional_numbers() {
        assert_eq!(numbers(&[]).expect("none"), (1000, 1));
        assert_eq!(numbers(&["40"]).expect("kills"), (40, 1));
        assert_eq!(numbers(&["40", "7"]).expect("both"), (40, 7));
        assert!(numbers(&["many"]).is_err() && numbers(&["1", "2", "3"]).is_err());
    }
}
