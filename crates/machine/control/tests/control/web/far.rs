// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients on another host: what they trust, and servers that are not the daemon.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use colony_control_api::api::{JobRequest, Network};
use colony_control_api::{Client, ClientError, Server, Trust};
use serde_json::json;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::stub::Daemon;

fn token_file(folder: &Path, token: &str) -> PathBuf {
    let file = folder.join("own-token");
    colony_node::file::replace(&file, token.as_bytes()).expect("written");
    file
}

fn client(listen: SocketAddr, token: &Path, trust: &Trust) -> Client {
    Client::far(Server::new(&format!("https://{listen}"), token, trust).expect("a server")).expect("a client")
}

fn pin(network: &Network) -> Trust {
    Trust::fingerprint(&network.fingerprint).expect("a fingerprint")
}

fn error(client: &Client) -> String {
    client.machine().expect_err("refused").to_string()
}

#[test]
fn a_client_on_another_host_asks_with_its_token_and_trusts_one_certificate() {
    let mut daemon = Daemon::ready("2x2x2", 8);
    let network = daemon.listen();
    let token = token_file(daemon.folder.path(), &daemon.token());
    for trust in [pin(&network), Trust::Certificates(network.certificate.clone())] {
        let far = client(network.listen, &token, &trust);
        let machine = far.machine().expect("answered");
        assert_eq!(machine.shape.to_string(), "2x2x2");
        assert!(far.socket().is_none() && far.start_daemon().is_err_and(|e| e.is_wrong_use()));
        let job =
            json!({ "partition": machine.partitions[0].name, "executable": "/bin/x", "directory": "/" });
        let job: JobRequest = serde_json::from_value(job).expect("right");
        let id = far.submit(&job).expect("added").id;
        assert_eq!(far.job(id).expect("there").user, far.caller().expect("known").user);
        assert!(far.ras(&[("location", "R00".to_owned())]).is_ok());
        // what the daemon refuses is told in its words
        assert!(far.job(99).is_err_and(|e| e.is_wrong_use() && e.to_string().contains("no job 99")));
        assert!(far.token(false).is_err(), "tokens are given at the local socket only");
        // a daemon that is killed and comes back is waited for
        daemon.kill();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| far.machine().map(|machine| machine.shape));
            daemon.revive();
            assert_eq!(waits.join().expect("no panic").expect("it is back").to_string(), "2x2x2");
        });
    }
}

#[test]
fn wrong_tokens_certificates_and_ports_are_told_apart() {
    let daemon = Daemon::ready("2x2x2", 8);
    let network = daemon.listen();
    let trust = pin(&network);
    let other = Daemon::off();
    let foreign = other.listen();
    let token = token_file(daemon.folder.path(), &daemon.token());
    let wrong = token_file(other.folder.path(), &"0".repeat(64));
    assert!(error(&client(network.listen, &wrong, &trust)).contains("the token is wrong"));
    assert!(client(network.listen, &token, &trust).machine().is_ok());
    let text = error(&client(network.listen, &token, &pin(&foreign)));
    assert!(text.contains("another fingerprint") && text.contains(&network.fingerprint), "{text}");
    let text = error(&client(network.listen, &token, &Trust::Certificates(foreign.certificate)));
    assert!(text.contains("not the expected one") && text.contains("fingerprint"), "{text}");
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    assert!(error(&client(closed, &token, &trust)).contains("nothing listens"));
}

/// A server that answers each connection so.
fn serve(answer: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

/// A server with TLS that says `head`, then `more` for ever.
fn serve_tls(head: &'static str, more: &'static [u8]) -> (SocketAddr, Trust) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let own = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .and_then(|p| p.self_signed(&key))
        .expect("made");
    let certificate = CertificateDer::from(own.der().to_vec());
    let digits: String =
        <sha2::Sha256 as sha2::Digest>::digest(&certificate).iter().map(|b| format!("{b:02x}")).collect();
    let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], secret)
        .expect("usable");
    let config = Arc::new(config);
    let address = serve(move |stream| {
        let mut stream =
            StreamOwned::new(ServerConnection::new(config.clone()).expect("a connection"), stream);
        // its whole head is there when the first part of it is
        let _ = stream.read(&mut [0; 4096]);
        let mut done = stream.write_all(head.as_bytes());
        while !more.is_empty() && done.is_ok() {
            done = stream.write_all(more);
        }
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    (address, Trust::fingerprint(&digits).expect("a fingerprint"))
}

#[test]
fn servers_that_are_no_daemon_are_told_so_and_cannot_fill_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = token_file(folder.path(), &"0".repeat(64));
    let trust = Trust::Fingerprint([0; 32]);
    for (said, answer) in [
        ("does not speak TLS:", &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]),
        ("does not speak TLS:", b"SSH-2.0-OpenSSH_9.2p1\r\n"),
        ("does not speak TLS 1.3", &[0x15, 3, 3, 0, 2, 2, 70]),
        ("ended the connection", b""),
    ] {
        let address = serve(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        });
        let text = error(&client(address, &token, &trust));
        assert!(text.contains(said) && text.contains(&address.to_string()), "{said}: {text}");
    }
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    static SPACES: [u8; 1 << 16] = [b' '; 1 << 16];
    static LETTERS: [u8; 1 << 16] = [b'x'; 1 << 16];
    for (said, head, more) in [
        ("does not speak as a control daemon", "SSH-2.0-OpenSSH_9.2p1\r\n", &[][..]),
        ("does not speak as a control daemon", "HTTP/1.1 200 OK\r\nx: ", &LETTERS),
        ("more than 64 MiB", OK, &SPACES),
        (
            "is the daemon of another version?",
            "HTTP/1.1 200 OK\r\ncontent-length: 29\r\n\r\n{\"schema\":\"colony.machine/9\"}",
            &[],
        ),
        ("status 500", "HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno", &[]),
        (
            "status 302",
            "HTTP/1.1 302 Found\r\nlocation: https://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            &[],
        ),
        ("status 403", "HTTP/1.1 403 No\r\n\r\n{\"error\": \"", &LETTERS),
    ] {
        let (address, trust) = serve_tls(head, more);
        let text = error(&client(address, &token, &trust));
        assert!(text.contains(said) && text.len() < 5000, "{said}: {text}");
    }
    let long = format!(
        "HTTP/1.1 403 No\r\ncontent-length: 1000012\r\n\r\n{{\"error\":\"{}\"}}",
        "y".repeat(1_000_000)
    );
    let (address, trust) = serve_tls(long.leak(), &[]);
    let text = error(&client(address, &token, &trust));
    assert!(text.starts_with("yyy") && text.len() == 4096, "{}", text.len());
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = token_file(folder.path(), &"0".repeat(64));
    // the kernel accepts
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = client(silent.local_addr().expect("bound"), &token, &Trust::Fingerprint([0; 32]));
    let refused = client.machine();
    assert!(
        matches!(&refused, Err(ClientError::Failed(text)) if text.contains("within 10 s")),
        "{refused:?}"
    );
}
