// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony doctor`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use colony_doctor::{Level, Node, examine};
use colony_node::cpu::CpuSet;
use colony_project::Budget;
use colony_study::advice::{self, Advice};
use colony_trace::Trace;
use colony_view::progress::Progress;

use crate::exit::{WrongUse, wrong};
use crate::words::cpus;

/// Name the settings of this node that make noise, what each costs at scale, and what to change
///
/// Reads /proc and /sys, changes nothing. Each finding has the file and value seen, a remedy, its risk and its undo. Costs
/// are simulated from the last trace of `colony measure`: the time that the finding's sources alone would add to an
/// allreduce after each millisecond of work, on as many nodes as --nodes says. Some files need root.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0; with --check, 1 if a finding is above --tolerate, 2 if the node cannot be checked; 2 for wrong use.
Examples:
  sudo colony doctor                               the job has the isolated CPUs, or all cores but the first of each NUMA node
  sudo colony doctor --cpus 2-63 --nodes 1048576
  sudo colony doctor --explain irq-movable         one finding, with all of its commands
  colony doctor --root ./bundle --trace node.parquet
  sudo colony doctor --check --tolerate medium     in a node's health check
  sudo colony doctor --check --tolerate 2% --json | jq '.sequence'
  sudo colony doctor --node-exporter-textfile /var/lib/node_exporter/colony.prom"
)]
pub(crate) struct Args {
    /// CPUs of the job, such as 1-3,5 [default: isolated CPUs, or else nohz_full CPUs, or else all cores but the first of each NUMA node]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Directory with the node's files (proc, sys), such as files collected from another node
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Trace for the costs [default: the last one of `colony measure`]
    #[arg(long, value_name = "FILE", conflicts_with = "no_trace")]
    trace: Option<PathBuf>,
    /// Leave costs out
    #[arg(long)]
    no_trace: bool,
    /// Nodes to simulate
    #[arg(
        long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "no_trace"
    )]
    nodes: u32,
    /// Print one finding in full
    #[arg(long, value_name = "FINDING", conflicts_with_all = ["json", "check"])]
    explain: Option<String>,
    /// Exit with 1 if a finding is above --tolerate, with 2 if the node cannot be checked
    #[arg(long)]
    check: bool,
    /// Highest severity (note, low, medium, high) or cost (such as 2%) that --check accepts
    #[arg(long, value_name = "LEVEL|PERCENT", default_value = "low", value_parser = tolerated, allow_hyphen_values = true, requires = "check")]
    tolerate: Tolerated,
    /// Write metrics for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    node_exporter_textfile: Option<PathBuf>,
    /// Print JSON for programs instead of tables
    #[arg(long)]
    json: bool,
}

/// The bound of `--check`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tolerated {
    Level(Level),
    Share(f64),
}

fn tolerated(text: &str) -> Result<Tolerated, String> {
    if let Some(level) = Level::ALL.into_iter().find(|l| l.name() == text) {
        return Ok(Tolerated::Level(level));
    }
    let percent = text.strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
    let percent = percent.filter(|p| p.is_finite() && *p >= 0.0);
    percent
        .map(|p| Tolerated::Share(p / 100.0))
        .ok_or_else(|| "write note, low, medium, high or a cost such as 2%".into())
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match (args.check, advise(&args)) {
        // 1 would say that there are findings
        (true, Err(e)) => Err(e.context(WrongUse("the node could not be checked".into()))),
        (_, result) => result,
    }
}

fn advise(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.node_exporter_textfile {
        super::can_write(file)?;
    }
    let node = Node::open(&args.root, args.cpus.as_ref())?;
    let trace = trace(args)?;
    let advice = match &trace {
        None => Advice::without_trace(examine(&node)),
        Some((file, trace)) => {
            let threads = advice::threads(trace, node.job());
            let ticks = advice::ticks(trace, node.job());
            let node = node.with_threads(threads).with_ticks(ticks);
            let bar = std::cell::OnceCell::new();
            let step = |most| {
                bar.get_or_init(|| Progress::steps_of_work("simulations", most)).step();
            };
            Advice::with_trace(examine(&node), (file, trace), args.nodes, Budget::UNLIMITED, step)
                .with_context(|| format!("simulating the noise of {}", file.display()))?
        }
    };
    if let Some(file) = &args.node_exporter_textfile {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let text = advice::textfile(&advice, now);
        colony_node::file::write_atomically::<std::io::Error>(file, |out| out.write_all(text.as_bytes()))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    if let Some(id) = &args.explain {
        let finding = advice.finding(id).ok_or_else(|| wrong(no_finding(&advice, id)))?;
        super::print_text(&colony_view::doctor::finding(finding, true))?;
    } else {
        super::print(args.json, &advice, colony_view::doctor::advice)?;
    }
    if args.check { checked(&advice, args.tolerate) } else { Ok(ExitCode::SUCCESS) }
}

/// The trace for the costs, with its file; `None` if costs are not wanted, or no trace was kept.
fn trace(args: &Args) -> anyhow::Result<Option<(PathBuf, Trace)>> {
    if let Some(file) = &args.trace {
        return Ok(Some((file.clone(), one_node(file)?)));
    }
    // the last trace is of this node
    let kept = crate::state::last_trace()
        .filter(|file| !args.no_trace && args.root == Path::new("/") && file.exists());
    let Some(file) = kept else {
        return match (args.check, args.tolerate) {
            (true, Tolerated::Share(_)) => Err(wrong(
                "--tolerate with a cost needs a trace: run `colony measure` before, or name a file with --trace",
            )),
            _ => Ok(None),
        };
    };
    let trace = one_node(&file).with_context(|| "reading the last trace; --no-trace leaves costs out")?;
    Ok(Some((file, trace)))
}

fn one_node(file: &Path) -> anyhow::Result<Trace> {
    let trace = super::read_trace(file)?;
    match &trace.nodes()[..] {
        [] | [_] => Ok(trace),
        nodes => Err(wrong(format!(
            "{} holds {} nodes; write one of them to a file (colony noise convert {} OUTPUT --node {})",
            file.display(),
            nodes.len(),
            file.display(),
            nodes[0]
        ))),
    }
}

fn no_finding(advice: &Advice, id: &str) -> String {
    if let Some(undecided) = advice.undecided.iter().find(|u| u.id == id) {
        return format!("{id} could not be decided: {}", undecided.reason);
    }
    if let Some(passed) = advice.passed.iter().find(|p| p.id == id) {
        return format!("{id} is no finding here ({}: {})", passed.evidence.file, passed.evidence.value);
    }
    let ids: Vec<&str> = advice.findings.iter().map(|f| f.finding.id.as_str()).collect();
    format!("there is no finding {id}; there are: {}", ids.join(", "))
}

fn checked(advice: &Advice, tolerated: Tolerated) -> anyhow::Result<ExitCode> {
    if advice.findings.is_empty() && advice.passed.is_empty() {
        anyhow::bail!("no rule could be decided: the files that they read are not there");
    }
    let (ids, bound): (Vec<&str>, String) = match tolerated {
        Tolerated::Level(level) => {
            (advice.above_level(level).map(|f| f.finding.id.as_str()).collect(), level.name().into())
        }
        Tolerated::Share(share) => {
            if advice.noise.is_none() {
                return Err(wrong(
                    "--tolerate with a cost needs a trace of the job's CPUs; name one with --trace",
                ));
            }
            let above = advice.above_share(share).map(|f| f.finding.id.as_str()).collect();
            (above, colony_view::units::percent(share))
        }
    };
    if ids.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    note!("above {bound}: {}", ids.join(", "));
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_or_a_cost_is_tolerated() {
        assert_eq!(tolerated("medium"), Ok(Tolerated::Level(Level::Medium)));
        assert_eq!(tolerated("2%"), Ok(Tolerated::Share(0.02)));
        for wrong in ["2", "-1%", "nan%", "inf%", "severe", ""] {
            assert!(tolerated(wrong).is_err(), "{wrong}");
        }
    }
}
