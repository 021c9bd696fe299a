// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony tune`: the doctor's remedies as transactions.

mod export;
mod persist;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use colony_doctor::{DoctorError, Examination};
use colony_node::cpu::CpuSet;
use colony_tune::{
    Applied, Linux, OnFailure, Plan, Profile, Progress, Recovered, Reverted, Standing, Transaction, TuneError,
};
use colony_view::tune as view;
use serde::Serialize;

use crate::exit::wrong;

/// Make the doctor's remedies on this node as one transaction, and revert them by name
///
/// A transaction keeps every value it changes in a journal in /run/colony-tune before the first change, and reads every value back.
/// A remedy that the kernel refuses is left out with its reason; if another change fails, the transaction is undone as a whole. A
/// transaction that was interrupted is undone by the next `apply` or `revert`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Show(Show),
    Apply(Apply),
    Verify(verify::Verify),
    Revert(Revert),
    Export(export::Export),
}

#[derive(clap::Args)]
struct Target {
    /// The job's CPUs [default: isolated CPUs, or else nohz_full CPUs, or else all cores but the first of each NUMA node]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Changes: hpc, latency, or a TOML file
    #[arg(long, default_value = "hpc", value_name = "PROFILE")]
    profile: String,
    /// Rule whose changes are made whatever they cost, such as limits of control groups; may be given more than once
    #[arg(long, value_name = "RULE")]
    also: Vec<String>,
    /// Files below this directory instead of this node's /proc and /sys, for trials
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Show applied transactions, and the changes that a profile would make
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony tune show
  colony tune show --profile latency --cpus 2-15
  colony tune show --json | jq '.plan.steps'")]
struct Show {
    #[command(flatten)]
    target: Target,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Make a profile's changes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo colony tune apply
  sudo colony tune apply --profile latency --skip idle-states
  sudo colony tune apply --also memory-reclaim
  sudo colony tune apply --profile site.toml --name tonight
  sudo colony tune apply --persist

Settings end with the next boot, unless --persist applies them again at every boot. `colony tune export` hands them to other programs.")]
struct Apply {
    #[command(flatten)]
    target: Target,
    /// Name of the transaction [default: that of the profile]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Rule whose changes are left out; may be given more than once
    #[arg(long, value_name = "RULE")]
    skip: Vec<String>,
    /// Leave out changes that fail, instead of undoing all of them
    #[arg(long)]
    keep_going: bool,
    /// Apply the profile with these options again at every boot, by a unit of systemd. `revert` removes the unit
    #[arg(long)]
    persist: bool,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Restore the values that a transaction has changed
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo colony tune revert hpc
  sudo colony tune revert --all")]
struct Revert {
    /// Name of the transaction [default: the only one]
    #[arg(value_name = "NAME", conflicts_with = "all")]
    name: Option<String>,
    /// Revert all transactions, the last one first
    #[arg(long)]
    all: bool,
    /// Restore values that another program has changed since, too
    #[arg(long)]
    force: bool,
    /// Files below this directory instead of this node's /proc and /sys, for trials
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Command::Show(a) => show(&a)?,
        Command::Apply(a) => return apply(&a),
        Command::Revert(a) => revert(&a)?,
        Command::Verify(a) => return verify::verify(&a),
        Command::Export(a) => export::export(&a)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Target {
    fn profile(&self) -> Result<Profile, TuneError> {
        Profile::find(&self.profile)?.with_also(&self.also)
    }

    fn node(&self) -> Result<colony_doctor::Node, DoctorError> {
        colony_doctor::Node::open(self.root.as_deref().unwrap_or(Path::new("/")), self.cpus.as_ref())
    }

    fn examine(&self) -> Result<Examination, DoctorError> {
        Ok(colony_doctor::examine(&self.node()?))
    }
}

/// The machine, or the files of a trial.
fn linux(root: Option<&Path>) -> Linux {
    root.map_or_else(Linux::new, |root| Linux::below(root, &root.join("run/colony-tune")))
}

/// JSON document of `colony tune show --json`.
#[derive(Serialize)]
struct Shown<'a> {
    schema: &'static str,
    /// `None` if this user may not read the journals.
    transactions: Option<Vec<ShownTransaction>>,
    /// Transactions that units apply again at every boot.
    units: Vec<String>,
    profile: &'a Profile,
    plan: Plan,
}

#[derive(Serialize)]
struct ShownTransaction {
    transaction: Transaction,
    /// State of each step's setting now.
    standings: Vec<Standing>,
}

fn show(a: &Show) -> anyhow::Result<()> {
    let profile = a.target.profile()?;
    let plan = Plan::new(&a.target.examine()?, &profile);
    let linux = linux(a.target.root.as_deref());
    let transactions = match colony_tune::list(&linux) {
        Err(TuneError::Journal { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            note!("applied transactions are shown to root only");
            None
        }
        all => {
            let state = |t: Transaction| {
                let standings = t.steps.iter().map(|s| colony_tune::standing(&linux, s)).collect();
                ShownTransaction { transaction: t, standings }
            };
            Some(all?.into_iter().map(state).collect::<Vec<_>>())
        }
    };
    let units = persist::units(a.target.root.as_deref()).names()?;
    let shown = Shown { schema: "colony.tune.show/1", transactions, units, profile: &profile, plan };
    super::print(a.json, &shown, |s| {
        let pairs = |all: &Vec<ShownTransaction>| -> Vec<_> {
            all.iter().map(|t| (t.transaction.clone(), t.standings.clone())).collect()
        };
        let applied = s.transactions.as_ref().map(|all| view::transactions(&pairs(all)) + "\n");
        applied.unwrap_or_default() + &view::units(&s.units) + &view::plan(&s.plan, s.profile)
    })
}

/// JSON document of `colony tune apply --json`.
#[derive(Serialize)]
struct Made<'a> {
    schema: &'static str,
    transaction: &'a Transaction,
    /// Steps whose settings had the value already.
    unneeded: &'a [colony_tune::Step],
    plan: &'a Plan,
    /// Findings with steps that the doctor finds again after all changes.
    still_found: &'a [String],
    /// The unit that applies the profile again at every boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a Path>,
}

fn apply(a: &Apply) -> anyhow::Result<ExitCode> {
    let mut profile = a.target.profile()?;
    profile.except.extend(a.skip.iter().cloned());
    let node = a.target.node()?;
    let linux = linux(a.target.root.as_deref());
    // an examination before would find settings as a transaction left them that is undone here
    let (_lock, _) = lock(&linux)?;
    let mut plan = Plan::new(&colony_doctor::examine(&node), &profile);
    check_skipped(&a.skip, &plan)?;
    let on_failure = if a.keep_going { OnFailure::KeepGoing } else { OnFailure::Undo };
    let name = a.name.as_ref().unwrap_or(&profile.name);
    let unit = a.persist.then(|| persist::plan(a, name)).transpose()?;
    let applied = colony_tune::apply(&linux, name, plan.steps.clone(), on_failure)?;
    let unit = unit.map(|unit| persist::install(&unit, &linux, &applied)).transpose()?;
    plan.leave_out(&applied.refused);
    let still = still_found(&a.target.examine()?, &applied);
    let made = Made {
        schema: "colony.tune.apply/1",
        transaction: &applied.transaction,
        unneeded: &applied.unneeded,
        plan: &plan,
        still_found: &still,
        unit: unit.as_deref(),
    };
    super::print(a.json, &made, |_| {
        let at_boot = unit.as_ref().and_then(|unit| unit.file_name());
        let at_boot = at_boot.map(|unit| format!("at every boot: {}\n", unit.display()));
        view::applied(&applied, &plan, &still) + &at_boot.unwrap_or_default()
    })?;
    let failed = applied.transaction.steps.iter().any(|s| matches!(s.progress, Progress::Failed { .. }));
    Ok(ExitCode::from(u8::from(failed)))
}

/// Checks that every name is a finding's or a rule's. A unit has these names at boots at which the doctor may not find them.
fn check_skipped(names: &[String], plan: &Plan) -> anyhow::Result<()> {
    let is_known = |name: &String| {
        plan.left_out.iter().any(|l| is_of_rule(&l.id, name))
            || colony_doctor::RULES.iter().any(|rule| is_of_rule(name, rule.id))
    };
    let Some(unknown) = names.iter().find(|name| !is_known(name)) else { return Ok(()) };
    Err(wrong(format!("--skip {unknown}: the doctor finds nothing of this name; colony tune show lists all")))
}

/// Returns `true` if a finding is of a rule, or has this very name.
fn is_of_rule(id: &str, rule: &str) -> bool {
    id == rule || id.split(':').next() == Some(rule)
}

/// Findings with steps that are found again: the change has not taken effect, or not yet.
fn still_found(now: &Examination, applied: &Applied) -> Vec<String> {
    let made =
        |id: &str| applied.transaction.steps.iter().any(|s| s.progress == Progress::Done && s.reason == id);
    now.findings.iter().filter(|f| made(&f.id)).map(|f| f.id.clone()).collect()
}

/// Keeps other transactions out, and undoes those that were interrupted. Returns these, too.
fn lock(linux: &Linux) -> anyhow::Result<(std::fs::File, Vec<Recovered>)> {
    let lock = linux.lock().map_err(|e| {
        let hint = if e.kind() == std::io::ErrorKind::PermissionDenied {
            "; only root changes settings"
        } else {
            ""
        };
        anyhow::anyhow!("the journals of transactions: {e}{hint}")
    })?;
    let recovered = colony_tune::recover(linux).context("undoing a transaction that was interrupted")?;
    for r in &recovered {
        note!(
            "the transaction {} was interrupted; its {} changes are undone",
            r.name,
            r.reverted.undone.len()
        );
    }
    Ok((lock, recovered))
}

/// JSON document of `colony tune revert --json`.
#[derive(Serialize)]
struct AllReverted {
    schema: &'static str,
    reverted: Vec<OneReverted>,
}

#[derive(Serialize)]
struct OneReverted {
    name: String,
    /// Set if the transaction would have been applied again at every boot.
    unit_removed: bool,
    #[serde(flatten)]
    reverted: Reverted,
}

fn revert(a: &Revert) -> anyhow::Result<()> {
    let linux = linux(a.root.as_deref());
    let (_lock, recovered) = lock(&linux)?;
    let units = persist::units(a.root.as_deref());
    let applied: Vec<String> = colony_tune::list(&linux)?.into_iter().map(|t| t.name).collect();
    // a boot at which the unit failed, or a kill between the steps, leaves a unit without a transaction
    let mut all = units.names()?;
    all.retain(|name| !applied.contains(name));
    all.extend(applied.iter().cloned());
    let is_recovered = |name: &String| recovered.iter().any(|r| r.name == *name);
    let names = match (&a.name, &all[..]) {
        // what was asked for is done already
        (Some(name), all) if is_recovered(name) && !all.contains(name) => Vec::new(),
        (Some(name), _) => vec![name.clone()],
        (None, all) if a.all => all.iter().rev().cloned().collect(),
        (None, [only]) => vec![only.clone()],
        (None, []) if !recovered.is_empty() => Vec::new(),
        (None, []) => return Err(wrong("no transaction is applied")),
        (None, all) => return Err(wrong(format!("name one of {}, or give --all", all.join(", ")))),
    };
    let undone = |r: Recovered| OneReverted { name: r.name, unit_removed: false, reverted: r.reverted };
    let mut reverted: Vec<OneReverted> =
        recovered.into_iter().filter(|r| !all.contains(&r.name)).map(undone).collect();
    for name in names {
        // first: a transaction without its unit ends with the boot, a unit without its transaction does not
        let unit_removed = units.remove(&name)?;
        let done = match unit_removed && !applied.contains(&name) {
            true => Reverted::default(),
            false => colony_tune::revert(&linux, &name, a.force)?,
        };
        reverted.push(OneReverted { name, unit_removed, reverted: done });
    }
    let document = AllReverted { schema: "colony.tune.revert/1", reverted };
    super::print(a.json, &document, |d| {
        d.reverted.iter().map(|r| view::reverted(&r.name, &r.reverted, r.unit_removed)).collect()
    })
}
