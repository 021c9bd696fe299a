// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entrance from the network, as its users and hostile clients meet it.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use colony_control_api::api::{Network, NetworkRequest};
use proptest::prelude::*;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::stub::{Daemon, at_socket, rest, tcp};

type Stream = StreamOwned<ClientConnection, std::net::TcpStream>;

/// A connection of a client that trusts this certificate only, and checks the address that it names.
fn tls(address: SocketAddr, certificate: &Path) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).expect("a certificate")).expect("usable");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a name"), tcp(address))
}

/// What the network answers to bytes.
pub(crate) fn raw(network: &Network, bytes: &[u8]) -> String {
    let mut stream = tls(network.listen, &network.certificate);
    let _ = stream.write_all(bytes);
    rest(stream)
}

fn get(network: &Network, path: &str, headers: &str) -> String {
    let text =
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}\r\n", network.listen);
    raw(network, text.as_bytes())
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn is(answer: &str, status: u16) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {status} "))
}

#[test]
fn only_who_has_a_token_is_answered() {
    let daemon = Daemon::ready("2x2x2", 8);
    let network = daemon.listen();
    let token = daemon.token();
    for path in
        ["/v1/machine", "/v1/jobs", "/v1/ras", "/v1/events", "/v1/openapi.json", "/v1/nothing", "/nothing"]
    {
        let answer = get(&network, path, "");
        assert!(is(&answer, 401) && answer.contains("www-authenticate: Bearer"), "{path}: {answer}");
        assert!(answer.contains("colony machine web"), "{answer}");
    }
    let other = format!("{:064x}", 7);
    for wrong in [&other, &token[1..], &format!("{token}0"), "", "x y"] {
        let answer = get(&network, "/v1/machine", &bearer(wrong));
        assert!(is(&answer, 401) && answer.contains("wrong"), "{wrong}: {answer}");
    }
    assert!(is(&get(&network, "/v1/machine", &format!("authorization: Basic {token}\r\n")), 401));
    let answer = get(&network, "/v1/machine", &bearer(&token));
    assert!(is(&answer, 200) && answer.contains("\"ready\":8"), "{answer}");
    assert!(is(&get(&network, "/v1/nothing", &bearer(&token)), 404));
    // what only the kernel can vouch for stays at the local socket
    for path in ["/v1/token", "/v1/network"] {
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}content-type: application/json\r\n\
             content-length: 2\r\n\r\n{{}}",
            bearer(&token)
        );
        assert!(is(&raw(&network, text.as_bytes()), 404), "{path}");
    }
    let file = daemon.folder.path().join("tokens").join(nix::unistd::geteuid().to_string());
    assert_eq!(std::fs::metadata(file).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_page_is_there_for_all_and_may_load_nothing_from_elsewhere() {
    let daemon = Daemon::off();
    let network = daemon.listen();
    let local =
        at_socket(&daemon.socket(), b"GET / HTTP/1.1\r\nhost: localhost:8080\r\nconnection: close\r\n\r\n");
    for answer in [local, get(&network, "/", ""), get(&network, "/web/page.js", "")] {
        assert!(is(&answer, 200), "{answer}");
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "require-trusted-types-for 'script'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.contains(header), "{header}: {answer}");
        }
    }
}

#[test]
fn pages_of_other_sites_reach_neither_the_network_nor_the_socket() {
    let daemon = Daemon::ready("2x2x2", 8);
    let (network, token) = (daemon.listen(), daemon.token());
    let with = |more: &str| get(&network, "/v1/machine", &format!("{}{more}", bearer(&token)));
    assert!(is(&with(&format!("origin: https://{}\r\n", network.listen)), 200));
    for foreign in ["origin: https://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n"]
    {
        assert!(is(&with(foreign), 403), "{foreign}");
    }
    let socket = daemon.socket();
    let local = |headers: &str| {
        let text = format!("GET /v1/machine HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
        at_socket(&socket, text.as_bytes())
    };
    for own in [
        "host: machine\r\n",
        "host: localhost:8080\r\n",
        "host: 127.0.0.1:1\r\norigin: http://127.0.0.1:1\r\n",
    ] {
        assert!(is(&local(own), 200), "{own}");
    }
    for foreign in [
        // a name of another site that leads to the port that ssh forwards
        "host: evil.example:8080\r\n",
        "host: evil.example\r\n",
        "host: localhost:8080\r\norigin: https://evil.example\r\n",
        "host: localhost:8080\r\nsec-fetch-site: same-site\r\n",
    ] {
        let answer = local(foreign);
        assert!(is(&answer, 403) && !answer.contains("ready"), "{foreign}: {answer}");
    }
}

#[test]
fn clients_that_do_not_speak_tls_are_told_so() {
    let daemon = Daemon::off();
    let network = daemon.listen();
    let mut stream = tcp(network.listen);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
    let mut answer = String::new();
    // what was not read may end the connection by a reset
    let _ = stream.read_to_string(&mut answer);
    assert!(is(&answer, 400) && answer.contains("https:"), "{answer}");
}

#[test]
fn idle_connections_are_closed_and_keep_nobody_out() {
    let daemon = Daemon::ready("2x2x2", 8);
    let (network, token) = (daemon.listen(), daemon.token());
    let silent = tcp(network.listen);
    let mut half = tcp(network.listen);
    // a handshake that begins
    half.write_all(&[0x16, 3, 1]).expect("sent");
    let mut head = tls(network.listen, &network.certificate);
    head.write_all(b"GET / HTTP/1.1\r\nhost: ").expect("sent");
    assert!(is(&get(&network, "/v1/machine", &bearer(&token)), 200));
    // each read ends when the daemon closes
    let (silent, half, head) = (rest(silent), rest(half), rest(head));
    assert!(
        silent.is_empty() && !half.contains("HTTP/1.1 2") && !head.contains("HTTP/1.1 2"),
        "{half} {head}"
    );
}

#[test]
fn one_host_gets_a_bounded_number_of_connections() {
    let daemon = Daemon::ready("2x2x2", 8);
    let (network, token) = (daemon.listen(), daemon.token());
    let mut all: Vec<_> = (0..64).map(|_| tcp(network.listen)).collect();
    // connections are accepted in their order, so one more is one too many
    assert!(rest(tcp(network.listen)).is_empty());
    let mut last = all.pop().expect("64");
    last.shutdown(std::net::Shutdown::Both).expect("open");
    let _ = last.read(&mut [0]);
    drop(all);
    while !is(&get_if(&network, &token), 200) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// An answer, or nothing if the connection is closed.
fn get_if(network: &Network, token: &str) -> String {
    get(network, "/v1/machine", &bearer(token))
}

#[test]
fn heads_are_bounded() {
    let daemon = Daemon::ready("2x2x2", 8);
    let (network, token) = (daemon.listen(), daemon.token());
    let long = format!("x-long: {}\r\n", "x".repeat(100_000));
    let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    for headers in [long, many] {
        let answer = get(&network, "/v1/machine", &format!("{}{headers}", bearer(&token)));
        assert!(is(&answer, 431) || answer.is_empty(), "{answer}");
    }
    assert!(is(&get_if(&network, &token), 200));
}

#[test]
fn a_daemon_that_is_killed_listens_again_with_the_same_tokens_and_certificate() {
    let mut daemon = Daemon::ready("2x2x2", 8);
    let (network, token) = (daemon.listen(), daemon.token());
    daemon.kill();
    daemon.revive();
    assert_eq!(daemon.client.token(false).expect("a token").network, Some(network.clone()));
    assert!(is(&get_if(&network, &token), 200));
    // a token that is replaced is wrong, and ends what it has opened
    let listen_by = |token: &str| {
        let mut open = tls(network.listen, &network.certificate);
        let text = format!("GET /v1/events HTTP/1.1\r\nhost: x\r\n{}\r\n", bearer(token));
        open.write_all(text.as_bytes()).expect("sent");
        open.read_exact(&mut [0; 8]).expect("it begins");
        open
    };
    let other = daemon.client.read_only_token(false).expect("a token").token;
    let (open, mut of_other) = (listen_by(&token), listen_by(&other));
    let newer = daemon.client.token(true).expect("a token").token;
    rest(open);
    assert!(is(&get_if(&network, &token), 401) && is(&get_if(&network, &newer), 200));
    // connections of other tokens go on: an event reaches them
    daemon.event(0, "info", "still-there", "so");
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("still-there") {
        let mut byte = [0];
        of_other.read_exact(&mut byte).expect("it goes on");
        text.push(byte[0]);
    }
    daemon.client.revoke_token().expect("revoked");
    assert!(is(&get_if(&network, &newer), 401));
    daemon.client.close_network().expect("closed");
    while std::net::TcpStream::connect(network.listen).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    daemon.kill();
    daemon.revive();
    assert_eq!(daemon.client.token(false).expect("a token").network, None);
}

#[test]
fn a_port_that_cannot_be_had_and_files_that_are_no_certificate_are_refused() {
    let daemon = Daemon::off();
    let request = |listen: &str, files: [Option<&str>; 2]| {
        let [certificate, key] = files.map(|file| file.map(Into::into));
        let request = NetworkRequest { listen: listen.parse().expect("an address"), certificate, key };
        daemon.client.open_network(&request).err().map_or_else(String::new, |e| e.to_string())
    };
    assert!(request("192.0.2.1:1", [None, None]).contains("cannot listen on 192.0.2.1:1"));
    assert!(request("127.0.0.1:0", [Some("/no/file"), Some("/no/key")]).contains("/no/file"));
    assert!(request("127.0.0.1:0", [Some("/no/file"), None]).contains("belong together"));
    assert_eq!(daemon.client.token(false).expect("a token").network, None);
    // a certificate of one's own
    let own = daemon.listen();
    assert!(request("192.0.2.1:1", [None, None]).contains("cannot listen"));
    assert_eq!(daemon.client.token(false).expect("a token").network.as_ref(), Some(&own), "it stays open");
    let key = own.certificate.with_file_name("tls-key.pem");
    let [chain, secret] = [&own.certificate, &key].map(|file| std::fs::read(file).expect("there"));
    let place = tempfile::tempdir().expect("a folder");
    let [cert_file, key_file] = ["c", "k"].map(|name| place.path().join(name));
    std::fs::write(&cert_file, chain).expect("written");
    std::fs::write(&key_file, secret).expect("written");
    let files = [&cert_file, &key_file].map(|file| file.to_str());
    assert_eq!(request(&own.listen.to_string(), files), "", "on the same port");
}

#[test]
fn no_bytes_end_the_daemon() {
    let daemon = Daemon::off();
    let network = daemon.listen();
    let rule = proptest::test_runner::Config { cases: 60, failure_persistence: None, ..Default::default() };
    proptest::test_runner::TestRunner::new(rule)
        .run(&(any::<bool>(), prop::collection::vec(any::<u8>(), 1..200)), |(is_tls, mut bytes)| {
            if is_tls {
                bytes.extend_from_slice(b"\r\n\r\n");
                raw(&network, &bytes);
            } else {
                let mut stream = tcp(network.listen);
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                rest(stream);
            }
            prop_assert!(daemon.client.is_served());
            Ok(())
        })
        .expect("it goes on");
    assert!(is(&get(&network, "/", ""), 200));
}
