// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands and global flags of `colony`.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd;

/// Colony measures the noise an operating system makes, says where it comes from, predicts what it costs
/// a parallel job, and takes it away.
#[derive(Parser)]
#[command(name = "colony", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Study(cmd::study::Args),
    Measure(cmd::measure::Args),
    Doctor(cmd::doctor::Args),
    Top(cmd::top::Args),
    Inject(cmd::inject::Args),
    Noise(cmd::noise::Args),
    Sim(Box<cmd::sim::Args>),
    Lb(cmd::lb::Args),
    Launch(cmd::launch::Args),
    Runtime(cmd::runtime::Args),
    Timeline(cmd::timeline::Args),
    Tune(cmd::tune::Args),
    Run(cmd::run::Args),
    Bench(Box<cmd::bench::Args>),
    Clock(cmd::clock::Args),
    Vm(cmd::vm::Args),
    Cnk(cmd::cnk::Args),
    Partition(cmd::partition::Args),
    Job(cmd::job::Args),
    Ras(cmd::ras::Args),
    Machine(cmd::machine::Args),
    Completions(cmd::shell::CompletionsArgs),
    Man(cmd::shell::ManArgs),
}

impl Cli {
    /// Does what was typed.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Study(args) => cmd::study::run(args),
            Command::Measure(args) => cmd::measure::run(args),
            Command::Doctor(args) => cmd::doctor::run(args),
            Command::Top(args) => cmd::top::run(args),
            Command::Inject(args) => cmd::inject::run(args),
            Command::Noise(args) => cmd::noise::run(args),
            Command::Sim(args) => cmd::sim::run(*args),
            Command::Lb(args) => cmd::lb::run(args),
            Command::Launch(args) => cmd::launch::run(args),
            Command::Runtime(args) => cmd::runtime::run(args),
            Command::Timeline(args) => cmd::timeline::run(args),
            Command::Tune(args) => cmd::tune::run(args),
            Command::Run(args) => cmd::run::run(args),
            Command::Clock(args) => cmd::clock::run(args),
            Command::Bench(args) => cmd::bench::run(*args),
            Command::Vm(args) => cmd::vm::run(args),
            Command::Cnk(args) => cmd::cnk::run(args),
            Command::Partition(args) => cmd::partition::run(args),
            Command::Job(args) => cmd::job::run(args),
            Command::Ras(args) => cmd::ras::run(args),
            Command::Machine(args) => cmd::machine::run(args),
            Command::Completions(args) => cmd::shell::completions(args, Self::command()),
            Command::Man(args) => cmd::shell::man(args, Self::command()),
        }
    }
}
