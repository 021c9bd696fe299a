// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256, as the archive's indexes have it.

use sha2::{Digest as _, Sha256};

/// The digest of `data` in hexadecimal.
pub(crate) fn hex(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}
