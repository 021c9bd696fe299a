// SPDX-License-Identifier: MIT OR Apache-2.0
//! The surface integral by which LU is verified.

use std::ops::RangeInclusive;

use super::equations::Primitive;
use super::field::Field;

/// Integral of the pressure over the faces of a box within the grid (report, 3.4.2; NPB's `pintgr`), by the trapezoidal rule.
pub(super) fn pressure_integral(field: &Field) -> f64 {
    let n = field.grid.points;
    let sides: [RangeInclusive<usize>; 3] = [1..=n - 2, 1..=n - 3, 2..=n - 2];
    let pressure = |point: [usize; 3]| Primitive::new(&field.states[field.grid.index(point)]).pressure;
    let mut sum = 0.0;
    for (axis, (across, along)) in [(2, (0, 1)), (1, (0, 2)), (0, (1, 2))] {
        for face in [*sides[axis].start(), *sides[axis].end()] {
            for a in *sides[along].start()..*sides[along].end() {
                for b in *sides[across].start()..*sides[across].end() {
                    for (da, db) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        let mut corner = [face; 3];
                        corner[along] = a + da;
                        corner[across] = b + db;
                        sum += pressure(corner);
                    }
                }
            }
        }
    }
    0.25 * field.grid.spacing() * field.grid.spacing() * sum
}
