// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study das-boot`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use colony_study::das_boot::{Plan, Results, SIZES};
use colony_study::report::Booted;
use colony_view::das_boot as view;
use colony_view::progress::Progress;

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
    /// Write the results as JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a page with plots and all numbers, which opens offline
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    // each once, in order
    let sizes_mib = BTreeSet::from_iter(args.sizes).into_iter().collect();
    let plan = Plan { sizes_mib, repeat: args.repeat };
    plan.check()?;
    args.out.iter().chain(&args.report).try_for_each(|path| crate::cmd::can_write(path))?;
    let bar = Progress::steps_of_work("boots", plan.steps());
    let results = plan.run(&crate::words::command(), |text| note!("{text}"), || bar.step())?;
    drop(bar);
    if let Some(out) = &args.out {
        crate::cmd::keep(out, &results)?;
    }
    if let Some(report) = &args.report {
        write_page(report, &results)?;
    }
    crate::cmd::print(args.json, &results, view::results)?;
    for written in args.out.iter().chain(&args.report) {
        note!("written: {}", written.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn write_page(path: &Path, results: &Results) -> anyhow::Result<()> {
    let page = Booted { results }.page();
    colony_node::file::write_atomically::<std::io::Error>(path, |w| w.write_all(page.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}
