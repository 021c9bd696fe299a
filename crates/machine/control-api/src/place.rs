// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of jobs, in JSON.

use colony_model::Shape;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The nodes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobBlock {
    /// Coordinates of the first node in the machine.
    pub origin: [u32; 3],
    /// Compute nodes along x, y and z.
    #[schema(value_type = String)]
    pub shape: Shape,
}

/// The nodes of a partition that jobs can have now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FreeNodes {
    /// Their number.
    pub nodes: u32,
    /// The largest block of them.
    #[schema(value_type = Option<String>)]
    pub largest: Option<Shape>,
    /// The share of them that is outside of that block.
    pub fragmentation: f64,
}
