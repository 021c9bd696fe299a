// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends of a connection prove that they know the job's secret, without sending it.

use std::io::{self, Read, Write};

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The secret of a job: 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Random bytes of the kernel.
fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
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

    fn mac(&self, role: u8, first: &[u8; 32], second: &[u8; 32]) -> io::Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(io::Error::other)?;
        mac.update(&[role]);
        mac.update(first);
        mac.update(second);
        Ok(mac)
    }

    /// Proves the secret to the other end of a connection, and makes it prove it. `role` is 0 on the side that
    /// connected, 1 on the one that accepted, so that no proof can be sent back to its maker.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if the other end does not know the secret; else those of the connection.
    pub fn prove(&self, connection: &mut (impl Read + Write), role: u8) -> io::Result<()> {
        let mine = random()?;
        connection.write_all(&mine)?;
        let mut theirs = [0; 32];
        connection.read_exact(&mut theirs)?;
        let proof = self.mac(role, &mine, &theirs)?.finalize().into_bytes();
        connection.write_all(&proof)?;
        let mut answer = [0; 32];
        connection.read_exact(&mut answer)?;
        self.mac(1 - role, &theirs, &mine)?.verify_slice(&answer).map_err(|_| {
            io::Error::new(io::ErrorKind::PermissionDenied, "the other end does not know the job's secret")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn prove(a: &Secret, b: &Secret) -> (io::Result<()>, io::Result<()>) {
        let (mut one, mut other) = UnixStream::pair().expect("a pair");
        let b = b.clone();
        let thread = std::thread::spawn(move || b.prove(&mut other, 1));
        (a.prove(&mut one, 0), thread.join().expect("no panic"))
    }

    #[test]
    fn only_who_knows_the_secret_is_accepted_on_both_sides() {
        let (secret, other) = (Secret::new().expect("random"), Secret::new().expect("random"));
        let (a, b) = prove(&secret, &secret);
        assert!(a.is_ok() && b.is_ok());
        let (a, b) = prove(&secret, &other);
        assert_eq!(a.expect_err("another").kind(), io::ErrorKind::PermissionDenied);
        assert!(b.is_err());
    }

    #[test]
    fn a_proof_sent_back_is_none() {
        let (mut one, mut other) = UnixStream::pair().expect("a pair");
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 32];
            for _ in 0..2 {
                other.read_exact(&mut bytes).expect("bytes");
                other.write_all(&bytes).expect("sent back");
            }
        });
        assert!(Secret::new().expect("random").prove(&mut one, 0).is_err());
        thread.join().expect("no panic");
    }

    #[test]
    fn a_secret_is_read_as_it_was_written() {
        let secret = Secret::new().expect("random");
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret));
        assert!(Secret::from_hex("12").is_none() && Secret::from_hex(&"é".repeat(32)).is_none());
    }
}
