// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published values, as the rows of experiments cite them.

use crate::results::Basis;

/// A value that a document states of exactly the quantity of a row, and the origin of our figure beside it.
///
/// A sentence such as "almost identical" is no value: it is among the quotations of its experiment
/// ([`Experiment::published`](super::Experiment::published)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cited {
    /// The value and its unit, as the document has them.
    pub(super) text: &'static str,
    /// The value in the unit of our figure: nanoseconds, a ratio, a share of one, or a count. `None` if the document gives a
    /// limit only, which no error can be stated of.
    pub(super) value: Option<f64>,
    /// Origin of our figure.
    pub(super) basis: Basis,
}

impl Cited {
    /// A value.
    pub(super) const fn value(text: &'static str, value: f64, basis: Basis) -> Self {
        Self { text, value: Some(value), basis }
    }

    /// A time that a document gives in microseconds.
    pub(super) const fn us(text: &'static str, us: f64, basis: Basis) -> Self {
        Self::value(text, us * 1e3, basis)
    }

    /// A time that a document gives in seconds.
    pub(super) const fn s(text: &'static str, s: f64, basis: Basis) -> Self {
        Self::value(text, s * 1e9, basis)
    }

    /// An upper or lower limit: "up to 30 %", "over 9900 µs".
    pub(super) const fn limit(text: &'static str, basis: Basis) -> Self {
        Self { text, value: None, basis }
    }
}
