// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of system calls: on a compute node, by doorbell and polled, and on Linux in the same emulator.
//!
//! `./x bench fship [SAMPLES]`

use std::path::Path;

use colony_nodes::ciod::{Config, JobSpec};
use colony_nodes::programs::{ciod, static_program};
use colony_nodes::{Machine, Partition};
use colony_vm::{Exit, Image, Kernel, Vm};
use serde_json::Value;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    // cargo passes --bench
    let samples = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_else(|| "10000".into());
    let program = static_program("colony-calls")?;
    let worker = ciod()?;
    let ways: [(&str, Value); 3] = [
        ("node, polled", on_node(Config::new(&worker).polled(), &program, &samples)?),
        ("node, doorbell", on_node(Config::new(&worker).blocking(), &program, &samples)?),
        ("Linux", on_linux(&program, &samples)?),
    ];
    println!(
        "{:<16} {:<16} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "call", "on", "min us", "p50 us", "p99 us", "max us", "GB/s"
    );
    for call in names(&ways) {
        for (way, report) in &ways {
            let Some(row) = rows(report).find(|r| r["name"] == call.as_str()) else { continue };
            let us = |field: &str| row[field].as_f64().unwrap_or(f64::NAN) / 1e3;
            let speed = match row["bytes"].as_f64() {
                Some(bytes) if bytes > 1.0 => format!("{:.2}", bytes / us("p50_ns") / 1e3),
                _ => String::new(),
            };
            let times = ["min_ns", "p50_ns", "p99_ns", "max_ns"].map(|f| format!("{:>9.2}", us(f))).join(" ");
            println!("{call:<16} {way:<16} {times} {speed:>7}");
        }
    }
    Ok(())
}

fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["calls"].as_array().into_iter().flatten()
}

/// All calls that were timed somewhere, in their order.
fn names(ways: &[(&str, Value)]) -> Vec<String> {
    rows(&ways[0].1).filter_map(|r| Some(r["name"].as_str()?.to_owned())).collect()
}

fn on_node(config: Config, program: &Path, samples: &str) -> Result<Value, Error> {
    let mut partition = Partition::boot(Machine { cpus: 1, ..Machine::default() }, 1, config)?;
    let mut spec = JobSpec::new(program);
    // files in memory, as on the Linux node
    spec.arguments = vec!["/dev/shm".into(), samples.into()];
    let ran = partition.run_captured(spec)?;
    if !ran.outcome.success() {
        return Err(format!("{}{}{}", ran.outcome, ran.stderr, partition.nodes()[0].console()).into());
    }
    Ok(serde_json::from_str(&ran.stdout)?)
}

fn on_linux(program: &Path, samples: &str) -> Result<Value, Error> {
    let mut image = Image::new();
    image.busybox()?.program(program)?;
    let vm = Vm::new(&Kernel::find("")?, &image);
    let path = program.to_str().ok_or("no text")?;
    let out = vm.run(&[path, "/tmp", samples])?;
    if out.exit != Exit::Code(0) {
        return Err(format!("{:?}: {}", out.exit, out.error_text()).into());
    }
    Ok(serde_json::from_str(&out.text())?)
}
