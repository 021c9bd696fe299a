// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outline of an image, which the buddy gets before the bytes.

use serde::{Deserialize, Serialize};

/// Where the buddy takes a piece from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// From the parts that follow: so many bytes.
    Sent(u64),
    /// From the image before, by its place there.
    Kept(u32),
}

/// The pieces of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outline {
    /// The checkpoint whose image has the pieces that are kept.
    pub(crate) base: Option<u64>,
    pub(crate) sources: Vec<Source>,
}
