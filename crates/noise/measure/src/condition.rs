// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event at which a measurement ends: `detour > 50us`, or `latency > 50us`.

use std::fmt;
use std::str::FromStr;

use colony_time::text::{Ns, TextError, parse_ns};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The quantities that a measurement compares with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The length of a detour.
    Detour,
    /// A wake-up latency.
    Latency,
}

impl Quantity {
    /// The word of the condition.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Detour => "detour",
            Self::Latency => "latency",
        }
    }
}

/// A condition on the length of a detour or on a wake-up latency, as users write it: `detour > 50us`, `latency >= 50us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The quantity that is compared.
    pub quantity: Quantity,
    /// The limit, nanoseconds.
    pub limit_ns: u64,
    /// True if exactly the limit meets the condition (`>=`).
    pub includes_limit: bool,
}

impl Condition {
    /// Checks that the condition is about what a measurement observes.
    ///
    /// # Errors
    /// [`ConditionError::Latency`] or [`ConditionError::Detour`] if not.
    pub fn check(self, observed: Quantity) -> Result<(), ConditionError> {
        match self.quantity {
            quantity if quantity == observed => Ok(()),
            Quantity::Latency => Err(ConditionError::Latency(self)),
            Quantity::Detour => Err(ConditionError::Detour(self)),
        }
    }

    /// The shortest detour or latency that meets the condition, nanoseconds.
    #[must_use]
    pub const fn at_least_ns(self) -> u64 {
        if self.includes_limit { self.limit_ns } else { self.limit_ns.saturating_add(1) }
    }
}

/// Text that is no condition, or a condition that does not fit the measurement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// A latency, where detours are measured.
    #[error(
        "`{0}` is a condition on a wake-up latency, which is measured with --wakeups; without, write `detour > TIME`"
    )]
    Latency(Condition),
    /// A detour, where latencies are measured.
    #[error(
        "`{0}` is a condition on a detour, which is measured without --wakeups; with it, write `latency > TIME`"
    )]
    Detour(Condition),
    /// The form of the text is unknown.
    #[error(
        "`{0}` is no condition; write `detour > TIME` or `detour >= TIME`, such as `detour > 50us`; with --wakeups `latency > TIME`"
    )]
    Form(String),
    /// The time after the sign of comparison.
    #[error(
        "`{text}` is no condition: {error}; write `detour > TIME` or `detour >= TIME`, such as `detour > 50us`; with --wakeups \
         `latency > TIME`"
    )]
    Time {
        /// The whole text.
        text: String,
        /// The reason for which the time is refused.
        error: TextError,
    },
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let form = || ConditionError::Form(text.to_owned());
        let begins_with =
            |quantity: Quantity| Some((quantity, text.trim().strip_prefix(quantity.word())?.trim_start()));
        let (quantity, comparison) =
            begins_with(Quantity::Detour).or_else(|| begins_with(Quantity::Latency)).ok_or_else(form)?;
        let behind_sign = comparison.strip_prefix('>').ok_or_else(form)?;
        let (time, includes_limit) =
            behind_sign.strip_prefix('=').map_or((behind_sign, false), |time| (time, true));
        let limit_ns =
            parse_ns(time).map_err(|error| ConditionError::Time { text: text.to_owned(), error })?;
        Ok(Self { quantity, limit_ns, includes_limit })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.includes_limit { ">=" } else { ">" };
        write!(f, "{} {sign} {}", self.quantity.word(), Ns(self.limit_ns))
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_is_met_by_longer_detours_and_by_its_own_length_if_it_says_so() {
        let parsed = |text: &str| text.parse::<Condition>().expect(text);
        assert_eq!(parsed("detour > 50us").at_least_ns(), 50_001);
        assert_eq!(parsed(" detour>=1.5ms ").at_least_ns(), 1_500_000);
        assert_eq!(parsed("detour > 50us").to_string(), "detour > 50us");
        assert_eq!(parsed("latency > 50us").quantity, Quantity::Latency);
    }

    #[test]
    fn a_condition_on_another_quantity_than_the_observed_one_is_refused() {
        let condition: Condition = "latency > 50us".parse().expect("a condition");
        assert_eq!(condition.check(Quantity::Latency), Ok(()));
        let error = condition.check(Quantity::Detour).expect_err("detours are observed").to_string();
        assert!(error.contains("`latency > 50us`") && error.contains("--wakeups"), "{error}");
    }

    #[test]
    fn the_error_names_what_is_accepted() {
        for bad in [
            "",
            "50us",
            "detour",
            "detour 50us",
            "detour < 50us",
            "noise > 50us",
            "detour > 50",
            "detour >> 1us",
        ] {
            let error = bad.parse::<Condition>().expect_err(bad).to_string();
            assert!(error.contains("`detour > TIME` or `detour >= TIME`"), "{error}");
        }
        let error = "detour > 50".parse::<Condition>().expect_err("no unit").to_string();
        assert!(error.contains("use ns, us, ms, s, min or h"), "{error}");
    }

    proptest! {
        #[test]
        fn a_condition_that_is_printed_is_read_again(limit_ns: u64, includes_limit: bool, is_latency: bool) {
            let quantity = if is_latency { Quantity::Latency } else { Quantity::Detour };
            let condition = Condition { quantity, limit_ns, includes_limit };
            prop_assert_eq!(condition.to_string().parse(), Ok(condition));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Condition>();
        }
    }
}
