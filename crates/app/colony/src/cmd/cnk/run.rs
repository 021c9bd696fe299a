// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony cnk run`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use colony_nodes::ciod::{Bind, Config, Export, Files, JobError, JobOutcome, JobSpec, Network, Streams};
use colony_nodes::report::{Report, SCHEMA};
use colony_nodes::tlb::Prediction;
use colony_nodes::{
    Accel, CnkError, IoNodes, Link, Machine, Partition, Places, RunCounters, Running, programs,
};

use super::program::{IoNodesWord, ModeWord, environment, find, passing_signals};
use super::tlb::TlbArgs;
use crate::exit::WrongUse;
use crate::words::{Ns, ns};

/// Run a static program on compute nodes
///
/// The program and its files are those of this machine. Its output is passed on as it comes; the exit code is that of the
/// first process that failed. Each process has its number in COLONY_RANK and that of all in COLONY_SIZE. Interrupts
/// go to the program.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony cnk run -- busybox uname -a
  colony cnk run --nodes 8 --label -- busybox printenv COLONY_RANK
  colony cnk run --mode virtual-node --memory 256 -- ./program
  colony cnk run --icount --json -- ./benchmark       time counted in instructions
  colony cnk run --counters -- ./benchmark            instructions, loads, stores, calls
  colony cnk run --tlb ppc440 -- ./benchmark          misses of a TLB, and what they cost
  colony cnk run --nodes 2 --io-nodes linux -- busybox cat /proc/version
  sudo colony cnk run --user nobody --root /srv/job -- /bin/program")]
pub(super) struct Args {
    /// Number of nodes
    #[arg(long, short, default_value_t = 1, value_name = "N")]
    nodes: u32,
    /// Kind of I/O nodes
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    io_nodes: IoNodesWord,
    /// Copy a file or folder of this machine into the Linux I/O node, at its own path
    #[arg(long, value_name = "PATH")]
    io_file: Vec<PathBuf>,
    /// Let the programs on a Linux I/O node use a folder of this machine, at its own path; `:ro`: read only. May be repeated
    #[arg(long, value_name = "DIR[:ro]")]
    io_export: Vec<Export>,
    /// Nodes that share an I/O node: as many consecutive nodes as this [default: one I/O node serves all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pset: Option<u32>,
    /// Number of processes [default: as many as the nodes hold]
    #[arg(long, value_name = "N")]
    processes: Option<u32>,
    /// One process with all memory, or two with half of it each
    #[arg(long, value_enum, default_value_t)]
    mode: ModeWord,
    /// CPUs of each node: 1 to 4 [default: 2, with --icount 1]
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// Memory of the processes of a node, MiB: a power of two
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    memory: u64,
    /// Addresses of the processes of a node, MiB: a power of two. Those beyond the memory can be reserved, and take memory of
    /// the host where something is written [default: 4096, or twice the memory]
    #[arg(long, value_name = "MIB", conflicts_with = "link")]
    addresses: Option<u64>,
    /// Memory shared by all nodes for messages, MiB [default: what they need; 0: none]
    #[arg(long, value_name = "MIB")]
    torus: Option<u64>,
    /// Link between the nodes and the I/O daemon
    #[arg(long, value_enum, default_value_t)]
    link: LinkWord,
    /// Count instructions instead of time: each takes 2^SHIFT ns [SHIFT: 1]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "1", value_name = "SHIFT")]
    icount: Option<u8>,
    /// Accelerator that executes the nodes' instructions
    #[arg(long, value_enum, default_value_t)]
    accel: AccelWord,
    /// Never sleep while waiting for a shipped call: the shortest way, for a CPU on either side
    #[arg(long)]
    polled: bool,
    /// User whose rights the job has (needs root) [default: the caller]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Group whose rights the job has (needs root)
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Folder that is the root of the job's files (needs root)
    #[arg(long, value_name = "FOLDER", conflicts_with = "bind")]
    root: Option<PathBuf>,
    /// Show a folder at another place, read only with `:ro` (needs root)
    #[arg(long, value_name = "FROM:TO[:ro]")]
    bind: Vec<String>,
    /// Folder that the processes start in [default: the current one]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Set a variable of the environment, or pass one on; no others but PATH and HOME are passed
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Put the number of the process before each line of output
    #[arg(long)]
    label: bool,
    /// End the job after this long
    #[arg(long, value_parser = ns, value_name = "TIME")]
    timeout: Option<Ns>,
    /// Count instructions, loads and stores of the program, and its calls, faults and interrupts, by node
    #[arg(long)]
    counters: bool,
    #[command(flatten)]
    tlb: TlbArgs,
    /// Show what the kernels of the nodes say
    #[arg(long)]
    debug: bool,
    /// Print a report as JSON after the program's output, on standard error
    #[arg(long)]
    json: bool,
    /// Keep the report in a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The program and its arguments; looked for in PATH
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum LinkWord {
    /// By shared memory
    #[default]
    Window,
    /// By a network device, for machines that share no memory; there are messages between nodes with --io-nodes linux only
    Network,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum AccelWord {
    /// Emulation: works everywhere
    #[default]
    Tcg,
    /// The host's processor, by /dev/kvm
    Kvm,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let machine = machine(&args)?;
    let spec = spec(&args)?;
    if let Some(out) = &args.out {
        crate::cmd::can_write(out)?;
    }
    match args.io_nodes {
        IoNodesWord::Linux => refuse_for_linux(&args)?,
        IoNodesWord::Process => refuse_for_processes(&args)?,
    }
    Export::check(&args.io_export).map_err(|e| WrongUse(e.to_string()))?;
    let mut config = Config::new(programs::ciod().map_err(anyhow::Error::msg)?);
    config.exports.clone_from(&args.io_export);
    if args.polled {
        config = config.polled();
    }
    let start = Instant::now();
    let places = Places::row(args.nodes, args.pset);
    let mut partition = Partition::boot_telling(machine, places, config, |text| note!("{text}"))?;
    let job = partition.launch(spec.clone(), Streams::inherit()?)?;
    let outcome_and_times = watch(&job, start)?;
    if args.debug {
        for (n, node) in partition.nodes().iter().enumerate() {
            note!("node {n}:\n{}", node.console().trim_end());
        }
    }
    let (outcome, boot_s, run_s) = outcome_and_times;
    let (tlb, counters) = match counted(&args, &partition, &outcome) {
        // a job that could not start has an error of its own, and nothing to count
        Err(_) if outcome.error.is_some() => (None, None),
        counted => counted?,
    };
    let report = Report {
        schema: SCHEMA,
        nodes: args.nodes,
        io_nodes: partition.places().io_nodes(),
        io_kernel: partition.io_kernel(),
        machine: partition.machine().clone(),
        job: spec,
        outcome,
        deaths: job.deaths(),
        tlb,
        counters,
        boot_s,
        run_s,
    };
    end(&args, &report)
}

/// The prediction from a modelled TLB, and the counters of a job that has begun, as far as they were asked for.
fn counted(
    args: &Args,
    partition: &Partition,
    outcome: &JobOutcome,
) -> Result<(Option<Prediction>, Option<RunCounters>), CnkError> {
    let counts = partition.tlb_counts()?;
    let modelled = partition.machine().tlb.as_ref().zip(counts);
    let tlb = modelled.map(|(setup, counts)| args.tlb.prediction(setup, &counts));
    let has_begun = !outcome.processes.is_empty();
    let counters = (args.counters && has_begun)
        .then(|| partition.counts().map(|counts| RunCounters::new(&counts, &outcome.processes)));
    Ok((tlb, counters.transpose()?))
}

/// Refuses what only jobs with a Linux I/O node can have.
fn refuse_for_processes(args: &Args) -> Result<(), WrongUse> {
    let refused = [("--io-file", args.io_file.is_empty()), ("--io-export", args.io_export.is_empty())];
    match refused.iter().find(|(_, is_empty)| !is_empty) {
        Some((word, _)) => {
            Err(WrongUse(format!("{word} needs --io-nodes linux: other I/O nodes have this machine's files")))
        }
        None => Ok(()),
    }
}

/// Refuses what a job with a Linux I/O node cannot have.
fn refuse_for_linux(args: &Args) -> Result<(), WrongUse> {
    let refused = [
        ("--root", args.root.is_some()),
        ("--bind", !args.bind.is_empty()),
        ("--addresses", args.addresses.is_some()),
        ("--polled", args.polled),
        ("--icount", args.icount.is_some()),
    ];
    match refused.iter().find(|(_, given)| *given) {
        Some((word, _)) => Err(WrongUse(format!("a Linux I/O node has no {word}: leave it out"))),
        None => Ok(()),
    }
}

/// Tells the outcome; the exit code.
fn end(args: &Args, report: &Report) -> anyhow::Result<ExitCode> {
    tell(args, report)?;
    if report.outcome.error.as_ref().is_some_and(JobError::is_wrong_use) {
        return Ok(ExitCode::from(2));
    }
    let code = u8::try_from(report.outcome.code().clamp(0, 255)).unwrap_or(1);
    Ok(ExitCode::from(code))
}

/// Says what went wrong, and keeps the report where that was asked for.
fn tell(args: &Args, report: &Report) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        crate::cmd::keep(out, report)?;
    }
    if args.json {
        // the program has standard output
        note!("{}", serde_json::to_string_pretty(report)?);
    } else {
        for death in &report.deaths {
            note!("error: {death}");
        }
        let outcome = colony_view::cnk::outcome(&report.outcome);
        if !outcome.is_empty() {
            note!("{}", outcome.trim_end());
        }
        if let Some(counters) = &report.counters {
            note!("{}", colony_view::counters::counters(counters, report.outcome.success()).trim_end());
        }
        if let Some(tlb) = &report.tlb {
            note!("{}", colony_view::tlb::prediction(tlb, report.outcome.success()).trim_end());
        }
    }
    Ok(())
}

/// Waits for the end of the job.
fn watch(job: &Running, start: Instant) -> anyhow::Result<(JobOutcome, f64, f64)> {
    // a job that has ended meanwhile needs no signal
    let pass = |signal| drop(job.signal(signal));
    passing_signals(pass, || {
        job.wait_started();
        let boot_s = start.elapsed().as_secs_f64();
        let outcome = job.wait();
        (outcome, boot_s, start.elapsed().as_secs_f64() - boot_s)
    })
}

fn machine(args: &Args) -> anyhow::Result<Machine> {
    let accel = match (args.icount, args.accel) {
        (Some(_), AccelWord::Kvm) => {
            let why = "only an emulated machine counts instructions: leave out --accel or --icount";
            return Err(WrongUse(why.into()).into());
        }
        (Some(shift), AccelWord::Tcg) => Accel::Counted { shift },
        (None, AccelWord::Kvm) => Accel::Kvm,
        (None, AccelWord::Tcg) => Accel::Emulated,
    };
    let cpus = args.cpus.unwrap_or(if args.icount.is_some() { 1 } else { 2 });
    let bytes =
        |mib: u64| mib.checked_mul(1 << 20).ok_or_else(|| WrongUse(format!("{mib} MiB are too many")));
    let torus = args.torus.map(bytes).transpose()?;
    let (link, io_nodes) = match (args.link, args.io_nodes) {
        (LinkWord::Window, IoNodesWord::Process) => (Link::Window, IoNodes::Process),
        (LinkWord::Network, IoNodesWord::Process) => (Link::Network(Network::default()), IoNodes::Process),
        (_, IoNodesWord::Linux) => (Link::Network(Network::default()), IoNodes::Linux),
    };
    let machine = Machine {
        cpus,
        memory: bytes(args.memory)?,
        addresses: args.addresses.map(bytes).transpose()?,
        torus,
        link,
        io_nodes,
        accel,
        tlb: args.tlb.setup()?,
        counters: args.counters,
        debug: args.debug,
        ..Machine::default()
    };
    machine.check().map_err(|e| WrongUse(e.to_string()))?;
    machine.fits(args.mode.into()).map_err(|e| WrongUse(e.to_string()))?;
    Ok(machine)
}

fn spec(args: &Args) -> anyhow::Result<JobSpec> {
    let (program, arguments) = args.command.split_first().context("no program")?;
    let mut spec = JobSpec::new(find(program, args.root.is_some())?);
    spec.name = Some(program.clone());
    spec.arguments = arguments.to_vec();
    spec.environment = environment(&args.env)?;
    spec.directory = match (&args.dir, &args.root) {
        (Some(dir), _) => dir.clone(),
        (None, Some(_)) => "/".into(),
        (None, None) => std::env::current_dir().context("the current folder")?,
    };
    spec.user.clone_from(&args.user);
    spec.group.clone_from(&args.group);
    spec.mode = args.mode.into();
    spec.processes = args.processes;
    spec.labels = args.label;
    spec.copies =
        args.io_file.iter().map(std::path::absolute).collect::<Result<_, _>>().context("--io-file")?;
    spec.timeout_s = args.timeout.map(|t| Duration::from_nanos(t.0).as_secs_f64());
    spec.files = match &args.root {
        Some(root) => Files::Root(root.clone()),
        None if args.bind.is_empty() => Files::Host,
        None => Files::Binds(args.bind.iter().map(|b| bind(b)).collect::<Result<_, _>>()?),
    };
    Ok(spec)
}

fn bind(word: &str) -> Result<Bind, WrongUse> {
    let (paths, read_only) = word.strip_suffix(":ro").map_or((word, false), |paths| (paths, true));
    match paths.split_once(':') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok(Bind { from: from.into(), to: to.into(), read_only })
        }
        _ => Err(WrongUse(format!("`{word}` is no FROM:TO or FROM:TO:ro"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_bound_by_two_paths() {
        let b = |word: &str| bind(word).map(|b| (b.from, b.to, b.read_only)).ok();
        assert_eq!(b("/a:/b"), Some(("/a".into(), "/b".into(), false)));
        assert_eq!(b("/a:/b:ro"), Some(("/a".into(), "/b".into(), true)));
        assert!(b("/a").is_none() && b(":/b").is_none() && b("/a:").is_none());
    }
}
