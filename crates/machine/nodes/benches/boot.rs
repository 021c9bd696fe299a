// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the start of the emulator to the first word of the user's `main`: a compute node, and Linux in the same
//! emulator.
//!
//! `./x bench fship` runs it last.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use colony_nodes::ciod::{Config, JobSpec, Streams};
use colony_nodes::programs::{ciod, static_program};
use colony_nodes::{Machine, Partition};
use colony_vm::machine::Event;
use colony_vm::{Image, Kernel, Vm};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let busybox = static_program("busybox")?;
    let worker = ciod()?;
    let node: Vec<f64> = (0..31).map(|_| on_node(&worker, &busybox)).collect::<Result<_, _>>()?;
    let linux: Vec<f64> = (0..7).map(|_| on_linux(&busybox)).collect::<Result<_, _>>()?;
    println!("{:<14} {:>5} {:>9} {:>9} {:>9}", "first word", "runs", "min ms", "median ms", "max ms");
    for (name, mut all) in [("compute node", node), ("Linux", linux)] {
        all.sort_by(f64::total_cmp);
        println!(
            "{name:<14} {:>5} {:>9.0} {:>9.0} {:>9.0}",
            all.len(),
            all[0],
            all[all.len() / 2],
            all[all.len() - 1]
        );
    }
    Ok(())
}

/// Milliseconds until something comes out of `pipe`.
fn first(pipe: OwnedFd, start: Instant) -> Result<f64, Error> {
    let mut byte = [0];
    std::fs::File::from(pipe).read_exact(&mut byte)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn on_node(worker: &Path, busybox: &Path) -> Result<f64, Error> {
    let start = Instant::now();
    let mut partition =
        Partition::boot(Machine { cpus: 1, torus: Some(0), ..Machine::default() }, 1, Config::new(worker))?;
    let mut spec = JobSpec::new(busybox);
    spec.arguments = vec!["echo".into(), "hello".into()];
    let (read, write) = std::io::pipe()?;
    let job = partition.launch(
        spec,
        Streams::output(OwnedFd::from(write).try_clone()?, std::fs::File::open("/dev/null")?.into())?,
    )?;
    let ms = first(read.into(), start)?;
    job.wait();
    Ok(ms)
}

fn on_linux(busybox: &Path) -> Result<f64, Error> {
    let mut image = Image::new();
    image.busybox()?.program(busybox)?;
    let vm = Vm::new(&Kernel::find("")?, &image).silence(Duration::from_secs(120));
    let start = Instant::now();
    let mut ms = f64::NAN;
    let path = busybox.to_str().ok_or("no text")?;
    vm.run_with(&[path, "echo", "hello"], |event| {
        if ms.is_nan() && matches!(event, Event::Stdout(_)) {
            ms = start.elapsed().as_secs_f64() * 1e3;
        }
    })?;
    Ok(ms)
}
