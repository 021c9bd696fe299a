// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checksum of a row of messages.

use std::hash::{Hash, Hasher};

/// A CRC-32 that goes on with each message.
#[derive(Clone, Debug, Default)]
pub(super) struct Checksum(crc32fast::Hasher);

impl Checksum {
    #[inline]
    pub(super) fn add(&mut self, message: &[u8]) {
        self.0.update(message);
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
