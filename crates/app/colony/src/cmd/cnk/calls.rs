// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony cnk calls`.

use std::process::ExitCode;

use colony_fship::calls::{CALLS, Call};
use colony_fship::{Class, Errno};
use serde::Serialize;

/// List the system calls: done on the node, shipped to the I/O daemon, or refused
///
/// A call that is not listed is refused with ENOSYS.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony cnk calls
  colony cnk calls --json | jq '.calls[] | select(.class == \"local\") | .name'")]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    calls: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    number: u16,
    name: &'static str,
    class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

impl From<&Call> for Row {
    fn from(call: &Call) -> Self {
        let (class, error) = match call.class {
            Class::Local => ("local", None),
            Class::Shipped => ("shipped", None),
            Class::Error(errno) => ("refused", Errno::name(errno)),
        };
        Self { number: call.number, name: call.name, class, error }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = Report { schema: "colony.cnk.calls/1", calls: CALLS.iter().map(Row::from).collect() };
    crate::cmd::print(args.json, &report, |r| {
        let rows = r.calls.iter().map(|c| (c.number, c.name, c.class, c.error));
        colony_view::cnk::calls(rows)
    })?;
    Ok(ExitCode::SUCCESS)
}
