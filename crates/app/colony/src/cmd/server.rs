// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that name the control daemon of another host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use colony_control_api::{Server, Trust};

use crate::exit::wrong;

/// Variables for what the options do not say.
pub(super) const SERVER: &str = "COLONY_SERVER";
const TOKEN: &str = "COLONY_TOKEN_FILE";
const CERTIFICATE: &str = "COLONY_SERVER_CERT";
const FINGERPRINT: &str = "COLONY_SERVER_FINGERPRINT";

#[derive(clap::Args)]
pub(super) struct ServerArgs {
    /// Control daemon of another host, by TLS, instead of a folder [default: COLONY_SERVER]
    #[arg(long, value_name = "https://HOST:PORT", conflicts_with = "machine")]
    server: Option<String>,
    /// File with your token, which only you may read; for --server [default: COLONY_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate that the server must have, or those that sign it, PEM [default: COLONY_SERVER_CERT]
    #[arg(long, value_name = "FILE")]
    server_cert: Option<PathBuf>,
    /// SHA-256 fingerprint of the server's certificate, instead of a file [default: COLONY_SERVER_FINGERPRINT]
    #[arg(long, value_name = "SHA256", conflicts_with = "server_cert")]
    server_fingerprint: Option<String>,
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn text(name: &str) -> anyhow::Result<Option<String>> {
    let text = variable(name).map(OsString::into_string).transpose();
    text.map_err(|_| wrong(format!("the variable {name} is not UTF-8")))
}

impl ServerArgs {
    /// The file of the token that is named by the option alone.
    pub(super) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// The server, if one is named.
    pub(super) fn get(&self) -> anyhow::Result<Option<Server>> {
        let Some(url) = self.server.clone().map_or_else(|| text(SERVER), |url| Ok(Some(url)))? else {
            return Ok(None);
        };
        let token = self.token_file.clone().or_else(|| variable(TOKEN).map(PathBuf::from)).ok_or_else(|| {
            wrong(format!(
                "{url} asks for a token: `colony machine web --token-file FILE` on the machine's host writes yours; name a copy by \
                 --token-file or {TOKEN}"
            ))
        })?;
        Ok(Some(Server::new(&url, &token, &self.trust(&url)?)?))
    }

    fn trust(&self, url: &str) -> anyhow::Result<Trust> {
        let given = match (&self.server_fingerprint, &self.server_cert) {
            (Some(digits), _) => Some(Trust::fingerprint(digits)?),
            (None, Some(file)) => Some(Trust::Certificates(file.clone())),
            (None, None) => None,
        };
        let named = || match text(FINGERPRINT)? {
            Some(digits) => Ok(Some(Trust::fingerprint(&digits)?)),
            None => Ok(variable(CERTIFICATE).map(|file| Trust::Certificates(file.into()))),
        };
        given.map_or_else(named, |trust| Ok(Some(trust))).and_then(|trust: Option<Trust>| {
            trust.ok_or_else(|| {
                wrong(format!(
                    "the certificate of {url} is not known: give its fingerprint, which `colony machine web` prints on the \
                     machine's host, by --server-fingerprint or {FINGERPRINT}, or a file by --server-cert or {CERTIFICATE}"
                ))
            })
        })
    }
}
