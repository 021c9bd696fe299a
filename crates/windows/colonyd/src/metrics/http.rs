// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answers: one thread, few connections, small requests, little time.
//!
//! Connections that say nothing keep nobody out: a new one is always taken, and where there are too many the oldest
//! that has not asked is closed for it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use tokio::task::AbortHandle;

use super::socket::Listener;

/// The media type of the text according to the OpenMetrics specification (1.0.0, "Protocol Negotiation").
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Connections at a time, and those of one user among them (on a socket file, where the kernel tells the user).
const CONNECTIONS: usize = 64;
const OF_A_USER: usize = 16;
/// The longest request, with its headers: the smallest buffer that the HTTP library has.
const REQUEST_BYTES: usize = 8 * 1024;
/// The longest a request may take to arrive, and a connection may last.
const TIMES: Times = Times { to_ask: Duration::from_secs(2), to_end: Duration::from_secs(5) };
/// The rest after a connection that could not be accepted, for want of descriptors for example.
const REST: Duration = Duration::from_millis(100);

/// The timeouts of a monitor.
#[derive(Clone, Copy, Debug)]
struct Times {
    to_ask: Duration,
    to_end: Duration,
}

/// Makes the text there is to read now.
type Text = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers `GET /metrics` with `text`, in a thread of its own, as long as the process lives.
pub(crate) fn answer(
    listener: Listener,
    text: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    answer_within(TIMES, listener, Arc::new(text))
}

fn answer_within(times: Times, listener: Listener, text: Text) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || {
        let ended = runtime.block_on(async {
            match listener {
                Listener::Unix(l) => {
                    let listener = UnixListener::from_std(l)?;
                    let next = || async {
                        let (stream, _) = listener.accept().await?;
                        let uid = stream.peer_cred().ok().map(|c| c.uid());
                        Ok((stream, uid))
                    };
                    accept(times, next, text).await
                }
                Listener::Tcp(l) => {
                    let listener = TcpListener::from_std(l)?;
                    accept(times, || async { Ok((listener.accept().await?.0, None)) }, text).await
                }
            }
        });
        let Err::<Infallible, io::Error>(e) = ended;
        tracing::error!("monitors are answered no more: {e}");
    };
    std::thread::Builder::new().name("colonyd-metrics".into()).spawn(work).map(drop)
}

/// Takes every connection at once. Where that is one too many, an older one is closed for it.
async fn accept<S, F>(times: Times, next: impl Fn() -> F, text: Text) -> io::Result<Infallible>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<(S, Option<u32>)>>,
{
    let visits = Arc::new(Mutex::new(Visits::default()));
    let mut id = 0;
    loop {
        match next().await {
            Ok((stream, uid)) => {
                id += 1;
                lock(&visits).make_room(uid);
                let (text, theirs) = (Arc::clone(&text), Arc::clone(&visits));
                let visit = async move {
                    let asked = || lock(&theirs).asked(id);
                    if tokio::time::timeout(times.to_end, converse(times, stream, text, asked)).await.is_err()
                    {
                        tracing::debug!("a monitor took too long");
                    }
                    lock(&theirs).open.remove(&id);
                };
                // one thread: the visit cannot end before it is entered
                let task = tokio::spawn(visit).abort_handle();
                lock(&visits).open.insert(id, Visit { uid, asked: false, task });
            }
            Err(e) => {
                tracing::debug!("a monitor could not come in: {e}");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// The connections there are, the oldest first.
#[derive(Debug, Default)]
struct Visits {
    open: BTreeMap<u64, Visit>,
}

/// A connection.
#[derive(Debug)]
struct Visit {
    uid: Option<u32>,
    /// True once its request has arrived.
    asked: bool,
    task: AbortHandle,
}

impl Visits {
    fn asked(&mut self, id: u64) {
        if let Some(visit) = self.open.get_mut(&id) {
            visit.asked = true;
        }
    }

    /// Closes a connection where one more of `uid` is too many: of the same user, if that user has too many, else of
    /// the user that has most.
    fn make_room(&mut self, uid: Option<u32>) {
        let count = |uid| self.open.values().filter(|v| v.uid == uid).count();
        let of = if uid.is_some() && count(uid) >= OF_A_USER {
            uid
        } else if self.open.len() >= CONNECTIONS {
            let most = self.open.values().max_by_key(|v| count(v.uid));
            most.and_then(|v| v.uid)
        } else {
            return;
        };
        // the oldest that has not asked, else the oldest
        let oldest = self.open.iter().filter(|(_, v)| v.uid == of).min_by_key(|(id, v)| (v.asked, **id));
        let oldest = oldest.map(|(&id, _)| id);
        if let Some(visit) = oldest.and_then(|id| self.open.remove(&id)) {
            visit.task.abort();
        }
    }
}

fn lock(visits: &Mutex<Visits>) -> MutexGuard<'_, Visits> {
    visits.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request and its answer; `asked` is told when the request has come.
async fn converse(times: Times, stream: impl AsyncRead + AsyncWrite + Unpin, text: Text, asked: impl Fn()) {
    let service = service_fn(|request: Request<Incoming>| {
        asked();
        let response = respond(&request, &text);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(times.to_ask)
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

    /// Nobody has to wait for a timeout: these are never over in a test.
    const NEVER: Times = Times { to_ask: Duration::from_secs(3600), to_end: Duration::from_secs(3600) };
    const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn silent_connections_do_not_block_others() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("ours");
        let address = listener.local_addr().expect("bound");
        answer_within(NEVER, Listener::Tcp(listener), Arc::new(|| "colony 1\n".into())).expect("a thread");
        let silent: Vec<_> =
            (0..4 * CONNECTIONS).map(|_| TcpStream::connect(address).expect("queued")).collect();
        assert!(ask(address, REQUEST).contains("200 OK"));
        drop(silent);
    }

    #[test]
    fn a_connection_is_closed_2_s_after_it_began_to_ask_and_5_s_after_it_began() {
        assert_eq!((TIMES.to_ask, TIMES.to_end), (Duration::from_secs(2), Duration::from_secs(5)));
        let soon = Duration::from_millis(20);
        for times in [Times { to_ask: soon, ..NEVER }, Times { to_end: soon, ..NEVER }] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.set_nonblocking(true).expect("ours");
            let address = listener.local_addr().expect("bound");
            answer_within(times, Listener::Tcp(listener), Arc::new(|| "colony 1\n".into()))
                .expect("a thread");
            // each read ends when the connection is closed
            assert!(!ask(address, b"").contains("200 OK"), "{times:?}");
            assert!(!ask(address, b"GET /metrics HTTP/1.1\r\n").contains("200 OK"), "{times:?}");
        }
    }

    #[test]
    fn a_socket_answers_behind_more_silent_connections_than_it_takes() {
        use std::os::unix::net::{UnixListener, UnixStream};
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("m.sock");
        let listener = UnixListener::bind(&path).expect("bound");
        listener.set_nonblocking(true).expect("ours");
        answer_within(NEVER, Listener::Unix(listener), Arc::new(|| "colony 1\n".into())).expect("a thread");
        let mut silent: Vec<_> = (0..64).map(|_| UnixStream::connect(&path).expect("queued")).collect();
        let mut stream = UnixStream::connect(&path).expect("queued");
        stream.write_all(REQUEST).expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        assert!(answer.contains("200 OK"), "{answer}");
        // the oldest were closed, the youngest were not
        assert_eq!(silent[0].read(&mut [0]).expect("closed"), 0);
        let last = silent.last_mut().expect("64");
        last.set_nonblocking(true).expect("ours");
        assert_eq!(last.read(&mut [0]).expect_err("open").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn room_is_made_by_the_user_that_has_most_and_silent_ones_go_first() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut visits = Visits::default();
            let mut id = 0;
            let mut come = |visits: &mut Visits, uid: u32, asked: bool| {
                visits.make_room(Some(uid));
                id += 1;
                let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
                visits.open.insert(id, Visit { uid: Some(uid), asked, task });
                id
            };
            let monitor = come(&mut visits, 1, true);
            let asked = come(&mut visits, 7, true);
            let silent: Vec<u64> = (0..OF_A_USER).map(|_| come(&mut visits, 7, false)).collect();
            assert_eq!(visits.open.len(), 1 + OF_A_USER);
            assert!(!visits.open.contains_key(&silent[0]) && visits.open.contains_key(&asked));
            for uid in 10..200 {
                come(&mut visits, uid, false);
            }
            assert_eq!(visits.open.len(), CONNECTIONS);
            assert!(visits.open.contains_key(&monitor) && visits.open.contains_key(&asked));
        });
    }
}
