// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study io-sockets`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use colony_study::io_sockets::{Plan, Results};
use colony_study::report::Streamed;
use colony_view::io_sockets as view;
use colony_view::progress::Progress;

use super::results::ResultArgs;
use super::units::bytes;

/// Bandwidth of sockets from compute nodes through one I/O node, as a share of its link
///
/// Compute nodes connect to a server on this host, outside of the job, and send it data; then they receive data. The I/O
/// daemon makes the calls. The server moves data no faster than the link of an I/O node, and takes the time. The same program
/// without compute nodes is measured in the same run.
#[derive(clap::Args)]
#[command(after_help = "Sizes have a unit (kB or KiB, MB or MiB)
Examples:
  colony study io-sockets                               1 to 8 compute nodes, half a minute
  colony study io-sockets --nodes 1,2 --block 8MiB      a try
  colony study io-sockets --link none --report io.html  the rate of the I/O daemon itself")]
pub(crate) struct Args {
    /// Numbers of compute nodes behind the I/O node, 64 at most
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = Plan::default().nodes)]
    nodes: Vec<u32>,
    /// Bytes of a transfer: of a call that a node makes
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "256KiB")]
    transfer: f64,
    /// Bytes that a node sends, and receives
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "32MiB")]
    block: f64,
    /// Peak of the I/O node's link in each direction, or `none`
    #[arg(long, value_parser = link, value_name = "RATE", default_value = "125MB/s")]
    link: Link,
    #[command(flatten)]
    results: ResultArgs,
}

/// A link, bytes a second, or none.
#[derive(Clone, Copy, Debug)]
struct Link(Option<f64>);

fn link(text: &str) -> Result<Link, String> {
    match text {
        "none" => Ok(Link(None)),
        rate => bytes(rate).map(|rate| Link(Some(rate))),
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plan(args);
    plan.check()?;
    args.results.check()?;
    let results = measure(&plan)?;
    args.results.tell(&results, || Streamed { results: &results }.page(), view::results)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(plan: &Plan) -> anyhow::Result<Results> {
    let bar = Progress::steps_of_work("jobs", plan.steps());
    let command = crate::words::command();
    Ok(plan.run(&command, |text| note!("{text}"), || bar.step())?)
}

/// Each number of nodes once, in order; what is no whole number of bytes is refused with the rest.
fn plan(args: &Args) -> Plan {
    Plan {
        nodes: BTreeSet::from_iter(args.nodes.iter().copied()).into_iter().collect(),
        transfer: args.transfer as u64,
        block_bytes: args.block as u64,
        link_bytes_per_s: args.link.0,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_library() {
        assert_eq!(plan(&Command::parse_from(["io-sockets"]).args), Plan::default());
    }

    #[test]
    fn a_link_is_a_rate_or_none() {
        let of = |text: &str| Command::try_parse_from(["io-sockets", "--link", text]).map(|c| c.args.link.0);
        assert_eq!(of("1GB/s").expect("a rate"), Some(1e9));
        assert_eq!(of("none").expect("no limit"), None);
        assert!(of("fast").is_err());
    }
}
