// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony cnk run --io-nodes linux`: the I/O node is a virtual Linux machine.

use std::io::{self, Write as _};
use std::path::PathBuf;

use colony_nodes::ciod::{JobSpec, Network};
use colony_nodes::report::{Report, SCHEMA};
use colony_nodes::{Link, LinuxJob, Machine, programs};
use colony_vm::Event;
use nix::unistd::{getegid, geteuid};

use crate::exit::WrongUse;

/// Runs the job, and passes on what it prints.
pub(super) fn run(
    nodes: u32,
    machine: Machine,
    mut spec: JobSpec,
    files: Vec<PathBuf>,
) -> anyhow::Result<Report> {
    // to the I/O node, nobody is the caller
    spec.user = spec.user.or_else(|| Some(geteuid().to_string()));
    spec.group = spec.group.or_else(|| Some(getegid().to_string()));
    let link = match machine.link {
        Link::Window => Link::Network(Network::default()),
        link => link,
    };
    let machine = Machine { link, ..machine };
    let job = LinuxJob { machine, nodes, spec, files };
    job.check().map_err(|e| WrongUse(e.to_string()))?;
    let boot_program = programs::beside(programs::BOOT).map_err(anyhow::Error::msg)?;
    let ran = job.run(&boot_program, |text| note!("{text}"), pass_on)?;
    Ok(Report {
        schema: SCHEMA,
        nodes: job.nodes,
        io_nodes: 1,
        io_kernel: Some(ran.kernel),
        machine: job.machine,
        job: job.spec,
        outcome: ran.outcome,
        deaths: ran.deaths,
        boot_s: ran.boot.as_secs_f64(),
        run_s: ran.run.as_secs_f64(),
    })
}

fn pass_on(event: Event<'_>) {
    // a reader that is gone wants nothing more
    match event {
        Event::Stdout(bytes) => {
            let mut out = io::stdout().lock();
            let _ = out.write_all(bytes).and_then(|()| out.flush());
        }
        Event::Stderr(bytes) => drop(io::stderr().lock().write_all(bytes)),
        Event::Started(_) => {}
    }
}
