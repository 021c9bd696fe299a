// SPDX-License-Identifier: MIT OR Apache-2.0
//! The certificate: a given one, or one that the daemon has made and signed itself, which users compare by its fingerprint.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use colony_control_api::digits;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::ControlError;

/// The files of the own certificate.
const CHAIN: &str = "tls-cert.pem";
const KEY: &str = "tls-key.pem";
/// Years for which the own certificate is valid.
const YEARS: i32 = 10;

/// A certificate that can be served.
pub(super) struct Certificate {
    pub(super) config: Arc<ServerConfig>,
    /// SHA-256 of the certificate, in pairs of digits.
    pub(super) fingerprint: String,
    pub(super) file: PathBuf,
}

impl Certificate {
    /// A chain of certificates and its key, in PEM.
    pub(super) fn read(chain: &Path, key: &Path) -> Result<Self, ControlError> {
        let wrong = |path: &Path, why: &dyn std::fmt::Display| {
            ControlError::Wrong(format!("{}: {why}; a file in PEM is expected", path.display()))
        };
        let certificates =
            CertificateDer::pem_file_iter(chain).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = certificates.map_err(|e| wrong(chain, &e))?;
        let first = certificates.first().ok_or_else(|| wrong(chain, &"no certificate"))?;
        let fingerprint = digits::fingerprint(first);
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, &e))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, secret));
        let mut config = config.map_err(|e| {
            ControlError::Wrong(format!("{} and {} cannot be used: {e}", chain.display(), key.display()))
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), fingerprint, file: chain.to_owned() })
    }

    /// The own certificate of a machine, which is made if it is not there.
    pub(super) fn own(folder: &Path, address: IpAddr, host: &str) -> Result<Self, ControlError> {
        let [chain, key] = [CHAIN, KEY].map(|name| folder.join(name));
        if !(chain.exists() && key.exists()) {
            let [chain_text, key_text] = make(address, host)?;
            for (path, text) in [(&key, key_text), (&chain, chain_text)] {
                let written = colony_node::file::replace(path, text.as_bytes());
                written.map_err(ControlError::io(path.display().to_string()))?;
            }
        }
        Self::read(&chain, &key)
    }
}

/// A new certificate and its key, in PEM.
fn make(address: IpAddr, host: &str) -> Result<[String; 2], ControlError> {
    let failed = |e: rcgen::Error| ControlError::Fault(format!("the certificate cannot be made: {e}"));
    let mut names = vec![host.to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.push(address.to_string());
    names.sort();
    names.dedup();
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, format!("Colony machine of {host}"));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let year = 1970 + (crate::api::now() / (365.2425 * 86_400.0)) as i32;
    (params.not_before, params.not_after) =
        (date_time_ymd(year - 1, 1, 1), date_time_ymd(year + YEARS, 1, 1));
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok([certificate.pem(), key.serialize_pem()])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_own_certificate_is_made_once_and_only_its_owner_reads_the_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = || Certificate::own(folder.path(), IpAddr::from([10, 0, 0, 1]), "node").expect("made");
        let first = own();
        assert_eq!(first.fingerprint.len(), 32 * 3 - 1);
        assert_eq!(own().fingerprint, first.fingerprint);
        let mode = std::fs::metadata(folder.path().join(KEY)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(folder.path().join(KEY)).expect("removed");
        assert_ne!(own().fingerprint, first.fingerprint);
    }

    #[test]
    fn files_that_are_no_certificate_or_not_of_one_key_are_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        Certificate::own(folder.path(), IpAddr::from([0, 0, 0, 0]), "node").expect("made");
        let [_, other] = make(IpAddr::from([0, 0, 0, 0]), "node").expect("made");
        std::fs::write(path("other"), other).expect("written");
        std::fs::write(path("text"), "text").expect("written");
        for (chain, key, said) in [
            ("none", KEY, "none"),
            ("text", KEY, "text: no certificate"),
            (CHAIN, "none", "none"),
            (CHAIN, "text", "text"),
            (CHAIN, "other", "other cannot be used"),
        ] {
            let error = Certificate::read(&path(chain), &path(key)).err().map(|e| e.to_string());
            assert!(error.as_ref().is_some_and(|text| text.contains(said)), "{chain} {key}: {error:?}");
        }
    }
}
