// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[clock]` of the configuration.

use serde::{Deserialize, Serialize};

/// `[clock]` of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockRules {
    /// The largest error that windows are coordinated with; without it a tenth of the regular window. Never more
    /// than a quarter of that, which its guards leave half of.
    #[serde(
        with = "colony_sched::notation::some_ns",
        rename = "max_error",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_error_ns: Option<u64>,
    /// What the error of a disciplined clock is believed to be, instead of what the kernel says.
    #[serde(
        with = "colony_sched::notation::some_ns",
        rename = "error_bound",
        skip_serializing_if = "Option::is_none"
    )]
    pub error_bound_ns: Option<u64>,
    /// What to do where coordination is given up.
    pub fallback: Fallback,
}

/// What a node does whose clock is not good enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// It keeps its windows by its own clock as it is, without guards.
    #[default]
    OwnPhase,
    /// It keeps no windows: the job has its own class.
    Off,
}
