// SPDX-License-Identifier: MIT OR Apache-2.0
//! The three simulated applications of the NAS Parallel Benchmarks (RNR-94-007, chapter 3): LU, SP and BT.
//!
//! Each marches the compressible Navier-Stokes equations on a cube in pseudo-time to a steady state. The equations, the
//! discretization in space, the exact solution and the initial values are the same in all three ([`field`], [`residual`]).
//! The implicit solver of a time step is what differs: [`lu`], [`sp`] and [`bt`].

pub(super) mod bt;
mod equations;
mod field;
mod grid;
mod integral;
mod jacobian;
mod lines;
pub(super) mod lu;
mod pack;
mod problem;
mod residual;
pub(super) mod sp;
mod stencil;
