// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony clock simulate`.

use anyhow::Context;
use colony_clock::simulate::{Model, simulate};
use colony_sim::machine::Machine;
use colony_sim::network::Network;
use colony_view::clock as view;

use crate::words::{Ns, ns};

/// Bytes of a question.
const QUESTION: u64 = 28;

/// Simulate how well `colony clock sync` knows the clocks of many nodes
///
/// Clocks are off by up to an hour and drift; the network is a machine profile's, with the time that UDP takes on
/// both sides, ways that are not equally long, and messages that are held up. The estimates are made by the same
/// code, and compared with the truth: the error (median, 99 %, largest), and the bound nodes report.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony clock simulate
  colony clock simulate --nodes 1024 --jitter 100us --asymmetry 0.5
  colony clock simulate --walks 1 --round 2s            one walk, as colony clock sync without --every
  colony clock simulate --machine bgl --json")]
pub(super) struct Args {
    /// Nodes
    #[arg(long, default_value_t = Model::default().nodes, value_name = "N")]
    nodes: u32,
    /// Machine: a profile's name, or a TOML file
    #[arg(long, default_value = "jaguar-xt5", value_name = "MACHINE")]
    machine: String,
    /// Latency of UDP on both sides, added to that of the network
    #[arg(long, value_parser = ns, default_value = "10us", value_name = "TIME")]
    software: Ns,
    /// Mean of what a message is held up
    #[arg(long, value_parser = ns, default_value = "10us", value_name = "TIME")]
    jitter: Ns,
    /// Largest difference between the two directions, as a share of the latency
    #[arg(long, default_value_t = Model::default().asymmetry, value_name = "SHARE")]
    asymmetry: f64,
    /// Share of messages that are held up for long
    #[arg(long, default_value_t = Model::default().tail, value_name = "SHARE")]
    tail: f64,
    /// Standard deviation of the clocks' drifts, ppm
    #[arg(long, default_value_t = Model::default().drift_ppm, value_name = "PPM")]
    drift: f64,
    /// Time for which two nodes are compared
    #[arg(long, value_parser = ns, default_value = "500ms", value_name = "TIME")]
    round: Ns,
    /// Number of walks of the tree; earlier walks improve the estimate of the drifts
    #[arg(long, default_value_t = Model::default().walks, value_name = "N")]
    walks: u32,
    /// Time from walk to walk
    #[arg(long, value_parser = ns, default_value = "10s", value_name = "TIME")]
    every: Ns,
    /// Time between two questions
    #[arg(long, value_parser = ns, default_value = "5ms", value_name = "TIME")]
    interval: Ns,
    /// Seed of everything random
    #[arg(long, default_value_t = Model::default().seed, value_name = "N")]
    seed: u64,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(a: &Args) -> anyhow::Result<()> {
    let machine = Machine { ranks_per_node: 1, ..Machine::named_or_file(&a.machine)? };
    let network = machine.network(a.nodes.max(1)).context("the machine's network")?;
    let cost = network.loggops().cost(QUESTION);
    let fixed_ns = a.software.0.saturating_add(cost.overhead_ns + cost.transfer_ns + cost.recv_ns);
    let model = Model {
        nodes: a.nodes,
        seed: a.seed,
        drift_ppm: a.drift,
        jitter_ns: a.jitter.0 as f64,
        tail: a.tail,
        asymmetry: a.asymmetry,
        round_ns: a.round.0,
        interval_ns: a.interval.0,
        walks: a.walks,
        every_ns: a.every.0,
        ..Model::default()
    };
    let way_ns = |from, to| fixed_ns.saturating_add(network.latency_ns(from, to)).min(1_000_000_000);
    let simulation = simulate(&model, way_ns)?;
    super::super::print(a.json, &simulation, view::simulation)
}
