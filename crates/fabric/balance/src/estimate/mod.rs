// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads from measurements, robust against the noise of the operating system.
//!
//! Noise interrupts an object now and then: it must not look like load, or objects move for nothing. A daemon that
//! stays takes its share of a PE in every step: objects must move around it. Both are told apart by persistence.

mod background;
mod load;

pub use background::BackgroundEstimator;
pub use load::LoadEstimator;
