// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of one rule.

use crate::finding::{Evidence, Finding};
use crate::root::Unread;

/// The result of one rule.
pub(crate) enum Outcome {
    /// One or more findings.
    Found(Vec<Finding>),
    /// Nothing is wrong, as this value shows.
    Passed(Evidence),
    /// The reason why the rule cannot tell.
    Undecided(String),
}

/// The result of one rule; a file that could not be read leaves it undecided.
pub(crate) type Checked = Result<Outcome, Unread>;

impl Outcome {
    /// Nothing is wrong, as the value of this file shows.
    pub(crate) fn passed(file: impl Into<String>, value: impl AsRef<str>) -> Checked {
        Ok(Self::Passed(Evidence::new(file, value)))
    }

    pub(crate) fn undecided(reason: impl Into<String>) -> Checked {
        Ok(Self::Undecided(reason.into()))
    }
}

impl From<Finding> for Checked {
    fn from(finding: Finding) -> Self {
        Ok(Outcome::Found(vec![finding]))
    }
}
