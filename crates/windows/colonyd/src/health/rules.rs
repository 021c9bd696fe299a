// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[health]` of the configuration.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The shortest period at which Slurm is asked, in nanoseconds: every node asks the one controller.
const SHORTEST: u64 = 10 * colony_time::NS_PER_S;

/// The largest margin below a critical temperature, in degrees.
const LARGEST_MARGIN: u32 = 100;

/// `[health]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthRules {
    /// Watch the node, and write the health file.
    pub watch: bool,
    /// The most corrected memory errors of a controller in an hour that are no warning.
    pub corrected_errors_per_hour: u64,
    /// The most times in an hour that CPUs are throttled without a warning.
    pub throttles_per_hour: u64,
    /// Degrees Celsius below a critical trip point at which a thermal zone warns. Without it, no zone is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical_margin: Option<u32>,
    /// The path of `scontrol`. Without it, Slurm is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scontrol: Option<PathBuf>,
    /// The period at which Slurm is asked, in nanoseconds.
    #[serde(with = "colony_time::notation::ns", rename = "slurm_period")]
    pub slurm_period_ns: u64,
    /// The name of this node in Slurm. Default: its host name without the domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_node: Option<String>,
    /// The folder that `/sys` is at.
    pub sysfs: PathBuf,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            watch: true,
            corrected_errors_per_hour: 100,
            throttles_per_hour: 100,
            critical_margin: None,
            scontrol: None,
            slurm_period_ns: 60 * colony_time::NS_PER_S,
            slurm_node: None,
            sysfs: "/sys".into(),
        }
    }
}

/// Rules that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HealthRulesError {
    /// A path is relative.
    #[error("[health] {key} = \"{path}\" is no absolute path; write one such as {example}")]
    Relative {
        /// The key.
        key: &'static str,
        /// The path.
        path: PathBuf,
        /// A path that can be.
        example: &'static str,
    },
    /// Slurm would be asked too often.
    #[error("[health] slurm_period is shorter than 10s; every node asks Slurm's controller at this period")]
    Period,
    /// The margin is larger than any temperature of a node.
    #[error("[health] critical_margin = {0} is more than 100 degrees; write a few degrees")]
    Margin(u32),
    /// The name is none of a node.
    #[error("[health] slurm_node = \"{0}\" is no name of a node; write it as in slurm.conf")]
    Node(String),
}

impl HealthRules {
    /// Checks the rules.
    ///
    /// # Errors
    /// [`HealthRulesError`].
    pub fn check(&self) -> Result<(), HealthRulesError> {
        let paths =
            [("scontrol", self.scontrol.as_ref(), "/usr/bin/scontrol"), ("sysfs", Some(&self.sysfs), "/sys")];
        for (key, path, example) in paths {
            if let Some(path) = path.filter(|path| !path.is_absolute()) {
                return Err(HealthRulesError::Relative { key, path: path.clone(), example });
            }
        }
        if self.slurm_period_ns < SHORTEST {
            return Err(HealthRulesError::Period);
        }
        if let Some(margin) = self.critical_margin.filter(|&margin| margin > LARGEST_MARGIN) {
            return Err(HealthRulesError::Margin(margin));
        }
        let is_name = |name: &String| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !name.is_empty() && !name.starts_with('-') && name.chars().all(plain)
        };
        match self.slurm_node.as_ref().filter(|name| !is_name(name)) {
            Some(name) => Err(HealthRulesError::Node(name.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cannot_be_applied_are_named() {
        let base = HealthRules::default();
        assert_eq!(base.check(), Ok(()));
        for (rules, part) in [
            (HealthRules { scontrol: Some("scontrol".into()), ..base.clone() }, "/usr/bin/scontrol"),
            (HealthRules { sysfs: "sys".into(), ..base.clone() }, "sysfs = \"sys\""),
            (HealthRules { slurm_period_ns: 1, ..base.clone() }, "shorter than 10s"),
            (HealthRules { critical_margin: Some(101), ..base.clone() }, "critical_margin = 101"),
            (HealthRules { slurm_node: Some("-a".into()), ..base.clone() }, "slurm_node = \"-a\""),
            (HealthRules { slurm_node: Some(String::new()), ..base.clone() }, "slurm_node"),
        ] {
            let error = rules.check().expect_err(part).to_string();
            assert!(error.contains(part) && error.starts_with("[health]"), "{error}");
        }
    }
}
