// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verification: a computed value beside the published one.

use serde::{Deserialize, Serialize};

/// A value that a run is verified by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the value.
    pub name: String,
    /// As computed here.
    pub value: f64,
    /// As published with NPB 3.
    pub expected: f64,
    /// Relative difference that is allowed; 0 for counts.
    pub tolerance: f64,
}

impl Check {
    pub(super) fn new(name: &str, value: f64, expected: f64, tolerance: f64) -> Self {
        Self { name: name.into(), value, expected, tolerance }
    }

    /// True if the value is the published one.
    #[must_use]
    pub fn holds(&self) -> bool {
        // written so that NaN does not hold
        (self.value - self.expected).abs() <= self.tolerance * self.expected.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_does_not_hold() {
        assert!(Check::new("x", 1.0 + 1e-9, 1.0, 1e-8).holds());
        for value in [1.0 + 1e-7, f64::NAN, -1.0, f64::INFINITY] {
            assert!(!Check::new("x", value, 1.0, 1e-8).holds(), "{value}");
        }
        assert!(Check::new("count", 51.0, 51.0, 0.0).holds());
        assert!(!Check::new("count", 50.0, 51.0, 0.0).holds());
    }
}
