// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users who may run jobs on a partition, in JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// A user, by name or number.
    User(String),
    /// A group, by name or number.
    Group(String),
}

/// A change of those who may run jobs on a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RightsRequest {
    /// The user or group.
    pub holder: Holder,
    /// Whether the user or the members of the group may run jobs. When nobody is left who may, all users may again.
    pub may_run: bool,
}
