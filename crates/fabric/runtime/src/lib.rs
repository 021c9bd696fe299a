// SPDX-License-Identifier: MIT OR Apache-2.0
//! draft
mod address;
mod bulk;
mod index;
pub mod location;
pub mod order;
pub use address::{Address, ArrayId};
pub use bulk::Bulk;
pub use index::{ArrayIndex, Index};
