// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partition service: a process that owns the nodes of one partition and runs its jobs.
//!
//! It is no child that dies with the control daemon: it has a session of its own and a socket in the daemon's folder. A daemon
//! that starts again finds nodes and jobs as they are.

mod boot;
mod boot_process;
mod events;
mod input;
mod io_nodes;
mod jobs;
mod nodes;
mod outcome;
pub(crate) mod protocol;
mod server;
mod tries;

use std::process::ExitCode;

pub(crate) use boot::machine_of;
pub(crate) use events::{News, Numbered};

/// The `main` of the program `colony-partition`: serves the partition that its one argument, a file, describes.
#[must_use]
pub fn service_main() -> ExitCode {
    match server::run(std::env::args_os().nth(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("colony-partition: {error}");
            ExitCode::FAILURE
        }
    }
}
