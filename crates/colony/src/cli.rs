//! What can be typed.

use clap::{Parser, Subcommand};
use colony_node::cpu::CpuSet;

use crate::cmd;

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
    Study(cmd::study::Args),
    Measure(cmd::measure::Args),
    Top(cmd::top::Args),
    Inject(cmd::inject::Args),
    Noise(cmd::noise::Args),
    Run(cmd::run::Args),
    Bench(cmd::bench::Args),
    Completions(cmd::shell::CompletionsArgs),
    Man(cmd::shell::ManArgs),
}

/// A time as people write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ns(pub(crate) u64);

/// Reads a time.
pub(crate) fn ns(text: &str) -> Result<Ns, String> {
    colony_time::text::parse_ns(text).map(Ns).map_err(|e| e.to_string())
}

/// Reads a list of CPUs.
pub(crate) fn cpus(text: &str) -> Result<CpuSet, String> {
    text.parse::<CpuSet>().map_err(|e| e.to_string())
}

/// Reads a duty cycle.
pub(crate) fn duty(text: &str) -> Result<colony_time::DutyCycle, String> {
    colony_time::text::parse_duty(text).map_err(|e| e.to_string())
}
