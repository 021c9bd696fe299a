// SPDX-License-Identifier: MIT OR Apache-2.0
//! Differences along one direction, for each point of a line.

/// Weights of the points at distance -2, -1, 0, 1 and 2.
pub(super) type Weights = [f64; 5];

/// The second difference.
const SECOND: Weights = [0.0, 1.0, -2.0, 1.0, 0.0];

/// Fourth difference at a point of a line of `points` points (report, 3.3). Next to the boundary it is one-sided and does not
/// use the boundary's own values; on the boundary it is 0.
pub(super) fn fourth_difference(point: usize, points: usize) -> Weights {
    let to_boundary = point.min(points - 1 - point);
    let weights = match to_boundary {
        0 => [0.0; 5],
        1 => [0.0, 0.0, 5.0, -4.0, 1.0],
        2 => [0.0, -4.0, 6.0, -4.0, 1.0],
        _ => [1.0, -4.0, 6.0, -4.0, 1.0],
    };
    if point == to_boundary { weights } else { mirror(weights) }
}

const fn mirror([a, b, c, d, e]: Weights) -> Weights {
    [e, d, c, b, a]
}

/// For each point of a line: `diffusion` times the second difference, less `dissipation` times the fourth.
pub(super) fn smoothing(points: usize, diffusion: f64, dissipation: f64) -> Vec<Weights> {
    let one = |point| {
        let fourth = fourth_difference(point, points);
        std::array::from_fn(|i| diffusion * SECOND[i] - dissipation * fourth[i])
    };
    (0..points).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_symmetric_and_do_not_use_the_boundary() {
        let lines: Vec<Weights> = (0..12).map(|point| fourth_difference(point, 12)).collect();
        for (point, weights) in lines.iter().enumerate() {
            assert_eq!(*weights, mirror(lines[11 - point]));
            for (i, weight) in weights.iter().enumerate() {
                let other = (point + i).checked_sub(2);
                assert!(matches!(other, Some(1..11)) || *weight == 0.0, "{point} {weights:?}");
            }
        }
        assert_eq!(lines[5], [1.0, -4.0, 6.0, -4.0, 1.0]);
    }
}
