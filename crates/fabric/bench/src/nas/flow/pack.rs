// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of several lines of the grid side by side, for vector instructions.

use std::array::from_fn;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

/// Lines that are solved side by side.
pub(super) const LANES: usize = 2;

/// A number for each line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pack(pub(super) [f64; LANES]);

impl Pack {
    pub(super) const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    pub(super) const fn splat(value: f64) -> Self {
        Self([value; LANES])
    }
}

macro_rules! elementwise {
    ($($trait:ident $method:ident $operator:tt),*) => {$(
        impl $trait for Pack {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(from_fn(|lane| self.0[lane] $operator other.0[lane]))
            }
        }
    )*};
}

elementwise!(Add add +, Sub sub -, Mul mul *, Div div /);

impl Mul<Pack> for f64 {
    type Output = Pack;
    #[inline(always)]
    fn mul(self, other: Pack) -> Pack {
        Pack(other.0.map(|value| self * value))
    }
}

impl Add<Pack> for f64 {
    type Output = Pack;
    #[inline(always)]
    fn add(self, other: Pack) -> Pack {
        Pack(other.0.map(|value| self + value))
    }
}

impl Div<Pack> for f64 {
    type Output = Pack;
    #[inline(always)]
    fn div(self, other: Pack) -> Pack {
        Pack(other.0.map(|value| self / value))
    }
}

impl Neg for Pack {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.map(|value| -value))
    }
}

impl AddAssign for Pack {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Pack {
    #[inline(always)]
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}
