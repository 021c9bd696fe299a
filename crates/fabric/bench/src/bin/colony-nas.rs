// SPDX-License-Identifier: MIT OR Apache-2.0
//! NAS kernels, serial: one static program for the compute node kernel and for Linux.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use colony_bench::nas::{self, Class, Faults, Kernel, NasResult};

/// NAS kernels is, ep, cg, mg, flow solvers lu, sp, bt, and random access (ra): runs them in this one process and verifies their results.
#[derive(Debug, Parser)]
#[command(name = "colony-nas", version)]
struct Cli {
    /// The kernels to run, one after the other
    #[arg(required = true)]
    kernels: Vec<Kernel>,
    /// Size of the problem
    #[arg(long, default_value = "S", ignore_case = true)]
    class: Class,
    /// Stop lu, sp and bt after so many iterations, to see what a part of a run does: the result is not verified
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Print each result as JSON, in one line
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(kernel) =
        cli.kernels.iter().find(|kernel| cli.iterations.is_some() && !kernel.is_flow_solver())
    {
        eprintln!("colony-nas: {}", nas::NasError::Iterations(*kernel));
        return ExitCode::from(2);
    }
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("colony-nas: {e}");
            ExitCode::FAILURE
        }
    }
}

/// True if all results were verified, but for those of runs that were stopped on request.
fn run(cli: &Cli) -> Result<bool, String> {
    let mut verified = true;
    for &kernel in &cli.kernels {
        let result = nas::run(kernel, cli.class, cli.iterations).map_err(|e| e.to_string())?;
        verified &= result.verified || was_stopped(&result);
        let text = if cli.json {
            serde_json::to_string(&result).map_err(|e| format!("cannot write the result: {e}"))?
        } else {
            line(&result)
        };
        match writeln!(std::io::stdout(), "{text}") {
            // a reader that has seen enough is no failure
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(format!("cannot print the result: {e}"));
            }
            _ => {}
        }
    }
    Ok(verified)
}

/// True if there was nothing to verify.
fn was_stopped(result: &NasResult) -> bool {
    result.checks.is_empty()
}

/// The result for people: one line, and one for each value that is wrong.
fn line(r: &NasResult) -> String {
    let faults = |f: Option<Faults>| f.map_or("?".into(), |f| format!("{}+{}", f.minor, f.major));
    let mut text = format!(
        "{} class {:?}: {} {:.3} s, {:.1} Mop/s, {} iterations, page faults (minor+major) {} of {}",
        r.kernel.name(),
        r.class,
        match r.verified {
            true => "VERIFIED",
            false if was_stopped(r) => "STOPPED, not verified,",
            false => "WRONG",
        },
        r.seconds,
        r.mops,
        r.iterations,
        faults(r.faults),
        faults(r.faults_whole),
    );
    for check in r.checks.iter().filter(|c| !c.holds()) {
        text.push_str(&format!("\n  {}: {:e}, expected {:e}", check.name, check.value, check.expected));
    }
    text
}
