// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study`.

mod das_boot;
mod fault_tolerance;
mod io_scaling;
mod io_sockets;
mod results;
mod units;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use colony_node::cpu::{self, CpuSet};
use colony_study::report::Beside;
use colony_study::results::Results;
use colony_study::seeds::{self, Context, Setting};
use colony_study::{Params, ThisNode, study};
use colony_time::DutyCycle;
use colony_view::study as view;

use crate::words::{Ns, cpus, duty, ns};

/// The main job: measure this node, suffer its noise with and without coordination, project, report
///
/// Measures this node's noise and says where it comes from; runs allreduce on its CPUs quiet, with 2 % and
/// with 21 % of Leibniz noise, each unmodified and coordinated; projects to 1,024 and more nodes; prints
/// one table and writes results.json and report.html. With a NAME it reproduces one figure of the seeds.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  colony study                      about 3 minutes; then open study/report.html
  colony study --list               every figure and table of the seeds that can be reproduced
  colony study fig4                 one of them
  colony study three-kernels --report kernels.html
                                    allreduce and two applications on three kernels
  colony study vm                   the scheduler in the kernel, on a virtual node
  colony study das-boot             boot time against the size of what is booted
  colony study fault-tolerance      what failures cost on up to a million PEs
  colony study io-scaling           bandwidth of files over compute nodes and I/O nodes
  colony study io-sockets           bandwidth of sockets through one I/O node"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Reproduce these figures of the seeds instead
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Name every figure and table that can be reproduced
    #[arg(
        long,
        conflicts_with_all = [
            "names", "report", "out", "cpus", "period", "duty", "nodes", "seed", "faster", "wait_quiet", "virtual_node"
        ]
    )]
    list: bool,
    /// Write the figures that are named as a page with plots to this file
    #[arg(long, value_name = "FILE", requires = "names")]
    report: Option<PathBuf>,
    /// Folder for results.json and report.html
    #[arg(long, default_value = "study", value_name = "FOLDER", conflicts_with = "names")]
    out: PathBuf,
    /// CPUs of the job, a rank each [default: all this process may use]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Period of the coordinated windows [default: 100ms]
    #[arg(long, value_parser = ns, value_name = "TIME")]
    period: Option<Ns>,
    /// Favored share of a period [default: 80%]
    #[arg(long, value_parser = duty, value_name = "DUTY")]
    duty: Option<DutyCycle>,
    /// Node counts to project to
    #[arg(
        long, value_delimiter = ',', value_name = "N,N", conflicts_with = "names",
        default_values_t = Params::default().nodes.into_iter().map(u64::from)
    )]
    nodes: Vec<u64>,
    /// Seed of everything random [default: 20061114]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run every step shorter by this factor, to try it out [default: 1]
    #[arg(long, value_name = "FACTOR")]
    faster: Option<f64>,
    /// Wait up to this long until other programs take less than 5 % of the job's CPUs
    #[arg(long, value_parser = ns, value_name = "TIME", conflicts_with = "names")]
    wait_quiet: Option<Ns>,
    /// Measure the scheduler in the kernel on a virtual node too (needs QEMU; a minute or more)
    #[arg(long, conflicts_with = "names")]
    virtual_node: bool,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    DasBoot(das_boot::Args),
    FaultTolerance(Box<fault_tolerance::Args>),
    IoScaling(io_scaling::Args),
    IoSockets(io_sockets::Args),
}

impl Args {
    /// Settings given on the command line.
    fn settings(&self) -> Vec<Setting> {
        let is_given = |setting: &Setting| match setting {
            Setting::Cpus => self.cpus.is_some(),
            Setting::Period => self.period.is_some(),
            Setting::Duty => self.duty.is_some(),
            Setting::Seed => self.seed.is_some(),
            Setting::Faster => self.faster.is_some(),
        };
        Setting::ALL.into_iter().filter(is_given).collect()
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Some(Action::DasBoot(args)) => return das_boot::run(args),
        Some(Action::FaultTolerance(args)) => return fault_tolerance::run(&args),
        Some(Action::IoScaling(args)) => return io_scaling::run(args),
        Some(Action::IoSockets(args)) => return io_sockets::run(&args),
        None => {}
    }
    if args.list {
        let experiments: Vec<_> = seeds::all().collect();
        let list = serde_json::json!({
            "schema": "colony.study.list/1",
            "experiments": experiments,
            "other_commands": seeds::OTHER_COMMANDS,
        });
        super::print(args.json, &list, |_| view::experiments())?;
        return Ok(ExitCode::SUCCESS);
    }
    // an unknown name is told before anything runs
    let wanted = args.names.iter().map(|n| seeds::find(n)).collect::<Result<Vec<_>, _>>()?;
    if !wanted.is_empty() {
        Setting::check(&args.settings(), &wanted)?;
    }
    let params = params(&args)?;
    params.check()?;
    let job_cpus = args.cpus.map_or_else(cpu::usable, Ok)?;
    cpu::check(&job_cpus)?;
    if wanted.is_empty() {
        Results::check_writable(&args.out)?;
    }
    if let Some(report) = &args.report {
        super::can_write_page(report)?;
    }
    let colony = std::env::current_exe().context("finding this program itself")?;
    let mut node = ThisNode::new(&params, job_cpus, colony)?;
    clear_up_when_ended(vec![node.scratch().to_path_buf()])?;
    let progress = view::Steps::default();
    let mut outcomes = Vec::new();
    for experiment in &wanted {
        let outcome = experiment.run(&mut Context::new(&params, Some(&mut node), &progress))?;
        if !args.json {
            super::print(false, &outcome, view::outcome)?;
        }
        outcomes.push(outcome);
    }
    if let Some(report) = &args.report {
        let pairs: Vec<_> = wanted.iter().copied().zip(&outcomes).collect();
        let page = Beside { outcomes: &pairs, command: &crate::words::command() }.page();
        results::write_page(report, &page)?;
        note!("written: {}", report.display());
    }
    match outcomes.as_slice() {
        [one] if args.json => super::print(true, one, view::outcome)?,
        // several are one document too
        [_, ..] if args.json => super::print(true, &outcomes, |_| String::new())?,
        _ => {}
    }
    if wanted.is_empty() {
        let results = study::run(&params, &mut node, &progress)?;
        results.write(&args.out)?;
        super::print(args.json, &results, view::results)?;
        note!("written: {0}/results.json and {0}/report.html", args.out.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the temporary files when a signal ends the study; the steps it started end with it.
fn clear_up_when_ended(scratch: Vec<PathBuf>) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("colony-signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // best effort: what is left is a few files in the folder for temporary ones
            for folder in &scratch {
                let _ = std::fs::remove_dir_all(folder);
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

fn params(args: &Args) -> anyhow::Result<Params> {
    let ranks = args.cpus.as_ref().map_or_else(|| cpu::usable().map(|c| c.len()), |c| Ok(c.len()))?;
    let usual = Params::default();
    let params = Params {
        seed: args.seed.unwrap_or(usual.seed),
        cpus: args.cpus.clone(),
        ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
        period_ns: args.period.map_or(usual.period_ns, |period| period.0),
        duty: args.duty.unwrap_or(usual.duty),
        virtual_node: args.virtual_node,
        wait_quiet_s: args.wait_quiet.map_or(0.0, |t| t.0 as f64 / 1e9),
        // one too large for us is refused with the others
        nodes: args.nodes.iter().map(|&n| u32::try_from(n).unwrap_or(u32::MAX)).collect(),
        ..usual
    };
    Ok(params.faster(args.faster.unwrap_or(1.0))?)
}
