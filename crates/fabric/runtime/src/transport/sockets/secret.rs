// SPDX-License-Identifier: MIT OR Apache-2.0
//! The secret of a job, and the proofs that a process knows it.

use std::io::{self, Read};

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a nonce and of a proof.
pub(crate) const PROOF: usize = 32;

/// Random bytes that one end of a connection chooses, so that no proof can be used again.
pub(crate) type Nonce = [u8; PROOF];

/// The secret of a job: 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The statement that a proof is made of. Each has a number of its own, so that no proof can be sent back to its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statement<'a> {
    /// Of the end that connects, before it knows the nonce of the other end.
    Opening(&'a Nonce),
    /// Of the end that has accepted: its nonce, and that of the other end.
    Accepted(&'a Nonce, &'a Nonce),
    /// Of the end that has connected: its nonce, and that of the other end.
    Connected(&'a Nonce, &'a Nonce),
}

/// Random bytes of the kernel.
pub(crate) fn random() -> io::Result<Nonce> {
    let mut bytes = [0; PROOF];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Secret {
    /// A new secret.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn new() -> io::Result<Self> {
        random().map(Self)
    }

    /// The secret as hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The secret that [`to_hex`](Self::to_hex) has written.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    fn mac(&self, statement: Statement<'_>) -> io::Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(io::Error::other)?;
        let (number, nonces) = match statement {
            Statement::Opening(own) => (2, [Some(own), None]),
            Statement::Accepted(own, other) => (1, [Some(own), Some(other)]),
            Statement::Connected(own, other) => (0, [Some(own), Some(other)]),
        };
        mac.update(&[number]);
        nonces.into_iter().flatten().for_each(|nonce| mac.update(nonce));
        Ok(mac)
    }

    /// Proves that this end knows the secret.
    pub(crate) fn prove(&self, statement: Statement<'_>) -> io::Result<[u8; PROOF]> {
        Ok(self.mac(statement)?.finalize().into_bytes().into())
    }

    /// Checks the proof of the other end, in a time that does not depend on its bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if the other end does not know the secret.
    pub(crate) fn check(&self, statement: Statement<'_>, proof: &[u8]) -> io::Result<()> {
        self.mac(statement)?.verify_slice(proof).map_err(|_| {
            io::Error::new(io::ErrorKind::PermissionDenied, "the other end does not know the job's secret")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_its_statement_and_its_nonces_only() {
        let (secret, other) = (Secret::new().expect("random"), Secret::new().expect("random"));
        let (a, b) = (random().expect("random"), random().expect("random"));
        let statements = [
            Statement::Opening(&a),
            Statement::Opening(&b),
            Statement::Accepted(&a, &b),
            Statement::Accepted(&b, &a),
            Statement::Connected(&a, &b),
            Statement::Connected(&b, &a),
        ];
        for made in statements {
            let proof = secret.prove(made).expect("a proof");
            for checked in statements {
                assert_eq!(secret.check(checked, &proof).is_ok(), made == checked, "{made:?} {checked:?}");
            }
            let refused = other.check(made, &proof).expect_err("another secret");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(secret.check(made, &proof[1..]).is_err());
        }
    }

    #[test]
    fn a_secret_is_read_as_it_was_written() {
        let secret = Secret::new().expect("random");
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret));
        assert!(Secret::from_hex("12").is_none() && Secret::from_hex(&"é".repeat(32)).is_none());
    }
}
