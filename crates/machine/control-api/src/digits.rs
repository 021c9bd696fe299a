// SPDX-License-Identifier: MIT OR Apache-2.0
//! 256 bits as people and files have them: tokens, and fingerprints of certificates.

use sha2::{Digest as _, Sha256};

/// The value of 64 hexadecimal digits; `None` if the text is anything else.
#[must_use]
pub fn parse(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The SHA-256 fingerprint of a certificate, in DER, as people compare it: `41:6B:…`.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> String {
    let pairs: Vec<String> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_without_its_colons_is_the_digest_again() {
        let text = fingerprint(b"a certificate");
        assert_eq!(parse(&text.replace(':', "")), Some(Sha256::digest(b"a certificate").into()));
        for other in ["", "ab", &text, &"0".repeat(65), &"+f".repeat(32), &"é".repeat(32)] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
