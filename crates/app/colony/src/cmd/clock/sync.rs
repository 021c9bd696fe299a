// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony clock sync`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use colony_client::Client;
use colony_clock::anchor::Anchor;
use colony_clock::fit::History;
use colony_clock::hosts::{self, Host};
use colony_clock::key::Key;
use colony_clock::sync::{Config, Node, SyncError, SyncReport, SystemClock};
use colony_clock::tree;
use colony_time::estimate::Feed;
use colony_time::quality;
use colony_time::text::rounded_ns;
use colony_view::clock as view;
use colony_view::progress::Progress;

use crate::exit::WrongUse;
use crate::words::{Ns, ns};

/// Compare the clocks of all nodes: offset, drift, and how far both can be wrong
///
/// Run it on every node, once a node, with the same host list; a host's place in the list is its rank, and rank 0's
/// clock is the reference. Nodes are compared in pairs along a tree, in log2 of their number rounds. Rank 0
/// prints a table of all. With --feed each node tells its colonyd, which then counts the windows on rank 0's
/// clock. Nobody's clock is changed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  srun --ntasks-per-node=1 colony clock sync                   hosts and ranks from Slurm
  mpirun --hostfile hosts --map-by ppr:1:node colony clock sync --hosts hosts
  colony clock sync --hosts hosts --rank 3                     started by hand, on the fourth host
  colony clock sync --hosts hosts --feed --every 10s           for good, as a service on every node")]
pub(crate) struct Args {
    /// All nodes, one a line (name, or name:port) [default: Slurm's list]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// This node's place in the list, from 0 [default: the launcher's rank, or the place of this host's name]
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// UDP port, where the list names none
    #[arg(long, default_value_t = hosts::DEFAULT_PORT, value_name = "PORT",
        value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Time for which two nodes are compared; longer rounds measure the drift better
    #[arg(long, value_parser = ns, default_value = "2s", value_name = "TIME")]
    round: Ns,
    /// Time between two questions
    #[arg(long, value_parser = ns, default_value = "5ms", value_name = "TIME")]
    interval: Ns,
    /// Timeout after which a silent node is an error
    #[arg(long, value_parser = ns, default_value = "10s", value_name = "TIME")]
    patience: Ns,
    /// Largest change of a clock's drift within minutes, in ppm
    #[arg(long, default_value_t = History::WANDER_PPM, value_name = "PPM", value_parser = wander)]
    wander: f64,
    /// Sign datagrams with the key in this file, the same on all nodes, and drop those that are not
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Tell colonyd of this node
    #[arg(long)]
    feed: bool,
    /// Do it again and again, so often, and for good
    #[arg(long, value_parser = ns, value_name = "TIME")]
    every: Option<Ns>,
    /// With --every, end after so many times
    #[arg(long, requires = "every", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    times: Option<u32>,
    /// Keep this node's result as JSON; {rank} in the name is replaced
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON for programs (rank 0)
    #[arg(long)]
    json: bool,
}

fn wander(text: &str) -> Result<f64, String> {
    let ppm = text.parse::<f64>().map_err(|e| e.to_string())?;
    if (0.0..=100.0).contains(&ppm) { Ok(ppm) } else { Err("from 0 to 100 ppm".into()) }
}

pub(super) fn run(a: &Args) -> anyhow::Result<()> {
    let config = config(a)?;
    let out = a.out.as_deref().map(|path| named(path, config.rank));
    if let Some(out) = &out {
        super::super::can_write(out)?;
    }
    let daemon = if a.feed { Some(daemon()?) } else { None };
    let reference = config.hosts.first().map_or_else(String::new, |h| h.name.clone());
    let (rank, rounds) = (config.rank, tree::rounds(config.hosts.len() as u32));
    let span = config.round * rounds;
    let mut node = Node::open(config, SystemClock)?;
    let mut done = 0;
    loop {
        let start = Instant::now();
        let bar =
            (rank == 0 && a.every.is_none()).then(|| Progress::over("comparing clocks", span).ticking());
        let walked = walk(&mut node);
        drop(bar);
        match walked {
            Ok((report, anchor)) => {
                if let Some(daemon) = &daemon {
                    feed(daemon, &report, &anchor, &reference)?;
                }
                if let Some(out) = &out {
                    super::super::keep(out, &report)?;
                }
                if rank == 0 {
                    super::super::print(a.json, &report, view::sync)?;
                }
            }
            // one that was silent may come back
            Err(e) if a.every.is_some() && passes(&e) => note!("note: {e:#}; trying again"),
            Err(e) => return Err(e),
        }
        done += 1;
        match a.every {
            Some(every) if a.times.is_none_or(|times| done < times) => {
                // the root sets the pace; the others are there a little early
                let early = if rank == 0 { 0 } else { every.0 / 10 };
                node.idle(start + Duration::from_nanos(every.0 - early))?;
            }
            _ => return Ok(node.linger()?),
        }
    }
}

/// One walk of the tree, and the clocks' relation at its end.
fn walk(node: &mut Node<SystemClock>) -> anyhow::Result<(SyncReport, Anchor)> {
    let before = Anchor::now();
    let report = node.walk()?;
    let after = Anchor::now();
    if let Some(step_ns) = after.step_since(&before) {
        node.forget();
        return Err(ClockSet(step_ns).into());
    }
    Ok((report, after))
}

/// Somebody set the clock while it was compared.
#[derive(Debug)]
struct ClockSet(i64);

impl std::fmt::Display for ClockSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "this node's clock was set by {} while it was compared; run it again",
            rounded_ns(self.0 as f64)
        )
    }
}

impl std::error::Error for ClockSet {}

/// Returns `true` if another attempt may succeed.
fn passes(e: &anyhow::Error) -> bool {
    e.is::<ClockSet>()
        || matches!(
            e.downcast_ref::<SyncError>(),
            Some(
                SyncError::Silent { .. }
                    | SyncError::Failed { .. }
                    | SyncError::Fit { .. }
                    | SyncError::OtherList { .. }
                    | SyncError::OtherVersion { .. }
            )
        )
}

fn config(a: &Args) -> anyhow::Result<Config> {
    let hosts = list(a)?;
    let rank = match a.rank {
        Some(rank) => rank,
        None => own_rank(&hosts)?,
    };
    let duration = |ns: Ns| Duration::from_nanos(ns.0);
    for (flag, value, least, most) in [
        ("--round", a.round.0, 10_000_000, 600_000_000_000),
        ("--interval", a.interval.0, 100_000, a.round.0 / 2),
        ("--patience", a.patience.0, 200_000_000, 3_600_000_000_000),
        ("--every", a.every.map_or(1_000_000_000, |e| e.0), 1_000_000_000, 3_600_000_000_000),
    ] {
        if !(least..=most).contains(&value) {
            let [least, most] = [least, most].map(colony_time::text::Ns);
            return Err(WrongUse(format!("{flag} must be from {least} to {most}")).into());
        }
    }
    Ok(Config {
        round: duration(a.round),
        interval: duration(a.interval),
        silence_timeout: duration(a.patience),
        wander_ppm: a.wander,
        key: a.key.as_deref().map(key).transpose()?,
        ..Config::new(hosts, rank)
    })
}

fn key(path: &Path) -> anyhow::Result<Key> {
    Key::read(path).map_err(|e| WrongUse(format!("--key {}: {e}", path.display())).into())
}

fn list(a: &Args) -> anyhow::Result<Vec<Host>> {
    if let Some(path) = &a.hosts {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the host list {}", path.display()))?;
        return hosts::parse(&text, a.port).map_err(|e| SyncError::from(e).into());
    }
    let slurm = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"].into_iter().find_map(|v| std::env::var(v).ok());
    match slurm {
        Some(text) => hosts::parse_slurm(&text, a.port).map_err(|e| SyncError::from(e).into()),
        None => Err(WrongUse(
            "no host list: give one with --hosts FILE (one host a line), or run under Slurm".into(),
        )
        .into()),
    }
}

fn own_rank(hosts: &[Host]) -> anyhow::Result<u32> {
    if let Some((rank, variable)) = hosts::rank_of(|name| std::env::var(name).ok()) {
        if rank as usize >= hosts.len() {
            let n = hosts.len();
            bail!(WrongUse(format!(
                "{variable}={rank}, but the list has {n} nodes; start one process a node (srun --ntasks-per-node=1, \
                 mpirun --map-by ppr:1:node)"
            )));
        }
        return Ok(rank);
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    hosts::rank_named(hosts, name.trim()).ok_or_else(|| {
        WrongUse(format!("this host, {}, is not in the list; say which it is with --rank N", name.trim()))
            .into()
    })
}

fn daemon() -> anyhow::Result<Client> {
    Client::find()
        .ok_or_else(|| WrongUse("--feed: colonyd does not run on this node; start it first".into()).into())
}

fn feed(daemon: &Client, report: &SyncReport, anchor: &Anchor, reference: &str) -> anyhow::Result<()> {
    let own = report.own().context("the report does not tell of this node")?;
    let feed = Feed {
        monotonic_ns: own.estimate.at_ns.saturating_sub(anchor.tai_less_monotonic_ns),
        estimate: own.estimate,
        frequency_ppm: quality::frequency_ppm().ok(),
        reference: reference.into(),
    };
    daemon.feed(Some(&feed)).context("telling colonyd")
}

fn named(path: &Path, rank: u32) -> PathBuf {
    path.to_string_lossy().replace("{rank}", &rank.to_string()).into()
}
