// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network between a node and its proxy.

use serde::{Deserialize, Serialize};

/// Ethernet address of a proxy, and so of the card of an I/O node: locally administered. Compute nodes answer to it.
pub const PROXY_ADDRESS: [u8; 6] = [0x02, b'c', b'i', b'o', b'd', 0];

/// Properties of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Bytes that it carries behind an Ethernet header, 1500 … 9000; the node's device must have the same.
    pub mtu: u16,
    /// Lose every frame of this number, both ways: to see that nothing depends on the link.
    pub lose_every: Option<u32>,
}

impl Default for Network {
    fn default() -> Self {
        Self { mtu: colony_fship::frame::MTU_MOST, lose_every: None }
    }
}
