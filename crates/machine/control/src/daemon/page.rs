// SPDX-License-Identifier: MIT OR Apache-2.0
//! The web page: files that the daemon carries inside.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::get;

/// What the page may do: load the daemon's own files and ask the daemon. Text cannot become a program.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files: path, type, text.
const FILES: [(&str, &str, &str); 10] = [
    ("/", HTML, include_str!("../../web/index.html")),
    ("/web/icon.svg", "image/svg+xml", include_str!("../../web/icon.svg")),
    ("/web/page.css", STYLE, include_str!("../../web/page.css")),
    ("/web/machine.css", STYLE, include_str!("../../web/machine.css")),
    ("/web/page.js", SCRIPT, include_str!("../../web/page.js")),
    ("/web/daemon.js", SCRIPT, include_str!("../../web/daemon.js")),
    ("/web/text.js", SCRIPT, include_str!("../../web/text.js")),
    ("/web/nodes.js", SCRIPT, include_str!("../../web/nodes.js")),
    ("/web/space.js", SCRIPT, include_str!("../../web/space.js")),
    ("/web/lists.js", SCRIPT, include_str!("../../web/lists.js")),
];

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let more = |name: &'static str| HeaderName::from_static(name);
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // the page of another version of the daemon is not kept
        (CACHE_CONTROL, "no-store"),
        (more("cross-origin-opener-policy"), "same-origin"),
        (more("cross-origin-resource-policy"), "same-origin"),
        (more("x-frame-options"), "DENY"),
    ];
    (headers, text)
}

/// The routes of the page. They say nothing about the machine.
pub(super) fn routes() -> Router {
    let add = |all: Router, (path, kind, text)| all.route(path, get(async move || file(kind, text)));
    FILES.into_iter().fold(Router::new(), add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_makes_no_html_of_text() {
        for (path, _, text) in FILES {
            for word in [
                "http:",
                "https:",
                "//cdn",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "style=",
                " onclick=",
                "<script>",
                "<style",
            ] {
                // the name of a namespace is no address
                let text = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(word), "{path}: {word}");
            }
            assert!(text.lines().count() <= 400, "{path}");
        }
    }

    #[test]
    fn every_file_that_the_page_names_is_served() {
        let all: Vec<&str> = FILES.iter().map(|(path, ..)| *path).collect();
        for (path, _, text) in FILES {
            for part in text.split("/web/").skip(1) {
                let name = part.split(['"', '\'']).next().unwrap_or_default();
                assert!(all.contains(&format!("/web/{name}").as_str()), "{path}: {name}");
            }
            for part in text.split("from \"./").skip(1) {
                let name = part.split('"').next().unwrap_or_default();
                assert!(all.contains(&format!("/web/{name}").as_str()), "{path}: {name}");
            }
        }
    }
}
