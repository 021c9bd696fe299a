// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony tune apply --persist`: the same options at every boot.

use std::path::{Path, PathBuf};

use anyhow::Context;
use colony_tune::{Applied, Linux, Profile, Unit, Units};

use super::Apply;

/// The units of the machine, or of a trial.
pub(super) fn units(root: Option<&Path>) -> Units {
    let below = |root: &Path| Units::below(&root.canonicalize().unwrap_or_else(|_| root.to_owned()));
    root.map_or_else(Units::new, below)
}

/// Makes the unit that applies `a` as the transaction `name`, and changes nothing.
pub(super) fn plan(a: &Apply, name: &str) -> anyhow::Result<UnitOf> {
    let units = units(a.target.root.as_deref());
    let program = std::env::current_exe().context("the path of this program")?;
    let mut profile = a.target.profile.clone();
    let mut read = Vec::new();
    if !Profile::BUILT_IN.contains(&profile.as_str()) {
        let file = Path::new(&profile).canonicalize().with_context(|| profile.clone())?;
        let unfit = || format!("{}: a unit needs a path in UTF-8", file.display());
        profile = file.to_str().with_context(unfit)?.to_owned();
        read.push(file);
    }
    let unit = units.plan(name, &program, &arguments(a, name, profile), &read)?;
    Ok(UnitOf { units, unit })
}

/// A unit that is not written yet, and the folder it belongs in.
pub(super) struct UnitOf {
    units: Units,
    unit: Unit,
}

/// The arguments with which the unit calls this program.
fn arguments(a: &Apply, name: &str, profile: String) -> Vec<String> {
    let mut words = vec!["tune".into(), "apply".into(), "--profile".into(), profile];
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    add("--name", name.to_owned());
    a.target.cpus.iter().for_each(|cpus| add("--cpus", cpus.to_string()));
    a.target.also.iter().for_each(|rule| add("--also", rule.clone()));
    a.skip.iter().for_each(|rule| add("--skip", rule.clone()));
    if let Some(root) = &a.target.root {
        add("--root", root.display().to_string());
    }
    words.extend(a.keep_going.then(|| "--keep-going".to_owned()));
    words
}

/// Writes the unit of an applied transaction, and enables it. If this fails, the transaction is reverted.
pub(super) fn install(planned: &UnitOf, linux: &Linux, applied: &Applied) -> anyhow::Result<PathBuf> {
    planned.units.install(&planned.unit).map_err(|e| {
        let name = &applied.transaction.name;
        let is_journalled = !applied.transaction.steps.is_empty();
        match is_journalled.then(|| colony_tune::revert(linux, name, false)) {
            Some(Err(failed)) => anyhow::anyhow!("{e}; the transaction {name} stays applied: {failed}"),
            _ => anyhow::anyhow!("{e}; the transaction {name} is reverted"),
        }
    })
}
