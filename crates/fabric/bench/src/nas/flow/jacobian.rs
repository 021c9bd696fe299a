// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derivatives of the fluxes along a line by the state, as blocks of 5 by 5 numbers for BT.

use super::equations::{CONDUCTION, GAMMA, GAMMA_MINUS_1, NORMAL_VISCOSITY, VISCOSITY};
use super::lines::PackedPrimitive;
use super::pack::Pack;

/// A block of each line: `[row][column]`.
pub(super) type Block = [[Pack; 5]; 5];

/// Derivatives at a point.
#[derive(Clone, Copy)]
pub(super) struct Jacobian {
    /// Derivative of the convective flux.
    pub(super) convective: Block,
    /// Derivative of the viscous flux.
    pub(super) viscous: Block,
}

impl Jacobian {
    pub(super) const ZERO: Self = Self { convective: [[Pack::ZERO; 5]; 5], viscous: [[Pack::ZERO; 5]; 5] };

    #[inline(always)]
    pub(super) fn new(p: &PackedPrimitive) -> Self {
        Self { convective: convective(p), viscous: viscous(p) }
    }
}

#[inline(always)]
fn convective(p: &PackedPrimitive) -> Block {
    let [u, v, w] = p.velocity;
    let zero = Pack::ZERO;
    let one = Pack::splat(1.0);
    let pressure = GAMMA_MINUS_1 * p.kinetic;
    let enthalpy = GAMMA * p.energy - pressure;
    let less = |speed: Pack| (-GAMMA_MINUS_1) * speed;
    [
        [zero, one, zero, zero, zero],
        [pressure - u * u, (2.0 - GAMMA_MINUS_1) * u, less(v), less(w), Pack::splat(GAMMA_MINUS_1)],
        [-(u * v), v, u, zero, zero],
        [-(u * w), w, zero, u, zero],
        [u * (pressure - enthalpy), enthalpy + less(u * u), less(u * v), less(u * w), GAMMA * u],
    ]
}

#[inline(always)]
fn viscous(p: &PackedPrimitive) -> Block {
    const NORMAL: f64 = NORMAL_VISCOSITY * VISCOSITY;
    const HEAT: f64 = CONDUCTION * VISCOSITY;
    let zero = Pack::ZERO;
    let [u, v, w] = p.velocity;
    let (normal, across, heat) = (NORMAL * p.volume, VISCOSITY * p.volume, HEAT * p.volume);
    let (a, b, c) = ((normal - heat) * u, (across - heat) * v, (across - heat) * w);
    [
        [zero; 5],
        [-(normal * u), normal, zero, zero, zero],
        [-(across * v), zero, across, zero, zero],
        [-(across * w), zero, zero, across, zero],
        [-(a * u) - b * v - c * w - heat * p.energy, a, b, c, heat],
    ]
}
