// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checksum of a row of messages.

use std::hash::{Hash, Hasher};

use crate::parcel::around_id;

/// A CRC-32 that goes on with each message. A PE that runs again gives its messages other numbers in the time line.
#[derive(Clone, Debug, Default)]
pub(super) struct Checksum(crc32fast::Hasher);

impl Checksum {
    #[inline]
    pub(super) fn add(&mut self, message: &[u8]) {
        let (before, after) = around_id(message);
        self.0.update(before);
        self.0.update(after);
    }

    /// That of all messages so far.
    pub(super) fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

impl PartialEq for Checksum {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl Eq for Checksum {}

impl Hash for Checksum {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.value().hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_message_counts_but_its_number_in_the_time_line() {
        let sum = |message: &[u8]| {
            let mut sum = Checksum::default();
            sum.add(message);
            sum.value()
        };
        for length in [0, 5, 100] {
            let message = vec![7; length];
            let differs = |at: &usize| {
                let mut other = message.clone();
                other[*at] = 8;
                sum(&other) != sum(&message)
            };
            let same = (0..length).filter(|at| !differs(at)).count();
            assert_eq!(same, if length == 100 { 8 } else { 0 });
        }
    }
}
