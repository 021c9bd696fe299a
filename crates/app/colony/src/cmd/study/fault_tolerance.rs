// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study fault-tolerance`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use colony_study::report::Survived;
use colony_survival::SurvivalError;
use colony_survival::scenario::{Abilities, Ages, Failures, Job, Machine, Replacement, Scenario};
use colony_survival::scheme::Scheme;
use colony_survival::study::Study;
use colony_view::progress::Progress;
use colony_view::survival as view;

use super::results::ResultArgs;
use super::units::{bytes, seconds, share};

/// What failures cost a job on up to a million PEs, and which scheme of fault tolerance to choose
///
/// Simulates a job's life event by event (work, checkpoints, failures, recoveries) under each scheme and prints, for each
/// number of PEs, the time and energy that failures and the scheme add, the optimal checkpoint interval by simulation and
/// by Daly's formula, and the probability that both copies of a double checkpoint are lost. A map shows the scheme to
/// choose by PEs and MTBF of a node. Nothing of the runtime is run: costs come from bytes and bandwidths.
#[derive(clap::Args)]
#[command(after_help = "Schemes: none, disk, double, double-disk, evacuation, logging
Times have a unit (ns to y), bytes too (MB or MiB), shares are 0.05 or 5%
Examples:
  colony study fault-tolerance                          seconds; one table for each size
  colony study fault-tolerance --report survival.html   the same as a page with plots
  colony study fault-tolerance --mtbf 1y --shape 0.7    nodes that fail each year, Weibull
  colony study fault-tolerance --pes 65536 --state 200MB --schemes double,logging
  colony study fault-tolerance --faster 20 --json       a try, for programs")]
pub(crate) struct Args {
    /// PEs of the job, a table each
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = [1024, 16_384, 131_072, 1_048_576])]
    pes: Vec<u64>,
    /// Schemes to compare, or `all` [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    schemes: Vec<String>,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    failures: FailureArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    abilities: AbilityArgs,
    #[command(flatten)]
    simulation: SimulationArgs,
    #[command(flatten)]
    results: ResultArgs,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Job")]
struct JobArgs {
    /// Time of the job without failures and without a scheme
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "7d", allow_hyphen_values = true)]
    work: f64,
    /// State of a PE
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "1GB")]
    state: f64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Failures")]
struct FailureArgs {
    /// Mean time between failures of a node
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "5y", allow_hyphen_values = true)]
    mtbf: f64,
    /// Shape of the Weibull distribution of a node's life; 1 is exponential, below 1 many die early
    #[arg(long, value_name = "NUMBER", default_value_t = Failures::default().shape, allow_hyphen_values = true)]
    shape: f64,
    /// Ages of the nodes at the job's start: steady (a machine that has run for long), new
    #[arg(long, value_enum, value_name = "AGES", default_value = "steady")]
    ages: AgesArg,
    /// From a failure until the runtime knows of it
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "5s")]
    detection: f64,
    /// Time in which a running job takes in a spare node, or does without one
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "10s")]
    restart: f64,
    /// Time in which the batch system launches the job again (none, disk, and if both copies are lost)
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "120s")]
    relaunch: f64,
    /// After a failure: spare (a new node), shrink (go on with fewer until the repair)
    #[arg(long, value_enum, value_name = "NODE", default_value = "spare")]
    replacement: ReplacementArg,
    /// With shrink, time until a failed node is back
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "1d")]
    repair: f64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Machine (default: Frontier's nodes)")]
struct MachineArgs {
    /// PEs of a node
    #[arg(long, value_name = "N", default_value_t = Machine::default().pes_per_node)]
    pes_per_node: u64,
    /// Memory of a PE
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "8GB")]
    memory: f64,
    /// Bytes a second that a node copies in its memory
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "102.5GB")]
    copy_bandwidth: f64,
    /// Bytes a second that a node sends, and receives
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "25GB")]
    link_bandwidth: f64,
    /// Latency of a message
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "2us")]
    latency: f64,
    /// Bytes a second of the shared file system
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "5TB")]
    disk_bandwidth: f64,
    /// Power of a node that computes, watts
    #[arg(long, value_name = "WATTS", default_value_t = Machine::default().busy_w)]
    power: f64,
    /// Power of a node that waits, watts
    #[arg(long, value_name = "WATTS", default_value_t = Machine::default().idle_w)]
    idle_power: f64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Schemes")]
struct AbilityArgs {
    /// evacuation: share of failures that a warning precedes
    #[arg(long, value_parser = share, value_name = "SHARE", default_value = "70%")]
    predicted: f64,
    /// evacuation: share of warnings that a failure follows
    #[arg(long, value_parser = share, value_name = "SHARE", default_value = "40%")]
    precision: f64,
    /// evacuation: from a warning to its failure
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "60s")]
    warning: f64,
    /// logging: time that it adds to computing
    #[arg(long, value_parser = share, value_name = "SHARE", default_value = "5%")]
    logging_overhead: f64,
    /// logging: nodes that replay the objects of a failed node
    #[arg(long, value_name = "N", default_value_t = Abilities::default().replay_nodes)]
    replay_nodes: u64,
    /// logging: time that other nodes can compute before they need data of the failed one
    #[arg(long, value_parser = seconds, value_name = "TIME", default_value = "0s")]
    independent: f64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Simulation")]
struct SimulationArgs {
    /// Runs of a scheme in a table
    #[arg(long, value_name = "N", default_value_t = 1000)]
    runs: u32,
    /// Runs of a scheme in a cell of the map
    #[arg(long, value_name = "N", default_value_t = 300)]
    map_runs: u32,
    /// PEs of the map
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = (10..=20).map(|k| 1_u64 << k))]
    map_pes: Vec<u64>,
    /// MTBF of a node of the map
    #[arg(long, value_delimiter = ',', value_parser = seconds, value_name = "TIMES",
        default_value = "30d,90d,180d,1y,2y,5y,10y,20y,50y")]
    map_mtbf: Vec<f64>,
    /// Take the simplest scheme if it costs at most this share of the work more than the cheapest one
    #[arg(long, value_parser = share, value_name = "SHARE", default_value = "1%")]
    as_good: f64,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Divide the numbers of runs by this, to try it out
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    faster: f64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AgesArg {
    Steady,
    New,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ReplacementArg {
    Spare,
    Shrink,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let study = study(args)?;
    study.check()?;
    args.results.check()?;
    let bar = Progress::steps_of_work("schemes", study.steps());
    let results = study.run(|| bar.step())?;
    drop(bar);
    args.results.tell(
        &results,
        || Survived { results: &results, command: &crate::words::command() }.page(),
        view::results,
    )?;
    Ok(ExitCode::SUCCESS)
}

fn study(args: &Args) -> Result<Study, SurvivalError> {
    let every = args.schemes.is_empty() || args.schemes.iter().any(|s| s == "all");
    let named =
        args.schemes.iter().filter(|s| *s != "all").map(|s| s.parse()).collect::<Result<Vec<Scheme>, _>>()?;
    // each once, in one order
    let schemes = Scheme::ALL.into_iter().filter(|s| every || named.contains(s)).collect();
    let once = |pes: &[u64]| BTreeSet::from_iter(pes.iter().copied()).into_iter().collect();
    let s = &args.simulation;
    if !(1.0..=1000.0).contains(&s.faster) {
        let (parameter, must) = ("--faster", "a factor from 1 to 1000");
        return Err(SurvivalError::Parameter { parameter, found: s.faster, must });
    }
    // two runs make an interval; fewer that were asked for are refused with the rest
    let faster = |runs: u32| if runs < 2 { runs } else { ((f64::from(runs) / s.faster) as u32).max(2) };
    Ok(Study {
        scenario: scenario(args),
        schemes,
        pes: once(&args.pes),
        runs: faster(s.runs),
        map_pes: once(&s.map_pes),
        map_mtbf_s: s.map_mtbf.clone(),
        map_runs: faster(s.map_runs),
        as_good: s.as_good,
        seed: s.seed,
    })
}

fn scenario(args: &Args) -> Scenario {
    let (j, f, m, a) = (&args.job, &args.failures, &args.machine, &args.abilities);
    Scenario {
        machine: Machine {
            pes_per_node: m.pes_per_node,
            memory_bytes: m.memory,
            copy_bytes_per_s: m.copy_bandwidth,
            link_bytes_per_s: m.link_bandwidth,
            latency_s: m.latency,
            disk_bytes_per_s: m.disk_bandwidth,
            busy_w: m.power,
            idle_w: m.idle_power,
        },
        failures: Failures {
            mtbf_s: f.mtbf,
            shape: f.shape,
            ages: match f.ages {
                AgesArg::Steady => Ages::Steady,
                AgesArg::New => Ages::New,
            },
            detection_s: f.detection,
            restart_s: f.restart,
            relaunch_s: f.relaunch,
            replacement: match f.replacement {
                ReplacementArg::Spare => Replacement::Spare,
                ReplacementArg::Shrink => Replacement::Shrink,
            },
            repair_s: f.repair,
        },
        job: Job { pes: args.pes.first().copied().unwrap_or_default(), work_s: j.work, state_bytes: j.state },
        abilities: Abilities {
            predicted: a.predicted,
            precision: a.precision,
            warning_s: a.warning,
            logging: a.logging_overhead,
            replay_nodes: a.replay_nodes,
            independent_s: a.independent,
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use colony_survival::scenario::YEAR_S;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_library() {
        let args = Command::parse_from(["fault-tolerance"]).args;
        let library = Scenario::default().on(1024);
        assert_eq!(scenario(&args), library);
        assert_eq!(args.simulation.map_mtbf[3], YEAR_S);
    }
}
