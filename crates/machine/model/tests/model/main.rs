// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as data, by its public interface.

mod allocation;
mod personalities;
mod places;
mod plans;
