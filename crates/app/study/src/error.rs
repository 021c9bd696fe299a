// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::PathBuf;

/// A study that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// No experiment of that name.
    #[error("no experiment is called `{name}`; `colony study --list` names all{}",
        near.map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default())]
    Unknown {
        /// The name asked for.
        name: String,
        /// The closest name there is.
        near: Option<&'static str>,
    },
    /// An option that changes nothing in the experiments that were named.
    #[error(
        "{option} has no effect on {experiments}; leave the option out (options with an effect: {effective})"
    )]
    WithoutEffect {
        /// The option.
        option: &'static str,
        /// The experiments, a comma between two.
        experiments: String,
        /// Options that have an effect on one of the experiments.
        effective: String,
    },
    /// A step on this node failed or is not possible here.
    #[error("{what}: {reason}")]
    Step {
        /// The failed step.
        what: String,
        /// Finding and remedy.
        reason: String,
    },
    /// The projection was refused.
    #[error("cannot project: {0}")]
    Sim(#[from] colony_sim::SimError),
    /// A parameter is out of range.
    #[error("{0}")]
    Params(String),
    /// A results file of another schema, or none at all.
    #[error("{path} is no result of a study ({reason}); make one with `colony study`")]
    Results {
        /// The file.
        path: PathBuf,
        /// The fault found.
        reason: String,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}; choose another folder with --out")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl StudyError {
    /// Returns `true` for wrong use (exit code 2), and `false` if the study itself failed.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::WithoutEffect { .. } | Self::Params(_))
    }
}

/// The error of a step that failed.
pub(crate) fn step(what: &str, reason: &dyn std::fmt::Display) -> StudyError {
    StudyError::Step { what: what.into(), reason: reason.to_string() }
}
