// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lives of nodes, and what is left of them at a random moment.

use libm::{lgamma, tgamma};

/// The Weibull distribution of a node's life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    shape: f64,
    scale_s: f64,
    /// 1 / shape.
    inverse: f64,
}

impl Lifetime {
    /// With this mean, in seconds, and shape; shape 1 is exponential.
    pub(crate) fn new(mean_s: f64, shape: f64) -> Self {
        let inverse = 1.0 / shape;
        Self { shape, scale_s: mean_s / tgamma(1.0 + inverse), inverse }
    }

    /// The age of a node, new at first, at which its cumulative hazard is `hazard`.
    pub(crate) fn age_at(&self, hazard: f64) -> f64 {
        self.scale_s * hazard.powf(self.inverse)
    }

    /// The same for a node in the middle of its life: its residual life is distributed with the density S(x) / mean (Cox,
    /// "Renewal theory", 1962, section 5.2), and ∫S / mean = P(1/k, (x/λ)^k), the regularized lower incomplete gamma
    /// function.
    pub(crate) fn residual_at(&self, hazard: f64) -> f64 {
        if self.shape == 1.0 {
            return self.scale_s * hazard;
        }
        self.scale_s * inverse_gamma(self.inverse, hazard).powf(self.inverse)
    }
}

/// The `z` with −ln Q(a, z) = `hazard`, within 1e-9 of it: Newton's method on ln z, held between bounds. `z` of 0 for a
/// hazard of 0.
fn inverse_gamma(a: f64, hazard: f64) -> f64 {
    let target = -(-hazard).exp_m1();
    if target <= 0.0 {
        return 0.0;
    }
    // P(a, z) ≈ z^a / Γ(a + 1) for a small z (DLMF 8.7.1); beyond the middle, Q falls like e^-z
    let small = ((target.ln() + lgamma(a + 1.0)) / a).exp();
    let mut z = if hazard > 1.0 { small.max(hazard) } else { small };
    let (mut low, mut high) = (0.0_f64, f64::INFINITY);
    for _ in 0..80 {
        let (p, q) = gamma(a, z);
        let at = if q < 0.5 { -q.ln() } else { -(-p).ln_1p() };
        let miss = at - hazard;
        if miss.abs() <= 1e-10 * hazard {
            break;
        }
        if miss > 0.0 {
            high = z
        } else {
            low = z
        }
        // d(−ln Q)/d ln z = z^a e^−z / (Γ(a) Q)
        let slope = (a * z.ln() - z - lgamma(a)).exp() / q;
        let next = z * (-(miss / slope)).clamp(-2.0, 2.0).exp();
        z = match (next > low && next < high, high.is_finite()) {
            (true, _) => next,
            (false, true) => 0.5 * (low + high),
            (false, false) => 2.0 * z,
        };
    }
    z
}

/// The regularized incomplete gamma functions P(a, z) and Q(a, z): the series of DLMF 8.11.4 below a + 1, the continued
/// fraction of DLMF 8.9.2 above (Lentz's method).
fn gamma(a: f64, z: f64) -> (f64, f64) {
    if z <= 0.0 {
        return (0.0, 1.0);
    }
    let front = (a * z.ln() - z - lgamma(a)).exp();
    if z < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= z / n;
            sum += term;
        }
        let p = (front * sum).min(1.0);
        return (p, 1.0 - p);
    }
    let mut b = z + 1.0 - a;
    let mut c = f64::MAX;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..500 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        let step = c * d;
        h *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    let q = (front * h).clamp(f64::MIN_POSITIVE, 1.0);
    (1.0 - q, q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_gamma_functions_are_the_known_ones() {
        for z in [1e-6_f64, 0.1, 1.0, 3.0, 30.0] {
            let (p, q) = gamma(1.0, z);
            assert!((q - (-z).exp()).abs() < 1e-14 && (p + q - 1.0).abs() < 1e-14, "{z}");
            // P(1/2, z) = erf(√z)
            assert!((gamma(0.5, z).0 - libm::erf(z.sqrt())).abs() < 1e-13, "{z}");
        }
    }

    #[test]
    fn the_inverse_is_one_for_every_shape() {
        for shape in [0.3, 0.5, 0.7, 1.0, 2.0, 10.0] {
            for hazard in [1e-12, 1e-6, 0.01, 0.5, 1.0, 2.0, 10.0, 50.0] {
                let z = inverse_gamma(1.0 / shape, hazard);
                let (p, q) = gamma(1.0 / shape, z);
                let back = if q < 0.5 { -q.ln() } else { -(-p).ln_1p() };
                assert!((back / hazard - 1.0).abs() < 1e-8, "{shape} {hazard}: {back}");
            }
        }
    }

    #[test]
    fn exponential_lives_have_no_memory() {
        let life = Lifetime::new(1000.0, 1.0);
        assert_eq!(life.residual_at(0.3), life.age_at(0.3));
        assert!((life.age_at(1.0) - 1000.0).abs() < 1e-9);
    }
}
