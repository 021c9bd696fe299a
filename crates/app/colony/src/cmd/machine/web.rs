// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine web`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use colony_control_api::api::NetworkRequest;
use colony_view::control;

use crate::cmd::control::Target;
use crate::exit::wrong;

/// Where the daemon listens on the network.
#[derive(clap::Args)]
pub(super) struct Listen {
    /// Serve the web page and the HTTP interface at this address and port, with TLS. With port 0, the system chooses one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Certificate for --listen, in PEM [default: one that the daemon makes and signs itself]
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_cert"])]
    tls_key: Option<PathBuf>,
}

impl Listen {
    pub(super) fn request(&self) -> anyhow::Result<Option<NetworkRequest>> {
        let Some(listen) = self.listen else { return Ok(None) };
        let whole = |file: &Option<PathBuf>| {
            let file = file
                .as_ref()
                .map(|file| std::fs::canonicalize(file).with_context(|| file.display().to_string()));
            file.transpose()
        };
        Ok(Some(NetworkRequest { listen, certificate: whole(&self.tls_cert)?, key: whole(&self.tls_key)? }))
    }
}

/// Print a link to the web page of the machine, with your token
///
/// The token stands for your user, with the rights that your user has. Keep it secret. It is wrong from `colony machine down` on.
/// Without --listen here or at `colony machine up`, the page is served at the local socket only, and the command prints how to
/// reach it by ssh. With --token-file, the token is written to that file as well, for --server on another host.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony machine web
  colony machine web --listen 192.0.2.1:8443
  colony machine web --token-file ~/.colony-token
  colony machine web --read-only
  colony machine web --renew")]
pub(super) struct WebArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    listen: Listen,
    /// Replace your token: links and programs with the one before are refused
    #[arg(long)]
    renew: bool,
    /// Print a link to look only: it changes nothing, and shows neither output nor environment of jobs
    #[arg(long)]
    read_only: bool,
    /// Close the port, for all users
    #[arg(long, conflicts_with_all = ["listen", "renew", "read_only"])]
    close: bool,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn web(args: &WebArgs) -> anyhow::Result<ExitCode> {
    let network = args.listen.request()?;
    let client = args.target.local()?;
    if args.close {
        client.close_network()?;
        crate::cmd::print_text("the port is closed\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(network) = network {
        client.open_network(&network)?;
    }
    let token = if args.read_only { client.read_only_token(args.renew) } else { client.token(args.renew) }?;
    if let Some(file) = args.target.token_file()? {
        let written = colony_node::file::replace(&file, format!("{}\n", token.token).as_bytes());
        written.with_context(|| format!("writing {}", file.display()))?;
    }
    let socket = client.socket().and_then(Path::to_str);
    let socket = socket.ok_or_else(|| wrong("the path of the machine's folder is not UTF-8"))?;
    crate::cmd::print(args.json, &token, |token| control::web(token, socket))?;
    Ok(ExitCode::SUCCESS)
}
