//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use colony_node::cpu::CpuSet;

/// Colony measures the noise an operating system makes, says where it comes from, predicts what it costs
/// a parallel job, and takes it away.
#[derive(Parser)]
#[command(name = "colony", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Measure(Measure),
    Top(Top),
}

/// A time as people write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ns(pub(crate) u64);

fn ns(text: &str) -> Result<Ns, String> {
    colony_time::text::parse_ns(text).map(Ns).map_err(|e| e.to_string())
}

fn cpus(text: &str) -> Result<CpuSet, String> {
    text.parse::<CpuSet>().map_err(|e| e.to_string())
}

/// Measure this node's noise and say where it comes from
///
/// A loop on every CPU looks for detours: intervals in which the CPU was taken from the program. With
/// privileges (root, or CAP_BPF and CAP_PERFMON) BPF programs on the kernel's tracepoints name the source
/// of each.
#[derive(Args)]
#[command(after_help = "Examples:
  colony measure                               all CPUs for 10 s
  colony measure --cpus 3 --duration 60s --out node.parquet
  sudo colony measure --fifo 50 --cpus 1-3     a real-time observer on CPUs 1 to 3
  colony measure --json | jq '.sources[] | [.source, .stolen_share]'")]
pub(crate) struct Measure {
    /// CPUs to observe, such as 0-3,5 [default: all this process may use; with --fifo all but the first]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// How long
    #[arg(long, value_parser = ns, default_value = "10s", value_name = "TIME")]
    pub(crate) duration: Ns,
    /// The shortest detour to look for, 50ns or more
    #[arg(long, value_parser = ns, default_value = "100ns", value_name = "TIME")]
    pub(crate) threshold: Ns,
    /// Observe in SCHED_FIFO with this priority, 1 to 90 [default: the class of this process]
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) fifo: Option<u8>,
    /// Let a SCHED_FIFO observer take every CPU: the node stands still until it ends
    #[arg(long, requires = "fifo")]
    pub(crate) all_cpus: bool,
    /// Do not look for sources
    #[arg(long)]
    pub(crate) no_attribution: bool,
    /// Single detours kept per CPU; more are only counted
    #[arg(long, default_value_t = 1 << 20, value_name = "N")]
    pub(crate) ring: usize,
    /// Number of this node in the trace
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) node: u32,
    /// Keep the trace: one row a detour, Parquet
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print JSON for programs instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Watch this node's noise while it happens
///
/// Per CPU: stolen share, detours, and the split into favored and regular windows where a scheduler is
/// active; all CPUs: sources and lengths. The observers take the CPUs they observe for themselves.
#[derive(Args)]
#[command(after_help = "Examples:
  colony top
  colony top --cpus 2-3 --every 500ms
Keys: q quit, p pause, r reset")]
pub(crate) struct Top {
    /// CPUs to observe [default: all this process may use]
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// The shortest detour to look for, 50ns or more
    #[arg(long, value_parser = ns, default_value = "100ns", value_name = "TIME")]
    pub(crate) threshold: Ns,
    /// Time between two looks
    #[arg(long, value_parser = ns, default_value = "1s", value_name = "TIME")]
    pub(crate) every: Ns,
    /// End by itself after this long [default: when asked to]
    #[arg(long, value_parser = ns, value_name = "TIME")]
    pub(crate) duration: Option<Ns>,
}
