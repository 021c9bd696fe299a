// SPDX-License-Identifier: MIT OR Apache-2.0
use core::fmt;

/// Prints nanoseconds with the largest unit that keeps them exact: `100ms`, `1500ns` as `1.5us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ns(pub u64);

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_ns, name) = match self.0 {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (crate::NS_PER_S, "s"),
        };
        write!(f, "{}", self.0 / unit_ns)?;
        let (mut rest, mut place) = (self.0 % unit_ns, unit_ns);
        if rest != 0 {
            f.write_str(".")?;
        }
        while rest != 0 {
            place /= 10;
            write!(f, "{}", rest / place)?;
            rest %= place;
        }
        f.write_str(name)
    }
}
