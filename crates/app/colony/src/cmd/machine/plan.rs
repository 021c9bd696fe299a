// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine plan`.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use colony_model::plan::{Boot, Plan, Sizes, Transport, plan};
use serde::{Deserialize, Serialize};

use super::Extent;
use crate::exit::wrong;

/// Plan the boot of a machine: connections, bytes, messages, state and time
///
/// Kernels and personalities are pushed down a tree: from the service node to I/O nodes, between I/O nodes, and from each
/// I/O node to its compute nodes. The tree is the one of a real boot; the transport is simulated.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony machine plan --shape 64x32x32
  colony machine plan --shape 64x32x32 --pset 32 --fanout 16
  colony machine plan --shape 8x8x8 --json | jq .boot.transport       the assumed transport
  colony machine plan --shape 8x8x8 --assume site.toml                with other sizes and transport")]
pub(super) struct Args {
    #[command(flatten)]
    extent: Extent,
    /// I/O nodes that a node sends to at most
    #[arg(long, value_name = "NODES", default_value = "32")]
    fanout: NonZeroU32,
    /// TOML file with sizes and transport, with the fields of .boot in the JSON
    #[arg(long, value_name = "FILE")]
    assume: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    #[serde(flatten)]
    plan: Plan,
}

/// Sizes and transport, each with defaults.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Assumptions {
    sizes: Option<Sizes>,
    transport: Option<Transport>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (machine, pset) = args.extent.get()?;
    let given = args.assume.as_deref().map_or(Ok(Assumptions::default()), read)?;
    let sizes =
        given.sizes.unwrap_or(Sizes { kernel: colony_nodes::KERNEL.len() as u64, ..Sizes::default() });
    let transport = given.transport.unwrap_or_default();
    let plan = plan(&Boot { machine, pset, fanout: args.fanout, sizes, transport })?;
    let report = Report { schema: "colony.machine.plan/1", plan };
    crate::cmd::print(args.json, &report, |r| colony_view::plan::plan(&r.plan))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<Assumptions> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).map_err(|e| wrong(format!("--assume {}: {e}", path.display())))
}
