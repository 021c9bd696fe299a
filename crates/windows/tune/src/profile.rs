// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles: a selection of rules, and settings beside them.

use std::path::Path;

use colony_doctor::remedy::{Loss, Remedy};
use colony_doctor::{Finding, Level, RULES};
use serde::{Deserialize, Serialize};

use crate::error::TuneError;
use crate::place::check_file;
use crate::transaction::check_name;

/// The largest profile file, bytes.
const LARGEST: u64 = 1 << 20;

/// A selection of the doctor's rules, and settings beside them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name; transactions have it by default.
    pub name: String,
    /// One sentence: the nodes it is for.
    #[serde(default)]
    pub description: String,
    /// The least severity of findings whose remedies are applied.
    #[serde(default = "low")]
    pub level: Level,
    /// Rules whose remedies are applied; empty: all rules.
    #[serde(default)]
    pub only: Vec<String>,
    /// Rules whose remedies are left out.
    #[serde(default)]
    pub except: Vec<String>,
    /// Rules whose remedies are applied whatever they cost, and however low the severity of the finding is.
    #[serde(default)]
    pub also: Vec<String>,
    /// Losses that remedies may bring. A remedy with another loss is applied only if `only` or `also` names its rule.
    #[serde(default)]
    pub accept: Vec<Loss>,
    /// Settings that are made whatever the doctor finds.
    #[serde(default)]
    pub set: Vec<Setting>,
}

/// A value in a file below `/proc` or `/sys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The file.
    pub file: String,
    /// The value.
    pub value: String,
}

const fn low() -> Level {
    Level::Low
}

impl Profile {
    /// Names of the built-in profiles.
    pub const BUILT_IN: [&str; 2] = ["hpc", "latency"];

    /// The profile of this name, or in this file (TOML).
    ///
    /// # Errors
    /// [`TuneError::Profile`].
    pub fn find(name: &str) -> Result<Self, TuneError> {
        match name {
            "hpc" => Ok(Self::hpc()),
            "latency" => Ok(Self::latency()),
            file => Self::read(Path::new(file)),
        }
    }

    /// For nodes of batch jobs: every remedy without a [loss](Loss). Memory, hardware threads and clock frequency stay, and so does the
    /// kernel's protection of ordinary tasks from real-time tasks that never sleep.
    fn hpc() -> Self {
        Self::built_in("hpc", "nodes of batch jobs", &[])
    }

    /// For programs that answer within microseconds: clock frequency and idle states are fixed too, which costs energy, and
    /// ordinary tasks lose their protection from real-time tasks.
    fn latency() -> Self {
        let accept = [Loss::Frequency, Loss::Protection];
        Self::built_in("latency", "programs that answer within microseconds; costs energy", &accept)
    }

    fn built_in(name: &str, description: &str, accept: &[Loss]) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            level: low(),
            only: Vec::new(),
            except: Vec::new(),
            also: Vec::new(),
            accept: accept.to_vec(),
            set: Vec::new(),
        }
    }

    /// The profile with further rules whose remedies are applied whatever they cost.
    ///
    /// # Errors
    /// [`TuneError::Profile`] if there is no such rule.
    pub fn with_also(mut self, rules: &[String]) -> Result<Self, TuneError> {
        check_rules(rules).map_err(|reason| TuneError::Profile { name: self.name.clone(), reason })?;
        self.also.extend_from_slice(rules);
        Ok(self)
    }

    fn read(path: &Path) -> Result<Self, TuneError> {
        let wrong = |reason: String| TuneError::Profile { name: path.display().to_string(), reason };
        let built_in = Self::BUILT_IN.join(", ");
        let found = std::fs::metadata(path)
            .map_err(|e| wrong(format!("{e}; built in are {built_in}, and others are TOML files")))?;
        if !found.is_file() || found.len() > LARGEST {
            return Err(wrong("it is no regular file of at most 1 MiB".into()));
        }
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Reads a profile, and checks its rules and files.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let profile: Self = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        check_name(&profile.name).map_err(|e| e.to_string())?;
        for rules in [&profile.only, &profile.except, &profile.also] {
            check_rules(rules)?;
        }
        if profile.accept.contains(&Loss::Limit) {
            return Err(
                "limits have owners, so `accept` cannot stand for all of them: name the rule in `also`"
                    .into(),
            );
        }
        profile.set.iter().try_for_each(|s| check_file(&s.file)).map_err(|e| e.to_string())?;
        Ok(profile)
    }

    /// Returns the reason why a finding's remedies are left out; `None` if they are applied.
    pub(crate) fn leaves_out(&self, finding: &Finding) -> Option<String> {
        if names(&self.except, finding) {
            return Some(format!("not in the profile {}", self.name));
        }
        if names(&self.also, finding) {
            return None;
        }
        if !self.only.is_empty() && !names(&self.only, finding) {
            return Some(format!("not in the profile {}", self.name));
        }
        let below = finding.level < self.level;
        below
            .then(|| format!("severity {}, the profile asks for {}", finding.level.name(), self.level.name()))
    }

    /// Returns the reason why a remedy with a loss is not applied, and the option that applies it; `None` if it is applied.
    pub(crate) fn refuses(&self, finding: &Finding, remedy: &Remedy) -> Option<String> {
        if names(&self.only, finding) || names(&self.also, finding) {
            return None;
        }
        let loss = remedy.losses.iter().find(|loss| !self.accept.contains(loss))?;
        let lost = match loss {
            Loss::Memory => "costs memory".to_owned(),
            Loss::Threads => "costs hardware threads".to_owned(),
            Loss::Frequency => "costs clock frequency".to_owned(),
            Loss::Protection => "ordinary tasks may wait for ever behind a real-time task".to_owned(),
            Loss::Service => "starts or stops a service of the node".to_owned(),
            Loss::Limit => format!("changes limits of {}", finding.owners.join(", ")),
        };
        Some(format!("{lost}: made only with --also {}", rule(finding)))
    }
}

/// The name of the finding's rule.
fn rule(finding: &Finding) -> &str {
    finding.id.split(':').next().unwrap_or_default()
}

/// Returns `true` if a list has the finding, or its rule.
fn names(list: &[String], finding: &Finding) -> bool {
    list.iter().any(|named| *named == finding.id || named == rule(finding))
}

/// Checks that every name is a rule's, or that of a finding of a rule.
fn check_rules(named: &[String]) -> Result<(), String> {
    let is_rule = |name: &String| {
        let rule = name.split(':').next().unwrap_or_default();
        RULES.iter().any(|r| r.id == rule)
    };
    let Some(unknown) = named.iter().find(|name| !is_rule(name)) else { return Ok(()) };
    let all = RULES.iter().map(|r| r.id).collect::<Vec<_>>().join(", ");
    Err(format!("there is no rule {unknown}; the rules are {all}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_it_selects_and_mistakes_are_named() {
        let text = "name = \"mine\"\nlevel = \"medium\"\nexcept = [\"swap\"]\n[[set]]\nfile = \"/proc/sys/vm/swappiness\"\nvalue = \"0\"\n";
        let profile = Profile::parse(text).expect("right");
        assert_eq!((profile.level, profile.set.len()), (Level::Medium, 1));
        for (wrong, word) in [
            ("name = \"a b\"", "no name"),
            ("level = \"low\"", "name"),
            ("name = \"x\"\nonly = [\"irqs\"]", "irq-movable"),
            ("name = \"x\"\n[[set]]\nfile = \"/etc/shadow\"\nvalue = \"\"", "/etc/shadow"),
            ("name = \"x\"\nfoo = 1", "foo"),
            ("name = \"x\"\nalso = [\"irqs\"]", "irq-movable"),
            ("name = \"x\"\naccept = [\"limit\"]", "name the rule in `also`"),
            ("name = \"x\"\naccept = [\"everything\"]", "everything"),
        ] {
            let error = Profile::parse(wrong).expect_err("a mistake");
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn built_in_profiles_name_rules_that_exist() {
        for name in Profile::BUILT_IN {
            let profile = Profile::find(name).expect("built in");
            assert_eq!(profile.name, name);
            for rule in &profile.except {
                assert!(RULES.iter().any(|r| r.id == rule), "{rule}");
            }
        }
        assert!(
            Profile::find("/no/such").expect_err("no file").to_string().contains("built in are hpc, latency")
        );
    }
}
