// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs and choices of changes.

mod changes;
mod choose;
