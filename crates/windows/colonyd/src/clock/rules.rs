// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[clock]` of the configuration.

use serde::{Deserialize, Serialize};

/// `[clock]` of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockRules {
    /// The largest clock error with which windows are coordinated. Default: a tenth of the regular window. At most a quarter
    /// of the regular window counts, so that the guards leave half of it.
    #[serde(
        with = "colony_time::notation::some_ns",
        rename = "max_error",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_error_ns: Option<u64>,
    /// The error bound of a disciplined clock, instead of the bound that the kernel reports.
    #[serde(
        with = "colony_time::notation::some_ns",
        rename = "error_bound",
        skip_serializing_if = "Option::is_none"
    )]
    pub error_bound_ns: Option<u64>,
    /// The fallback if the windows cannot be coordinated.
    pub fallback: Fallback,
}

/// The action of a node whose clock error is too large or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// It enforces its windows on its own clock, without guards.
    #[default]
    OwnPhase,
    /// It enforces no windows: the job keeps its own class.
    Off,
}
