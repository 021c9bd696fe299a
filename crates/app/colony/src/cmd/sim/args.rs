// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `colony sim`.

use std::path::PathBuf;

use colony_sim::spec::Scenario;

use super::flags::Flags;
use super::modes::Given;

/// Simulate what noise costs a program on up to a million nodes and more
///
/// Takes a node's noise (measured or modelled), a scheduler, a machine and a program, and says what the
/// program loses at each node count. A scenario file has all of it; flags change parts of it, or do without.
/// A flag that has no effect is an error.
/// Alone, it runs an example: the noise daemon of the Colony report on Blue Gene/L.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony sim                                     an example, in seconds
  colony sim --print-scenario > mine.toml        the same as a file to change
  colony sim mine.toml
  colony sim --trace node.parquet --nodes 1024,16384 --op allreduce --schedulers preempt,coordinated
  colony sim --noise '16us every 1ms' --op barrier --schedulers none,preempt --machine bgl
  colony sim mine.toml --sweep program.bytes=8,1024 --out results.parquet --resume
  colony sim mine.toml --report mine.html        plots, numbers, and how to make them again
  colony sim --goal app.goal --noise 'leibniz 2%'
  colony sim --fit-machine --out here.toml       this machine's network, from its own benchmarks
  colony sim --what-if node.parquet              which source costs how much, and what would help
  colony sim --what-if node.parquet --choose --cores 64 --work 10ms    how many cores should be spare?")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) given: Given,
    /// The scenario, TOML
    #[arg(value_name = "SCENARIO")]
    pub(super) scenario: Option<PathBuf>,
    /// Say what each source of this trace costs at scale, and what windows or a spare core give back
    #[arg(long, value_name = "TRACE")]
    pub(super) what_if: Option<PathBuf>,
    /// Compare spare cores and coordinated windows for the noise of --what-if: throughput on each node count
    #[arg(long, requires = "what_if")]
    pub(super) choose: bool,
    /// Cores of a node, as many as Linux can have (8192) at most [default: those of the node that the trace is from]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub(super) cores: Option<u32>,
    /// Run this schedule in GOAL, text or binary, instead of a program; its ranks are one a node. Of a folder: the
    /// traces of MPI calls that liballprof wrote there
    #[arg(long, value_name = "FILE")]
    pub(super) goal: Option<PathBuf>,
    /// Fit a machine profile to results of `colony bench --json`; without any, run the benchmarks here on two
    /// ranks, half a minute
    #[arg(long, value_name = "RESULT", num_args = 0..)]
    pub(super) fit_machine: Option<Vec<PathBuf>>,
    /// Instant at which a rank's CPU takes the overhead of a receive [default: program-order]
    #[arg(long, value_enum)]
    pub(super) progress: Option<Progress>,
    /// Order in which a rank's ready operations and messages are served
    #[arg(long, value_enum, default_value_t)]
    pub(super) queue: Queue,
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Write the scenario that these words mean, and run nothing
    #[arg(long)]
    pub(super) print_scenario: bool,
    /// Keep the results, point by point: .json or .parquet (of --fit-machine: the profile, .toml)
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Write a page with plots and all numbers, which opens offline
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Go on where a run that was ended left off
    #[arg(long)]
    pub(super) resume: bool,
    /// Print JSON for programs
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    /// Changes `scenario` to what the flags say, and checks it. A fault that the scenario's file has by itself is told with its
    /// line.
    pub(super) fn apply(&self, scenario: &mut Scenario) -> anyhow::Result<()> {
        let Err(fault) = self.flags.apply(scenario, self.what_if.is_some()) else { return Ok(()) };
        match self.scenario.as_deref().map(Scenario::read) {
            Some(Err(of_file)) => Err(of_file.into()),
            _ => Err(fault),
        }
    }
}

/// Instant at which the overhead of a receive is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Progress {
    /// As the program reaches the receive: a library that works in calls only
    ProgramOrder,
    /// As the message arrives: a progress thread, as LogGOPSim has it
    Asynchronous,
}

/// Order in which several ready operations are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Queue {
    /// The one that has been ready longest, of those whose CPU and interface are free
    #[default]
    FirstReady,
    /// The one that LogGOPSim serves; progress is asynchronous
    Loggopsim,
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::super::modes::{Mode, listed};
    use super::Args;

    fn command() -> clap::Command {
        Args::augment_args(clap::Command::new("sim"))
    }

    #[test]
    fn every_argument_has_one_row_in_the_table_of_modes() {
        let mut in_table = listed();
        in_table.sort_unstable();
        let command = command();
        let mut arguments: Vec<&str> = command.get_arguments().map(|a| a.get_id().as_str()).collect();
        arguments.sort_unstable();
        assert_eq!(in_table, arguments);
    }

    #[test]
    fn the_mode_follows_from_the_words_and_not_from_defaults() {
        let mode = |words: &[&str]| {
            let matches = command().get_matches_from([&["sim"], words].concat());
            <Args as clap::FromArgMatches>::from_arg_matches(&matches).expect("right").given.mode()
        };
        let selects = |words: &[&str]| mode(words).expect("used");
        assert_eq!(selects(&[]), Mode::Simulation);
        assert_eq!(selects(&["x.toml", "--sweep", "seed=1", "--json"]), Mode::Simulation);
        assert_eq!(selects(&["--what-if", "x", "--choose", "--cores", "4"]), Mode::Choose);
        let refused = |words: &[&str]| mode(words).expect_err("not used").to_string();
        let phase = refused(&["--what-if", "x", "--phase", "aligned"]);
        assert!(phase.starts_with("--phase has no effect with --what-if: its noise is"), "{phase}");
        let queue = refused(&["--queue", "first-ready"]);
        assert_eq!(queue, "--queue has no effect without --goal. Leave --queue out");
    }
}
