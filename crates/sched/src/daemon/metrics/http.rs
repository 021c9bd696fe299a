//! The answers: one thread, few connections, small requests, little time.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::socket::Listener;

/// What the text is, as the OpenMetrics specification has it (1.0.0, "Protocol Negotiation").
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// The longest request, with its headers: the smallest buffer that the HTTP library has.
const REQUEST_BYTES: usize = 8 * 1024;
/// The longest a request may take to arrive.
const TO_ASK: Duration = Duration::from_secs(5);
/// The longest a connection may last.
const TO_END: Duration = Duration::from_secs(10);
/// The rest after a connection that could not be accepted, for want of descriptors for example.
const REST: Duration = Duration::from_millis(100);

/// Makes the text there is to read now.
type Text = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers `GET /metrics` with `text`, in a thread of its own, as long as the process lives.
pub(crate) fn answer(
    listener: Listener,
    text: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    let text: Text = Arc::new(text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || {
        let ended = runtime.block_on(async {
            match listener {
                Listener::Unix(l) => {
                    let listener = UnixListener::from_std(l)?;
                    accept(|| async { Ok(listener.accept().await?.0) }, text).await
                }
                Listener::Tcp(l) => {
                    let listener = TcpListener::from_std(l)?;
                    accept(|| async { Ok(listener.accept().await?.0) }, text).await
                }
            }
        });
        let Err::<Infallible, io::Error>(e) = ended;
        tracing::error!("monitors are answered no more: {e}");
    };
    std::thread::Builder::new().name("colonyd-metrics".into()).spawn(work).map(drop)
}

/// Takes connections, a few at a time.
async fn accept<S, F>(next: impl Fn() -> F, text: Text) -> io::Result<Infallible>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>>,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
        match next().await {
            Ok(stream) => {
                let text = Arc::clone(&text);
                tokio::spawn(async move {
                    if tokio::time::timeout(TO_END, converse(stream, text)).await.is_err() {
                        tracing::debug!("a monitor took too long");
                    }
                    drop(slot);
                });
            }
            Err(e) => {
                tracing::debug!("a monitor could not come in: {e}");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// One request and its answer.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, text: Text) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(&request, &text);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(TO_ASK)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(e) = served {
        tracing::debug!("a monitor went away: {e}");
    }
}

fn respond<B>(request: &Request<B>, text: &Text) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, OPEN_METRICS, text()),
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, PLAIN, "the figures of colonyd are at /metrics\n".into())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "colonyd takes GET and HEAD here\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    fn server() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("ours");
        let address = listener.local_addr().expect("bound");
        answer(Listener::Tcp(listener), || "colony 1\n# EOF\n".into()).expect("a thread");
        address
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("listening");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("valid");
        // it may have answered and closed before all of a request that is too long was written
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn the_figures_are_at_one_place_and_can_only_be_read() {
        let address = server();
        let figures = ask(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(figures.starts_with("HTTP/1.1 200 OK\r\n"), "{figures}");
        assert!(figures.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"), "{figures}");
        assert!(figures.ends_with("\r\n\r\ncolony 1\n# EOF\n"), "{figures}");
        let head = ask(address, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
        let post = ask(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
        assert!(
            post.starts_with("HTTP/1.1 405") && post.to_lowercase().contains("allow: get, head"),
            "{post}"
        );
    }

    #[test]
    fn a_request_without_end_is_cut_off() {
        let address = server();
        let mut request = b"GET /metrics HTTP/1.1\r\n".to_vec();
        request.extend("X-Filler: 0123456789\r\n".repeat(10_000).bytes());
        assert!(!ask(address, &request).contains("200 OK"));
        assert!(ask(address, b"\x16\x03\x01 no HTTP at all\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").contains("200 OK"));
    }

    #[test]
    fn those_who_say_nothing_keep_nobody_away_for_long() {
        let address = server();
        let silent: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).expect("queued")).collect();
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").contains("200 OK"));
        drop(silent);
    }
}
