// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles: a selection of rules, and settings beside them.

use std::path::Path;

use colony_doctor::{Finding, Level, RULES};
use serde::{Deserialize, Serialize};

use crate::error::TuneError;
use crate::transaction::{check_file, check_name};

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

    /// For nodes of batch jobs: every remedy that costs the job neither memory, nor threads of a core, nor clock frequency, and
    /// leaves the kernel's protection against real-time tasks that never sleep.
    fn hpc() -> Self {
        let except = ["swap", "smt", "clock-discipline", "turbo", "idle-states", "rt-throttling"];
        Self::built_in("hpc", "nodes of batch jobs", &except)
    }

    /// For programs that answer within microseconds: clock frequency and idle states are fixed too, which costs energy, and
    /// real-time tasks are not throttled.
    fn latency() -> Self {
        let except = ["swap", "smt", "clock-discipline"];
        Self::built_in("latency", "programs that answer within microseconds; costs energy", &except)
    }

    fn built_in(name: &str, description: &str, except: &[&str]) -> Self {
        let except = except.iter().map(|r| (*r).to_owned()).collect();
        let (name, description) = (name.to_owned(), description.to_owned());
        Self { name, description, level: low(), only: Vec::new(), except, set: Vec::new() }
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
        let rules = || RULES.iter().map(|r| r.id);
        for named in profile.only.iter().chain(&profile.except) {
            let rule = named.split(':').next().unwrap_or_default();
            if !rules().any(|r| r == rule) {
                let all = rules().collect::<Vec<_>>().join(", ");
                return Err(format!("there is no rule {named}; the rules are {all}"));
            }
        }
        profile.set.iter().try_for_each(|s| check_file(&s.file)).map_err(|e| e.to_string())?;
        Ok(profile)
    }

    /// Returns the reason why a finding's remedies are left out; `None` if they are applied.
    pub(crate) fn leaves_out(&self, finding: &Finding) -> Option<String> {
        let names = |list: &[String]| {
            let rule = finding.id.split(':').next().unwrap_or_default();
            list.iter().any(|named| *named == finding.id || named == rule)
        };
        if names(&self.except) || !self.only.is_empty() && !names(&self.only) {
            return Some(format!("not in the profile {}", self.name));
        }
        let below = finding.level < self.level;
        below
            .then(|| format!("severity {}, the profile asks for {}", finding.level.name(), self.level.name()))
    }
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
