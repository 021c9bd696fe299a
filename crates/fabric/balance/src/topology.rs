// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places of PEs on the network, and the number of links between two PEs.

use crate::error::BalanceError;

/// The most dimensions of a torus, or levels of a fat tree.
const MAX_DIMENSIONS: usize = 6;

/// The network between PEs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// Every PE is one link from every other.
    #[default]
    Flat,
    /// A torus; the last dimension varies fastest with the PE's number.
    Torus(Vec<u32>),
    /// A fat tree: PEs below a lowest switch, lowest switches below one of the next level, and so on.
    FatTree(Vec<u32>),
}

impl Topology {
    /// Links between two PEs; 0 for one PE.
    #[must_use]
    pub fn hops(&self, a: u32, b: u32) -> u32 {
        if a == b {
            return 0;
        }
        match self {
            Self::Flat => 1,
            Self::Torus(dimensions) => {
                let (mut a, mut b, mut hops) = (a, b, 0);
                for &n in dimensions.iter().rev() {
                    let apart = (a % n).abs_diff(b % n);
                    hops += apart.min(n - apart);
                    (a, b) = (a / n, b / n);
                }
                hops
            }
            Self::FatTree(below) => {
                let (mut a, mut b, mut hops) = (a, b, 0);
                for &n in below {
                    hops += 2;
                    (a, b) = (a / n, b / n);
                    if a == b {
                        break;
                    }
                }
                hops
            }
        }
    }

    /// Number of PEs, or none if any number fits.
    #[must_use]
    pub fn pes(&self) -> Option<u64> {
        match self {
            Self::Flat => None,
            Self::Torus(sizes) | Self::FatTree(sizes) => Some(sizes.iter().map(|&n| u64::from(n)).product()),
        }
    }

    /// Checks that this network has so many PEs.
    ///
    /// # Errors
    /// The network has another number of PEs.
    pub fn check(&self, pes: usize) -> Result<(), BalanceError> {
        match self.pes() {
            Some(own) if own != pes as u64 => Err(BalanceError::Topology {
                found: self.to_string(),
                problem: format!("it has {own} PEs, and the load database {pes}; make both equal"),
            }),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, sizes) = match self {
            Self::Flat => return f.write_str("flat"),
            Self::Torus(sizes) => ("torus", sizes),
            Self::FatTree(sizes) => ("fattree", sizes),
        };
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        write!(f, "{name}:{}", sizes.join("x"))
    }
}

impl std::str::FromStr for Topology {
    type Err = BalanceError;

    /// Reads `flat`, `torus:16x32x32` (1 to 6 dimensions) or `fattree:32x16` (PEs a lowest switch first).
    fn from_str(text: &str) -> Result<Self, BalanceError> {
        let fail =
            |problem: &str| BalanceError::Topology { found: text.to_owned(), problem: problem.to_owned() };
        if text == "flat" {
            return Ok(Self::Flat);
        }
        let usage = "write flat, torus:16x32x32 or fattree:32x16";
        let (name, sizes) = text.split_once(':').ok_or_else(|| fail(usage))?;
        let sizes: Vec<u32> =
            sizes.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| fail(usage))?;
        if sizes.len() > MAX_DIMENSIONS || sizes.contains(&0) {
            return Err(fail("1 to 6 sizes of at least 1 are possible"));
        }
        let product = sizes.iter().try_fold(1u32, |p, &n| p.checked_mul(n));
        if product.is_none_or(|p| p > crate::limits::MAX_PES) {
            return Err(fail("it has more PEs than a load database can have"));
        }
        match name {
            "torus" => Ok(Self::Torus(sizes)),
            "fattree" => Ok(Self::FatTree(sizes)),
            _ => Err(fail(usage)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hops_are_counted_around_the_torus_and_over_the_common_switch() {
        let torus: Topology = "torus:4x8".parse().expect("a torus");
        assert_eq!((torus.hops(0, 7), torus.hops(0, 4), torus.hops(0, 24), torus.hops(3, 3)), (1, 4, 1, 0));
        let tree: Topology = "fattree:4x2x2".parse().expect("a tree");
        assert_eq!((tree.hops(0, 3), tree.hops(0, 4), tree.hops(0, 8), tree.hops(5, 5)), (2, 4, 6, 0));
        assert_eq!(tree.pes(), Some(16));
        assert!(tree.check(16).is_ok() && tree.check(15).is_err());
    }

    #[test]
    fn what_is_no_topology_is_refused() {
        for text in [
            "",
            "torus",
            "torus:",
            "torus:4x",
            "torus:0x4",
            "ring:4",
            "torus:1x1x1x1x1x1x1",
            "torus:99999x99999",
        ] {
            assert!(text.parse::<Topology>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn hops_are_a_distance(sizes in proptest::collection::vec(1u32..6, 1..4), tree: bool, seed: [u32; 3]) {
            let topology = if tree { Topology::FatTree(sizes) } else { Topology::Torus(sizes) };
            let pes = topology.pes().expect("a number of PEs") as u32;
            let [a, b, c] = seed.map(|s| s % pes);
            prop_assert_eq!(topology.hops(a, b), topology.hops(b, a));
            prop_assert_eq!(topology.hops(a, b) == 0, a == b);
            prop_assert!(topology.hops(a, c) <= topology.hops(a, b) + topology.hops(b, c));
            prop_assert_eq!(topology.to_string().parse::<Topology>(), Ok(topology));
        }
    }
}
