// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony tune verify`: the settings now, and the values that were applied.

use std::path::PathBuf;
use std::process::ExitCode;

use colony_tune::Verified;
use colony_view::tune as view;
use serde::Serialize;

use super::linux;
use crate::exit::wrong;

/// Compare the settings now with the values that transactions have applied
///
/// Exit code 0: every change that can be read back is as it was applied, or its task has ended. Exit code 1: a change is not.
/// Commands cannot be read back and show "–".
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo colony tune verify
  sudo colony tune verify hpc --json | jq .as_applied")]
pub(super) struct Verify {
    /// Name of the transaction [default: all transactions]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Files below this directory instead of this node's /proc and /sys, for trials
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// JSON document of `colony tune verify --json`.
#[derive(Serialize)]
struct AllVerified {
    schema: &'static str,
    /// Set if every change of every transaction is as it was applied.
    as_applied: bool,
    transactions: Vec<Verified>,
}

pub(super) fn verify(a: &Verify) -> anyhow::Result<ExitCode> {
    let transactions = colony_tune::verify(&linux(a.root.as_deref()), a.name.as_deref())?;
    if transactions.is_empty() {
        return Err(wrong("no transaction is applied"));
    }
    let as_applied = transactions.iter().all(|t| t.as_applied);
    let document = AllVerified { schema: "colony.tune.verify/1", as_applied, transactions };
    crate::cmd::print(a.json, &document, |d| view::verified(&d.transactions))?;
    Ok(ExitCode::from(u8::from(!as_applied)))
}
