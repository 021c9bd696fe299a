// SPDX-License-Identifier: MIT OR Apache-2.0
//! The certificate that a client expects.

use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, PeerIncompatible, RootCertStore, SignatureScheme,
};

use crate::{ClientError, digits};

/// The certificate that a server must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// One of this file, in PEM, or one that these have signed; it names the host.
    Certificates(PathBuf),
    /// The one with this SHA-256, whatever host and time it names.
    Fingerprint([u8; 32]),
}

impl Trust {
    /// The certificate with a fingerprint of 64 hexadecimal digits, with or without colons.
    ///
    /// # Errors
    /// Another text.
    pub fn fingerprint(text: &str) -> Result<Self, ClientError> {
        digits::parse(&text.replace(':', "")).map(Self::Fingerprint).ok_or_else(|| {
            let text = format!(
                "{text:?} is no SHA-256 fingerprint: `colony machine web` on the machine's host prints it"
            );
            ClientError::Wrong(text)
        })
    }

    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, ClientError> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| ClientError::Failed(format!("TLS: {e}")))?;
        let mut config = match self {
            Self::Certificates(file) => builder.with_root_certificates(roots(file)?).with_no_client_auth(),
            Self::Fingerprint(expected) => {
                let verifier = Pinned { expected: *expected, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn roots(file: &PathBuf) -> Result<RootCertStore, ClientError> {
    let wrong = |why: &dyn std::fmt::Display| {
        ClientError::Wrong(format!("{}: {why}; a file of certificates in PEM is expected", file.display()))
    };
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(all.map_err(|e| wrong(&e))?);
    if added == 0 { Err(wrong(&"no certificate")) } else { Ok(roots) }
}

/// Accepts one certificate.
#[derive(Debug)]
struct Pinned {
    expected: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if Sha256::digest(certificate)[..] == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let text = digits::fingerprint(certificate);
        Err(TlsError::General(format!(
            "the certificate has another fingerprint, {text}: `colony machine web` on the machine's host prints the right one"
        )))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_with_and_without_colons() {
        let colons = ["aB"; 32].join(":");
        for text in [colons.as_str(), &"AB".repeat(32)] {
            assert_eq!(Trust::fingerprint(text).expect(text), Trust::Fingerprint([0xab; 32]));
        }
        for text in ["", "ab", &"ab".repeat(33), &"xy".repeat(32), &"+f".repeat(32)] {
            assert!(Trust::fingerprint(text).is_err_and(|e| e.to_string().contains("machine web")), "{text}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("text");
        std::fs::write(&file, "text").expect("written");
        for file in [file, folder.path().join("none")] {
            let text = Trust::Certificates(file.clone()).config().expect_err("no certificate").to_string();
            assert!(text.starts_with(&file.display().to_string()) && text.contains("PEM"), "{text}");
        }
    }
}
