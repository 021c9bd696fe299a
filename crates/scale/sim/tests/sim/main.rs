// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulations against results and figures of others.

mod loggopsim;
mod machines;
