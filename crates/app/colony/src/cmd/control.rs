// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options and functions that the commands of the control system share.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use colony_control_api::api::{IoNodeKind, NodeRequest, NodeState, Partition, PartitionState};
use colony_control_api::{Client, default_folder};
use colony_nodes::ciod::Export;
use colony_nodes::programs;
use colony_view::progress::Progress;

use crate::cmd::cnk::program::IoNodesWord;
use crate::cmd::server::{self, ServerArgs};
use crate::exit::wrong;

/// The name of the control daemon's program.
const DAEMON: &str = "colony-control";
/// Period of looks at a partition that boots.
const LOOK: Duration = Duration::from_millis(20);

/// The machine that a command is about.
#[derive(clap::Args)]
pub(super) struct Target {
    /// Folder of the machine [default: COLONY_MACHINE, or a folder of this user]
    #[arg(long, value_name = "FOLDER")]
    machine: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Target {
    /// A client of the daemon. A daemon of this host that was killed is started again.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        if let (None, Some(server)) = (&self.machine, self.server.get()?) {
            return Ok(Client::far(server)?);
        }
        let client = self.unserved()?;
        client.revive()?;
        Ok(client)
    }

    /// A client of a daemon of this host.
    pub(super) fn local(&self) -> anyhow::Result<Client> {
        let client = self.client()?;
        if client.socket().is_none() {
            return Err(wrong(format!(
                "this command works on the machine's own host only: leave --server and {} out, or name a folder by --machine",
                server::SERVER
            )));
        }
        Ok(client)
    }

    /// A client of the daemon, which is started if it does not run.
    pub(super) fn started(&self) -> anyhow::Result<Client> {
        let client = self.local()?;
        client.start_daemon()?;
        Ok(client)
    }

    /// The file that `--token-file` names.
    pub(super) fn token_file(&self) -> anyhow::Result<Option<PathBuf>> {
        let file = self.server.token_file().map(std::path::absolute).transpose();
        file.context("the token file")
    }

    fn unserved(&self) -> anyhow::Result<Client> {
        let folder = self.machine.clone().map_or_else(default_folder, Ok)?;
        let daemon = programs::beside(DAEMON).map_err(anyhow::Error::msg)?;
        Ok(Client::new(&folder, &daemon)?)
    }
}

/// The nodes of a partition.
#[derive(clap::Args)]
pub(super) struct Nodes {
    /// Compute nodes of a pset: 8, 16, 32, 64 or 128 [default: 64, or the largest that fits]
    #[arg(long, value_name = "NODES")]
    pset: Option<u32>,
    /// Kernel of the compute nodes
    #[arg(long, value_enum, default_value_t)]
    kernel: Kernel,
    /// Kind of I/O nodes
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    io_nodes: IoNodesWord,
    /// Let jobs on Linux I/O nodes use a folder of the host, at its own path; `:ro`: read only. May be repeated
    #[arg(long, value_name = "DIR[:ro]")]
    io_export: Vec<Export>,
    /// CPUs of each node
    #[arg(long, default_value_t = 1, value_name = "N")]
    cpus: u32,
    /// Memory of the processes of a node, MiB: a power of two
    #[arg(long, default_value_t = 16, value_name = "MIB")]
    memory: u64,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum Kernel {
    /// The compute node kernel
    #[default]
    Cnk,
}

impl Nodes {
    pub(super) fn request(&self, nodes: u32) -> NodeRequest {
        let Kernel::Cnk = self.kernel;
        let pset = self.pset.unwrap_or_else(|| colony_model::PsetSize::default_for(nodes).nodes());
        let io_nodes = match self.io_nodes {
            IoNodesWord::Process => IoNodeKind::Process,
            IoNodesWord::Linux => IoNodeKind::Linux,
        };
        let io_exports = self.io_export.clone();
        NodeRequest { pset, cpus: self.cpus, memory_mib: self.memory, io_nodes, io_exports }
    }
}

/// The partition of this name, or the only one.
pub(super) fn partition(client: &Client, name: Option<&str>) -> anyhow::Result<String> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let all = client.machine()?.partitions;
    match all.as_slice() {
        [one] => Ok(one.name.clone()),
        [] => Err(wrong("the machine has no partition: `colony partition create` makes one")),
        several => {
            let names: Vec<&str> = several.iter().map(|partition| partition.name.as_str()).collect();
            Err(wrong(format!(
                "the machine has several partitions, {}: choose one by --partition",
                names.join(", ")
            )))
        }
    }
}

/// Waits until the nodes of a partition are ready, with a progress bar.
pub(super) fn wait_booted(client: &Client, name: &str) -> anyhow::Result<Partition> {
    let mut bar = None::<(Progress, u64)>;
    let mut is_silent = false;
    loop {
        let partition = client.partition(name)?;
        let was_silent = std::mem::replace(&mut is_silent, partition.state == PartitionState::Lost);
        match partition.state {
            PartitionState::Ready | PartitionState::Degraded => return Ok(partition),
            PartitionState::Lost if !was_silent => {
                let why = partition.error.as_deref().unwrap_or_default();
                note!("partition {name} does not answer: {why}");
            }
            PartitionState::Booting | PartitionState::Lost => {}
            PartitionState::Failed => {
                let why = partition.error.unwrap_or_default();
                anyhow::bail!("partition {name} does not boot: {why}; `colony ras list` has more");
            }
            PartitionState::Free | PartitionState::Freeing => {
                anyhow::bail!("partition {name} has been switched off meanwhile");
            }
        }
        let ready = u64::from(partition.nodes.get(&NodeState::Ready).copied().unwrap_or(0));
        let total = u64::from(partition.shape.nodes());
        let (shown, done) =
            bar.get_or_insert_with(|| (Progress::steps_of_work(&format!("booting {name}"), total), 0));
        shown.steps_more(ready.saturating_sub(*done));
        *done = ready.max(*done);
        std::thread::sleep(LOOK);
    }
}
