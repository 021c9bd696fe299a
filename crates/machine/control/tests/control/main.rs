// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control daemon, without nodes.

mod daemon;
mod web;
