// SPDX-License-Identifier: MIT OR Apache-2.0
//! The key that nodes share, so that only they can take part in comparing clocks.
//!
//! Each datagram ends in the first 16 bytes of its HMAC-SHA-256 (RFC 2104). A signed datagram can be sent again by somebody
//! who saw it; answers carry the nonce of their question, so that does not change what a node makes of a clock.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes that a signature adds to a datagram.
pub const TAG: usize = 16;
/// Bytes of a key file.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=4096;

/// A shared key.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// The key in a file: all its bytes, but for white space around them.
    ///
    /// # Errors
    /// If the file cannot be read, other users may read it, or it is too short.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mode = std::fs::metadata(path)?.mode();
        if mode & 0o077 != 0 {
            let text = format!("others may read it (mode {:o}); chmod 600 it", mode & 0o777);
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        Self::new(std::fs::read(path)?.trim_ascii())
    }

    /// The key of these bytes.
    ///
    /// # Errors
    /// If there are fewer than 16 bytes, or more than 4096.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let wrong = || {
            let text =
                format!("a key has 16 to 4096 bytes, not {}; head -c 32 /dev/urandom | base64", bytes.len());
            io::Error::new(ErrorKind::InvalidData, text)
        };
        if !LENGTHS.contains(&bytes.len()) {
            return Err(wrong());
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| wrong())
    }

    /// Appends the signature of `bytes`.
    pub fn sign(&self, bytes: &mut Vec<u8>) {
        let tag = self.0.clone().chain_update(&*bytes).finalize().into_bytes();
        bytes.extend_from_slice(&tag[..TAG]);
    }

    /// `bytes` without their signature; `None` if the signature is wrong.
    #[must_use]
    pub fn verified<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (signed, tag) = bytes.split_last_chunk::<TAG>()?;
        let mac = self.0.clone().chain_update(signed);
        mac.verify_truncated_left(tag).ok().map(|()| signed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn key(bytes: &[u8]) -> Key {
        Key::new(bytes).expect("long enough")
    }

    proptest! {
        #[test]
        fn a_signature_holds_for_its_bytes_and_key_alone(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let mut signed = bytes.clone();
            key(b"sixteen bytes ok").sign(&mut signed);
            prop_assert_eq!(key(b"sixteen bytes ok").verified(&signed), Some(&bytes[..]));
            prop_assert_eq!(key(b"sixteen bytes no").verified(&signed), None);
            prop_assert_eq!(key(b"sixteen bytes ok").verified(&signed[1..]), None);
            let at = at.index(signed.len());
            signed[at] ^= 1 << bit;
            prop_assert_eq!(key(b"sixteen bytes ok").verified(&signed), None);
        }
    }

    #[test]
    fn a_key_file_is_for_its_owner_and_long_enough() {
        let path = std::env::temp_dir().join(format!("colony-key-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef\n").expect("ours");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("ours");
        let error = Key::read(&path).expect_err("for all to read").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
        assert!(Key::read(&path).is_ok());
        std::fs::write(&path, "short\n").expect("ours");
        let error = Key::read(&path).expect_err("short").to_string();
        std::fs::remove_file(&path).expect("ours");
        assert!(error.contains("16 to 4096"), "{error}");
    }
}
