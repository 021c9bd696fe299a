// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony ras`.

use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum as _;
use colony_control_api::api::Threshold;
use colony_view::control;

use crate::cmd::control::Target;
use crate::words::{Ns, ns};

/// Period of looks for new events.
const LOOK: Duration = Duration::from_millis(500);

/// Events of a machine: nodes that died, partitions that failed
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    List(ListArgs),
    Tail(TailArgs),
    Rates(RatesArgs),
    Threshold(ThresholdArgs),
}

/// List the last events, the oldest first
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony ras list
  colony ras list --severity error --location R00-M0")]
struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Print the last events, and new ones as they happen
#[derive(clap::Args)]
struct TailArgs {
    #[command(flatten)]
    filter: Filter,
    /// Print JSON for programs, one event a line
    #[arg(long)]
    json: bool,
}

/// Count events by location and code
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony ras rates
  colony ras rates --within 10min --location R00-M0")]
struct RatesArgs {
    /// Window up to now
    #[arg(long, value_parser = ns, value_name = "TIME", default_value = "1h")]
    within: Ns,
    /// Events of locations that begin so
    #[arg(long, value_name = "LOCATION")]
    location: Option<String>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// List the numbers of events that drain a node, or set one
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony ras threshold
  colony ras threshold node-died --events 5 --within 24h
  colony ras threshold node-stopped --events 0")]
struct ThresholdArgs {
    /// Code of the events; without it, all thresholds are listed
    #[arg(requires = "events")]
    code: Option<String>,
    /// Number of events at one node that drains it; 0: none does
    #[arg(long, value_name = "N", requires = "code")]
    events: Option<u32>,
    /// Window in which they are counted
    #[arg(long, value_parser = ns, value_name = "TIME", default_value = "1h")]
    within: Ns,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Filter {
    /// Events of this severity, or worse
    #[arg(long, value_enum)]
    severity: Option<SeverityWord>,
    /// Events of locations that begin so
    #[arg(long, value_name = "LOCATION")]
    location: Option<String>,
    /// Number of events
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SeverityWord {
    Info,
    Warning,
    Error,
    Fatal,
}

impl Filter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let name = |word: SeverityWord| Some(word.to_possible_value()?.get_name().to_owned());
        let severity = self.severity.and_then(name).map(|name| ("severity", name));
        let location = self.location.clone().map(|location| ("location", location));
        severity.into_iter().chain(location).chain([("limit", self.limit.to_string())]).collect()
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    match args.what {
        What::List(ListArgs { filter, json }) => {
            crate::cmd::print(json, &client.ras(&filter.query())?, |events| control::events(events))?;
        }
        What::Rates(RatesArgs { within, location, json }) => {
            let rates = client.rates(seconds(within), location.as_deref())?;
            crate::cmd::print(json, &rates, |rates| control::rates(rates))?;
        }
        What::Threshold(ThresholdArgs { code, events, within, json }) => {
            let all = match code.zip(events) {
                Some((code, events)) => {
                    client.set_threshold(&Threshold { code, events, within_s: seconds(within) })?
                }
                None => client.thresholds()?,
            };
            crate::cmd::print(json, &all, |all| control::thresholds(all))?;
        }
        What::Tail(TailArgs { filter, json }) => {
            let mut query = filter.query();
            let mut last = 0;
            loop {
                let events = client.ras(&query)?;
                for event in &events {
                    last = event.id;
                    if json {
                        crate::cmd::print_text(&format!("{}\n", serde_json::to_string(event)?))?;
                    } else {
                        crate::cmd::print_text(&control::event(event))?;
                    }
                }
                query.retain(|(name, _)| *name != "after");
                query.push(("after", last.to_string()));
                std::thread::sleep(LOOK);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn seconds(time: Ns) -> f64 {
    Duration::from_nanos(time.0).as_secs_f64()
}
