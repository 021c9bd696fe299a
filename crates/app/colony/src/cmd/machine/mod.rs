// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine`.

mod allocation;
mod ask;
mod drain;
mod layout;
mod plan;
mod up;
mod web;

use std::process::ExitCode;

use colony_model::{Machine, ModelError, PsetSize, Shape};

/// A machine of virtual compute nodes: boot it, look at it, switch it off; its layout, and what it takes to boot it
///
/// A machine consists of midplanes of 8x8x8 compute nodes, or of a part of one midplane. A control daemon keeps it running. layout
/// and plan compute only.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Up(up::UpArgs),
    Status(up::StatusArgs),
    Nodes(up::NodesArgs),
    Web(web::WebArgs),
    Down(up::DownArgs),
    Drain(drain::DrainArgs),
    Undrain(drain::UndrainArgs),
    Layout(layout::Args),
    Plan(plan::Args),
}

/// The machine that is asked for.
#[derive(clap::Args)]
struct Extent {
    /// Compute nodes along x, y and z: multiples of 8 (up to 262144 nodes), or 2, 4 and 8
    #[arg(long, value_name = "XxYxZ")]
    shape: Shape,
    /// Compute nodes of a pset: 8, 16, 32, 64 or 128 [default: 64, or the largest that fits]
    #[arg(long, value_name = "NODES")]
    pset: Option<u32>,
}

impl Extent {
    fn get(&self) -> Result<(Machine, PsetSize), ModelError> {
        let machine = Machine::new(self.shape)?;
        let size = self.pset.map_or(Ok(PsetSize::default_for(machine.nodes())), PsetSize::new)?;
        Ok((machine, size))
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Up(args) => up::up(&args),
        What::Status(args) => up::status(&args),
        What::Nodes(args) => up::nodes(&args),
        What::Web(args) => web::web(&args),
        What::Down(args) => up::down(&args),
        What::Drain(args) => drain::drain(&args),
        What::Undrain(args) => drain::undrain(&args),
        What::Layout(args) => layout::run(&args),
        What::Plan(args) => plan::run(&args),
    }
}
