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
mod output_file;
pub(crate) mod protocol;
mod server;
mod tries;

use std::process::ExitCode;

use colony_node::confinement::{Capability, confine};

pub(crate) use boot::machine_of;
pub(crate) use events::{News, Numbered};

/// The capabilities of `colony-partition`, if root runs it. The process that boots its nodes has a part of them.
const CAPABILITIES: [Capability; 6] = [
    // gives kept output to the job's user
    Capability::CAP_CHOWN,
    // programs and kernels in folders that only their owner may enter
    Capability::CAP_DAC_READ_SEARCH,
    // ends workers, relays, proxies and emulators, which are other users
    Capability::CAP_KILL,
    // these become other users, and drop what is left of the capabilities
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
    Capability::CAP_SETPCAP,
];

/// The `main` of the program `colony-partition`: serves the partition that its one argument, a file, describes.
#[must_use]
pub fn service_main() -> ExitCode {
    // before there are other threads
    let warnings = confine(&CAPABILITIES);
    match server::run(warnings, std::env::args_os().nth(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("colony-partition: {error}");
            ExitCode::FAILURE
        }
    }
}
