// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which requests are let in. At the local socket, the kernel names the user, so a page of another site must not get there
//! through a port that `ssh -L` forwards. On the network, a token names the user.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::Shared;
use super::network::Connection;
use super::peer::Peer;
use crate::ControlError;

/// The answer to a wrong token takes this long.
const SLOW: Duration = Duration::from_secs(1);

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    // a value that is no text matches nothing
    headers.get(name).map(|value| value.to_str().unwrap_or("\0"))
}

/// Headers that access checks read.
const ACCESS_HEADERS: [&str; 4] = ["host", "origin", "sec-fetch-site", "authorization"];

/// Refuses requests that have one of these headers twice: a proxy in front of the daemon may have checked the other one.
fn check_no_duplicates(headers: &HeaderMap) -> Result<(), ControlError> {
    match ACCESS_HEADERS.iter().find(|name| headers.get_all(**name).iter().nth(1).is_some()) {
        Some(name) => Err(ControlError::Wrong(format!("the request has several headers {name}: send one"))),
        None => Ok(()),
    }
}

/// Refuses requests that a page of another site has made.
fn check_site(headers: &HeaderMap, scheme: &str, path: &str) -> Result<(), ControlError> {
    let refused = || {
        let text = "a page of another site may not ask the machine: open the machine's own page";
        Err(ControlError::Forbidden(text.to_owned()))
    };
    let host = header(headers, HOST.as_str()).unwrap_or("");
    if header(headers, ORIGIN.as_str()).is_some_and(|origin| origin != format!("{scheme}://{host}")) {
        return refused();
    }
    // a link of another site may lead to the page, but not to the interface
    let site = header(headers, "sec-fetch-site");
    if path.starts_with("/v1/") && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return refused();
    }
    Ok(())
}

/// Refuses names that another site could give to this computer: a browser would take its page for one of ours.
fn check_host(headers: &HeaderMap) -> Result<(), ControlError> {
    let Some(host) = header(headers, HOST.as_str()) else { return Ok(()) };
    let (name, has_port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, true),
        _ => (host, false),
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback = match address {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    };
    // command-line clients send any word
    let is_word = !has_port && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_loopback || is_word {
        return Ok(());
    }
    Err(ControlError::Forbidden(format!(
        "the host {host:?} is not this computer's: open the page by the name localhost"
    )))
}

/// At the local socket.
pub(super) async fn local(request: Request, next: Next) -> Response {
    let (headers, path) = (request.headers(), request.uri().path());
    let checked = check_no_duplicates(headers).and_then(|()| check_host(headers));
    match checked.and_then(|()| check_site(headers, "http", path)) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// On the network, before the page: it says nothing about the machine.
pub(super) async fn network(request: Request, next: Next) -> Response {
    let (headers, path) = (request.headers(), request.uri().path());
    match check_no_duplicates(headers).and_then(|()| check_site(headers, "https", path)) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// On the network, before the interface.
pub(super) async fn token(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let given = header(request.headers(), AUTHORIZATION.as_str());
    let token = given.and_then(|given| given.strip_prefix("Bearer "));
    let known = request.extensions().get::<Arc<Connection>>();
    let user = token.and_then(|token| {
        let key = shared.tokens.user(token)?;
        known?.add_token(key);
        // a token that was replaced before it was recorded has not closed this connection: it is compared again
        shared.tokens.user(token)
    });
    if let Some((uid, is_read_only)) = user {
        // whatever a path may be added later, only looking is let in
        if is_read_only && !matches!(*request.method(), Method::GET | Method::HEAD) {
            let text = "this token may only look: `colony machine web` prints a link with your own, which may change things";
            return ControlError::Forbidden(text.to_owned()).into_response();
        }
        request.extensions_mut().insert(ConnectInfo(Peer { uid, is_read_only }));
        return next.run(request).await;
    }
    let why = if given.is_some() {
        tokio::time::sleep(SLOW).await;
        "the token is wrong, or has been replaced: `colony machine web` prints a link with the token"
    } else {
        "a token is missing: `colony machine web` prints a link with the token"
    };
    let mut response = ControlError::NoToken(why.to_owned()).into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let one = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn only_names_that_no_other_site_can_have_reach_the_local_socket() {
        for host in [
            "localhost:8080",
            "localhost",
            "127.0.0.1:9",
            "[::1]:80",
            "[::1]",
            "a.localhost:1",
            "machine",
            "x",
        ] {
            assert!(check_host(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "evil:8080",
            "10.0.0.1",
            "localhost.evil.example",
            "[::2]:1",
            "\u{7f}",
            "",
        ] {
            let Ok(value) = HeaderValue::from_str(host) else { continue };
            let mut all = HeaderMap::new();
            all.insert(HOST, value);
            assert_eq!(check_host(&all).is_ok(), host.is_empty(), "{host}");
        }
        assert!(check_host(&HeaderMap::new()).is_ok(), "no browser");
    }

    #[test]
    fn requests_with_two_headers_for_access_checks_are_refused() {
        for name in ACCESS_HEADERS {
            let mut all = headers(&[("host", "localhost"), ("accept", "a")]);
            all.append("accept", HeaderValue::from_static("b"));
            assert!(check_no_duplicates(&all).is_ok());
            all.insert(name, HeaderValue::from_static("x"));
            assert!(check_no_duplicates(&all).is_ok(), "{name}");
            all.append(name, HeaderValue::from_static("x"));
            assert!(check_no_duplicates(&all).is_err_and(|e| e.to_string().contains(name)), "{name}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let ok = |all: &[(&'static str, &str)], path| check_site(&headers(all), "http", path).is_ok();
        let host = ("host", "localhost:8080");
        assert!(ok(&[host], "/v1/jobs"));
        assert!(ok(
            &[host, ("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")],
            "/v1/jobs"
        ));
        for origin in ["http://localhost:8081", "https://localhost:8080", "null", "http://evil.example"] {
            assert!(!ok(&[host, ("origin", origin)], "/v1/jobs"), "{origin}");
            assert!(!ok(&[host, ("origin", origin)], "/"), "{origin}");
        }
        for site in ["cross-site", "same-site", "?"] {
            assert!(!ok(&[host, ("sec-fetch-site", site)], "/v1/machine"), "{site}");
        }
        assert!(ok(&[host, ("sec-fetch-site", "cross-site")], "/"), "a link to the page");
    }
}
