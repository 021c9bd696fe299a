//! `colony measure`.

use std::process::ExitCode;
use std::time::Duration;

use colony_node::cpu::{self, CpuSet};
use colony_noise::measure::{Attribution, Config, measure};
use colony_noise::selfish;
use colony_view::progress::Progress;

use crate::cli::Measure;

pub(crate) fn run(args: Measure) -> anyhow::Result<ExitCode> {
    let config = Config {
        observe: selfish::Config {
            cpus: cpus(&args)?,
            duration_ns: args.duration.0,
            threshold_ns: args.threshold.0,
            fifo: args.fifo,
            all_cpus: args.all_cpus,
            ring: args.ring,
        },
        attribution: if args.no_attribution { Attribution::Off } else { Attribution::Auto },
        node: args.node,
    };
    let bar = Progress::over("measuring", Duration::from_nanos(args.duration.0));
    let (measurement, _trace) = measure(&config, |elapsed| {
        bar.at(elapsed);
        true
    })?;
    drop(bar);
    super::print(args.json, &measurement, colony_view::measurement::render)?;
    Ok(ExitCode::SUCCESS)
}

/// The CPUs asked for, else all usable ones; a real-time observer leaves the first to the system.
fn cpus(args: &Measure) -> anyhow::Result<CpuSet> {
    if let Some(cpus) = &args.cpus {
        return Ok(cpus.clone());
    }
    let usable = cpu::usable()?;
    let spare: CpuSet =
        usable.first().filter(|_| args.fifo.is_some() && !args.all_cpus).into_iter().collect();
    Ok(usable.without(&spare))
}
