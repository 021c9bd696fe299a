// SPDX-License-Identifier: MIT OR Apache-2.0
//! The selfish loop as a program of its own: one thread, no privileges, nothing but the time asked of the
//! operating system.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use colony_selfish::alone::{self, Settings};
use colony_time::text::parse_ns;
use colony_time::tsc::{Calibration, CounterKind};

/// Watches the CPU it runs on for detours and prints them as JSON.
///
/// It does not choose its CPU: start it with taskset where that matters.
#[derive(Debug, Parser)]
#[command(name = "colony-selfish", version)]
struct Cli {
    /// Duration of the observation, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Shorter gaps are no detours
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = time)]
    threshold: u64,
    /// Single detours to list; further ones are only counted
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    list: u32,
    /// Counter to read: the time-stamp counter needs no kernel; the clock is right where its rate changes
    #[arg(long, value_enum, default_value_t = Read::Tsc)]
    counter: Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Read {
    Tsc,
    Clock,
}

fn seconds(text: &str) -> Result<f64, String> {
    let ok = text.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0 && *s <= 86_400.0);
    ok.ok_or_else(|| "give a number above 0 and up to 86400".into())
}

fn time(text: &str) -> Result<u64, String> {
    parse_ns(text).map_err(|e| e.to_string())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let calibration = Calibration::measure_while(
        match cli.counter {
            Read::Tsc => CounterKind::Tsc,
            Read::Clock => CounterKind::Vdso,
        },
        spin,
    );
    let settings = Settings {
        duration_ns: (cli.seconds * 1e9) as u64,
        threshold_ns: cli.threshold,
        keep: cli.list as usize,
    };
    let seen = alone::run(&settings, calibration);
    let written = serde_json::to_string(&seen)
        .map_err(std::io::Error::from)
        .and_then(|text| writeln!(std::io::stdout(), "{text}"));
    match written {
        // a reader that has seen enough is no failure
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("colony-selfish: cannot print what was seen: {e}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Lets time pass without a timer: a sleep would be an interrupt that this program asked for.
fn spin(time: std::time::Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
