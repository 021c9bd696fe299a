// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP on one connection, of the local socket or of the network: the bounds that hold for both.

use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;

/// Timeout for the head of a request, which also ends connections without requests.
pub(super) const HEAD: Duration = Duration::from_secs(20);
/// Bytes and fields of a head at most.
const HEAD_BYTES: usize = 32 << 10;
const HEAD_FIELDS: usize = 64;
/// From an accept that failed to the next: descriptors may be short.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// How a connection is served whose client has this long for the head of a request.
pub(super) fn http(head: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(HEAD_BYTES).max_headers(HEAD_FIELDS);
    http
}
