// SPDX-License-Identifier: MIT OR Apache-2.0
//! The web page in a real browser.

use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use colony_control_api::api::JobRequest;
use colony_testing::browser::{Page, find};
use serde_json::json;

use super::stub::Daemon;

/// A text that would run as a program if it became markup.
const HOSTILE: &str = "<img src=x onerror=\"document.title='hacked'\"></script><b>'&amp;";

/// Keeps a picture for a look if `COLONY_KEEP_PICTURES=FOLDER` asks for it.
fn keep(page: &mut Page, name: &str) {
    if let Some(folder) = std::env::var_os("COLONY_KEEP_PICTURES") {
        page.picture(&PathBuf::from(folder).join(format!("{name}.png")));
    }
}

/// The page of a daemon, logged in by the link.
fn open(daemon: &Daemon, browser: &str, width: u32) -> (Page, String) {
    let url = daemon.listen().url;
    let mut page = Page::open(browser, width, 900);
    page.go(&format!("{url}#token={}", daemon.token()));
    page.wait("document.body.dataset.loaded && document.body.dataset.link === 'live'");
    (page, url)
}

const CELLS: &str = "document.querySelectorAll('[role=gridcell]').length";

fn cells(state: &str) -> String {
    format!("document.querySelectorAll('[role=gridcell][data-is={state}]').length")
}

/// No errors, nothing asked of others, nothing wider than the window.
fn check(page: &mut Page, url: &str) {
    assert_eq!(page.problems(), [] as [String; 0]);
    let foreign: Vec<_> = page.requests().into_iter().filter(|asked| !asked.starts_with(url)).collect();
    assert_eq!(foreign, ["about:blank"; 0]);
    assert_eq!(page.value("document.documentElement.scrollWidth <= innerWidth"), true);
    assert_ne!(page.value("document.title"), "hacked");
}

#[test]
fn a_midplane_is_shown_and_a_node_that_dies_changes_live() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("8x8x8", 64);
    let (mut page, url) = open(&daemon, browser, 1280);
    assert_eq!((page.value(CELLS), page.value(&cells("ready"))), (json!(512), json!(512)));
    // the token is not in the address, nor where another tab could read it
    assert_eq!(page.value("location.href"), url);
    assert_eq!(page.value("localStorage.length + document.cookie.length"), 0);
    keep(&mut page, "ready");
    (100..140).for_each(|node| daemon.set(node, "busy"));
    daemon.set(77, "dead");
    daemon.set(300, "lost");
    daemon.set(301, "booting");
    daemon.set(302, "off");
    daemon.event(77, "error", "node-died", &format!("its emulator ended (signal SIGKILL) {HOSTILE}"));
    page.wait(&format!("{} === 1 && {} === 40", cells("dead"), cells("busy")));
    page.wait("document.querySelector('#events li code').textContent === 'node-died'");
    page.wait("document.getElementById('say').textContent.includes('node-died')");
    page.wait("document.querySelector('#states [data-is=dead] strong').textContent === '1'");
    assert_eq!(page.value("document.querySelector('[data-is=dead][role=gridcell]').textContent"), "D");
    let said = page.value("document.querySelector('#events li p').textContent");
    assert!(said.as_str().is_some_and(|said| said.contains(HOSTILE)), "{said}");
    // the event leads to its node
    page.value("document.querySelector('#events button').click()");
    page.wait("document.querySelectorAll('#node-events li code').length === 1");
    let facts = page.value("document.getElementById('node').innerText");
    for part in ["R00-M0-N", "dead", "Pset", "I/O node", "Collective parent", "node-died"] {
        assert!(facts.as_str().is_some_and(|facts| facts.contains(part)), "{part}: {facts}");
    }
    keep(&mut page, "light");
    page.set_dark(true);
    keep(&mut page, "dark");
    check(&mut page, &url);
}

#[test]
fn keys_move_the_focus_and_pick_a_node() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("8x8x8", 64);
    daemon.set(9, "dead");
    let (mut page, url) = open(&daemon, browser, 1280);
    page.wait(&format!("{} === 1", cells("dead")));
    let here = "document.activeElement.getAttribute('aria-label')";
    // by keys alone: one stop for all nodes
    page.value("document.getElementById('nodes').focus()");
    page.press("Tab");
    let first = page.value(here);
    assert!(first.as_str().is_some_and(|label| label.contains("at 0, 0, 0: ready")), "{first}");
    for (key, place) in [
        ("ArrowRight", "1, 0, 0"),
        ("ArrowDown", "1, 1, 0"),
        ("PageDown", "1, 1, 1"),
        ("End", "7, 1, 1"),
        ("ArrowRight", "7, 1, 1"),
        ("Home", "0, 1, 1"),
        ("ArrowUp", "0, 0, 1"),
        ("ArrowUp", "0, 0, 1"),
        ("PageUp", "0, 0, 0"),
        ("n", "1, 1, 0"),
    ] {
        page.press(key);
        let label = page.value(here);
        assert!(
            label.as_str().is_some_and(|label| label.contains(&format!("at {place}:"))),
            "{key}: {label}"
        );
    }
    assert_eq!(page.value("document.querySelectorAll('[role=gridcell][tabindex=\"0\"]').length"), 1);
    assert_eq!(page.value("getComputedStyle(document.activeElement).outlineStyle"), "solid");
    page.press("Enter");
    page.wait("!document.getElementById('node').hidden");
    page.wait("document.getElementById('node-facts').innerText.includes('dead')");
    page.press("Escape");
    page.wait("document.getElementById('node').hidden");
    let label = page.value(here);
    assert!(label.as_str().is_some_and(|label| label.contains("at 1, 1, 0:")), "the focus is back: {label}");
    page.press("Tab");
    assert_eq!(page.value("document.activeElement.getAttribute('role')"), json!(null), "one stop only");
    check(&mut page, &url);
}

#[test]
fn hostile_names_of_jobs_stay_text_and_a_job_is_ended_after_a_question() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("2x2x2", 8);
    let partition = daemon.client.machine().expect("a machine").partitions[0].name.clone();
    let job = json!({
        "partition": partition, "executable": "/bin/x", "name": HOSTILE, "arguments": [HOSTILE], "directory": "/",
        "environment": { "A": HOSTILE },
    });
    let job: JobRequest = serde_json::from_value(job).expect("right");
    let (mut page, url) = open(&daemon, browser, 1280);
    let jobs = [daemon.client.submit(&job).expect("added").id, daemon.client.submit(&job).expect("added").id];
    page.wait("document.querySelectorAll('#jobs tbody tr').length === 2");
    let shown = page.value("document.querySelector('#jobs .program').textContent");
    assert_eq!(shown, json!(format!("{HOSTILE} {HOSTILE}")));
    assert_eq!(page.value("document.querySelectorAll('main img').length"), 0);
    page.wait("[...document.querySelectorAll('#jobs .state')].some((e) => e.textContent === 'running')");
    assert_eq!(daemon.jobs(), jobs[..1]);
    // the second waits: it ends at once
    let second = "document.querySelector(`[data-key='job ";
    page.value(&format!("{second}{}']`).click()", jobs[1]));
    page.wait("document.getElementById('cancel').open");
    page.press("Escape");
    page.wait("!document.getElementById('cancel').open");
    assert_eq!(page.value("document.querySelectorAll('#jobs tbody button').length"), 2, "nothing has ended");
    page.value(&format!("{second}{}']`).click()", jobs[1]));
    page.value("document.getElementById('cancel-yes').click()");
    page.wait(
        "[...document.querySelectorAll('#jobs .state')].some((e) => e.textContent === 'ended with 143')",
    );
    keep(&mut page, "jobs");
    check(&mut page, &url);
}

#[test]
fn with_a_token_that_may_only_look_the_page_ends_no_jobs() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("2x2x2", 8);
    let partition = daemon.client.machine().expect("a machine").partitions[0].name.clone();
    let job = json!({ "partition": partition, "executable": "/bin/x", "directory": "/" });
    let job: JobRequest = serde_json::from_value(job).expect("right");
    daemon.client.submit(&job).expect("added");
    let (mut page, url) = open(&daemon, browser, 1280);
    page.wait("document.querySelectorAll('#jobs tbody button').length === 1");
    let token = daemon.client.read_only_token(false).expect("a token").token;
    page.go(&format!("{url}#token={token}"));
    page.wait(
        "document.body.dataset.may === 'look' && document.querySelectorAll('#jobs tbody tr').length === 1",
    );
    page.wait("document.getElementById('link').textContent.includes('read-only')");
    assert_eq!(page.value("document.querySelectorAll('#jobs button').length"), 0);
    daemon.client.submit(&job).expect("added");
    page.wait("document.querySelectorAll('#jobs tbody tr').length === 2");
    assert_eq!(page.value("document.querySelectorAll('#jobs button').length"), 0, "nor after a change");
    keep(&mut page, "read-only");
    check(&mut page, &url);
}

#[test]
fn a_phone_shows_all_of_it_without_scrolling_sideways() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("8x8x8", 64);
    daemon.set(3, "dead");
    daemon.event(3, "fatal", "node-drained", &"a-word-without-an-end".repeat(40));
    let (mut page, url) = open(&daemon, browser, 360);
    page.wait(&format!("{} === 1", cells("dead")));
    page.wait("document.querySelectorAll('#events li code').length > 1");
    check(&mut page, &url);
    let size = page.value("Math.min(...['width', 'height'].map((side) => document.querySelector('[role=gridcell]').getBoundingClientRect()[side]))");
    assert!(size.as_f64().is_some_and(|size| size >= 24.0), "a finger finds a node: {size}");
    keep(&mut page, "phone");
    page.value("document.querySelector('[data-is=dead][role=gridcell]').click()");
    page.wait("document.querySelectorAll('#node-events li').length > 0");
    keep(&mut page, "phone-node");
    page.set_dark(true);
    keep(&mut page, "phone-dark");
    check(&mut page, &url);
}

#[test]
fn the_page_says_that_the_daemon_is_gone_and_comes_back_by_itself() {
    let Some(browser) = find() else { return };
    let mut daemon = Daemon::ready("2x2x2", 8);
    let (mut page, _) = open(&daemon, browser, 1280);
    daemon.kill();
    page.wait("document.body.dataset.link === 'gone'");
    page.wait("document.getElementById('link').textContent.includes('does not answer')");
    keep(&mut page, "gone");
    daemon.set(5, "dead");
    daemon.revive();
    page.wait(&format!("document.body.dataset.link === 'live' && {} === 1", cells("dead")));
    // a token that is taken back ends it
    daemon.client.revoke_token().expect("revoked");
    page.wait("document.body.dataset.link === 'refused' && !document.getElementById('login').hidden");
    assert_eq!(page.value("document.getElementById('main').hidden"), true);
    keep(&mut page, "login");
    log_in(&mut page, &daemon);
}

/// Gives the page a new token.
fn log_in(page: &mut Page, daemon: &Daemon) {
    let token = daemon.token();
    page.value(&format!("document.getElementById('token').value = '{token}'"));
    page.value("document.querySelector('#login button').click()");
    page.wait("document.body.dataset.link === 'live' && !document.getElementById('main').hidden");
}

#[test]
fn a_late_refusal_of_the_old_token_does_not_end_the_session_of_the_new_one() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("2x2x2", 8);
    let mut page = Page::open(browser, 1280, 900);
    page.go(&daemon.listen().url);
    page.wait("document.body.dataset.link === 'refused'");
    // the refusal of the connection for events arrives when the test lets it, and those of other requests after it was sent
    page.value(
        "(() => { const real = window.fetch; window.held = []; window.fetch = async (path, options) => {
           const answer = await real(path, options);
           if (answer.status !== 401) return answer;
           if (path === '/v1/events') await new Promise((release) => held.push(release));
           while (held.length === 0) await new Promise((again) => setTimeout(again, 10));
           return answer; }; })()",
    );
    log_in(&mut page, &daemon);
    daemon.client.revoke_token().expect("revoked");
    page.wait("held.length === 1");
    // another request is refused, and the page asks for a token
    page.value("document.querySelector('[role=gridcell]').click()");
    page.wait("document.body.dataset.link === 'refused'");
    log_in(&mut page, &daemon);
    page.value("held.forEach((release) => release())");
    daemon.set(5, "dead");
    page.wait(&format!("{} === 1", cells("dead")));
    assert_eq!(page.value("document.body.dataset.link"), "live");
    assert_eq!(page.value("document.getElementById('main').hidden"), false);
}

/// Forwards a port to the socket, as `ssh -L` does.
fn forward(socket: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(daemon) = UnixStream::connect(&socket) else { continue };
            let (mut to, mut from) = (daemon.try_clone().expect("open"), client.try_clone().expect("open"));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let (mut from, mut to) = (daemon, client);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

#[test]
fn through_a_port_that_ssh_forwards_the_page_needs_no_token() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("2x2x2", 8);
    let job = json!({
        "partition": daemon.client.machine().expect("a machine").partitions[0].name,
        "executable": "/bin/x", "directory": "/",
    });
    let job: JobRequest = serde_json::from_value(job).expect("right");
    for _ in 0..2 {
        daemon.client.submit(&job).expect("added");
    }
    let url = format!("http://localhost:{}/", forward(daemon.socket()).port());
    let mut page = Page::open(browser, 1280, 900);
    page.go(&url);
    page.wait("document.body.dataset.loaded && document.body.dataset.link === 'live'");
    assert_eq!(page.value(CELLS), 8);
    page.wait("document.querySelector('#jobs button')");
    page.value("document.querySelector('#jobs button').click()");
    page.value("document.getElementById('cancel-yes').click()");
    page.wait(
        "[...document.querySelectorAll('#jobs .state')].some((e) => e.textContent === 'ended with 143')",
    );
    check(&mut page, &url);
    // the same page under a name that another site could have
    page.go(&url.replace("localhost", "evil.localhost."));
    page.wait("document.body.innerText.includes('is not this computer')");
}

#[test]
fn a_machine_of_4096_nodes_is_shown_and_used() {
    let Some(browser) = find() else { return };
    let daemon = Daemon::ready("16x16x16", 64);
    let (mut page, url) = open(&daemon, browser, 1280);
    assert_eq!(page.value(CELLS), 4096);
    assert_eq!(page.value("document.querySelectorAll('.midplane').length"), 8);
    (0..4096).for_each(|node| daemon.set(node, "busy"));
    page.wait(&format!("{} === 4096", cells("busy")));
    page.value("document.querySelector('[role=gridcell]').focus()");
    (0..8).for_each(|_| page.press("ArrowRight"));
    let label = page.value("document.activeElement.getAttribute('aria-label')");
    assert!(
        label.as_str().is_some_and(|label| label.contains("at 8, 0, 0: busy")),
        "over midplanes: {label}"
    );
    keep(&mut page, "4096");
    check(&mut page, &url);
}
