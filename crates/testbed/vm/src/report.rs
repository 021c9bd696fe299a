// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of machines as a result that programs read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::machine::Boot;
use crate::{Exit, Finished, Outcome};

/// Name and version of [`Report`]'s form.
pub const SCHEMA: &str = "colony.vm.run/1";

/// One program on one or several machines.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The recipe of the image.
    pub image: String,
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs of each machine.
    pub cpus: u32,
    /// Added to the kernel's command line.
    pub append: String,
    /// An instruction took 2 to this power ns; nothing where time was the host's.
    pub icount: Option<u8>,
    /// The machines in order.
    pub nodes: Vec<NodeReport>,
}

/// One machine.
#[derive(Debug, Clone, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub node: u32,
    /// The end of its program.
    pub exit: Exit,
    /// Its standard output, as text.
    pub stdout: String,
    /// Its standard error, as text.
    pub stderr: String,
    /// Paths of collected files on the host, by their path in the guest.
    pub files: BTreeMap<PathBuf, PathBuf>,
    /// Times until the start of the program.
    pub boot: Boot,
    /// The guest's account of the program.
    pub guest: Finished,
    /// Processor time of the host, ns.
    pub host_cpu_ns: u64,
}

impl NodeReport {
    /// The report of machine `node` from its `outcome`; its files were put at `files`.
    #[must_use]
    pub fn new(node: u32, outcome: &Outcome, files: BTreeMap<PathBuf, PathBuf>) -> Self {
        Self {
            node,
            exit: outcome.exit,
            stdout: outcome.text(),
            stderr: outcome.error_text(),
            files,
            boot: outcome.boot,
            guest: outcome.guest,
            host_cpu_ns: outcome.host_cpu_ns,
        }
    }
}
