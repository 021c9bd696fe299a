// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of strategies, from text and from tables.

use serde::de::DeserializeOwned;

use super::Strategy;
use crate::error::BalanceError;

/// The value of an option on a command line: a number, a truth value, or else a word.
pub(super) fn value(text: &str) -> toml::Value {
    text.parse::<i64>()
        .map(toml::Value::Integer)
        .or_else(|_| text.parse().map(toml::Value::Float))
        .or_else(|_| text.parse().map(toml::Value::Boolean))
        .unwrap_or_else(|_| toml::Value::String(text.to_owned()))
}

/// Checks of an option's value beyond its type.
pub(super) trait Checked {
    /// The problem with the values, if there is one.
    fn problem(&self) -> Option<String> {
        None
    }
}

/// A strategy of its options; those left out have their default.
pub(super) fn make<S: Strategy + Checked + DeserializeOwned + 'static>(
    name: &str,
    options: toml::Table,
) -> Result<Box<dyn Strategy>, BalanceError> {
    let fail = |problem: String| BalanceError::Option { strategy: name.to_owned(), problem };
    let strategy: S = options.try_into().map_err(|e: toml::de::Error| fail(e.message().to_owned()))?;
    match strategy.problem() {
        Some(problem) => Err(fail(problem)),
        None => Ok(Box::new(strategy)),
    }
}

/// The problem with a tolerance that is not from 1 to 100.
pub(super) fn tolerance_problem(tolerance: f64) -> Option<String> {
    (!(1.0..=100.0).contains(&tolerance))
        .then(|| format!("the tolerance is {tolerance}; it must be a number from 1 to 100"))
}
