// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study das-boot`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use colony_study::das_boot::{Plan, SIZES};
use colony_study::report::Booted;
use colony_view::das_boot as view;
use colony_view::progress::Progress;

use super::results::ResultArgs;

/// Boot time of nodes against the size of what is booted
///
/// Boots a Linux I/O node with more and more files in its ramdisk, and a compute node with a larger and larger program and
/// memory. Each size is booted twice a repetition: at the host's pace for the processor time of the host, and with
/// instructions counted for the time of the guest. Other programs of the host change neither much.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony study das-boot                                 some minutes
  colony study das-boot --sizes 1,16 --repeat 2         a try
  colony study das-boot --report boot.html --out boot.json")]
pub(crate) struct Args {
    /// Sizes, MiB; memory of a compute node is each of these that is a power of two from 16 on
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = SIZES)]
    sizes: Vec<u32>,
    /// Repetitions of each size
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: u32,
    #[command(flatten)]
    results: ResultArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    // each once, in order
    let sizes_mib = BTreeSet::from_iter(args.sizes).into_iter().collect();
    let plan = Plan { sizes_mib, repeat: args.repeat };
    plan.check()?;
    args.results.check()?;
    let bar = Progress::steps_of_work("boots", plan.steps());
    let results = plan.run(&crate::words::command(), |text| note!("{text}"), || bar.step())?;
    drop(bar);
    args.results.tell(&results, || Booted { results: &results }.page(), view::results)?;
    Ok(ExitCode::SUCCESS)
}
