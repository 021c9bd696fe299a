// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accuracy of windows, and the cluster's clock.

use colony_client::Mode;
use colony_clock::anchor::Anchor;
use colony_time::Estimate;
use colony_time::clock::Clock;
use colony_time::estimate::Feed;

use crate::support::{Daemon, NOBODY, possible, real_time, text, wait_until};

/// An estimate of a clock that is ahead by `offset_ns`.
fn feed(offset_ns: i64, bound_ns: u64) -> Feed {
    let tai_ns = Clock::Tai.now_ns();
    Feed {
        estimate: Estimate { at_ns: tai_ns, offset_ns, drift_ppm: 100.0, bound_ns, growth_ppm: 0.1 },
        monotonic_ns: tai_ns - Anchor::now().tai_less_monotonic_ns,
        frequency_ppm: None,
        reference: "node0".into(),
    }
}

#[test]
fn windows_follow_a_clusters_clock_and_come_back() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let client = daemon.client();
    let alone = client.clock().expect("JSON").coordination;
    assert!(alone.mode == Mode::Coordinated || alone.reason.is_some(), "{alone:?}");
    let ahead = 41_234_567;
    client.feed(Some(&feed(ahead, 20_000))).expect("root may");
    let clock = client.clock().expect("JSON");
    let c = &clock.coordination;
    assert_eq!((c.mode, &c.reason), (Mode::Coordinated, &None));
    assert!(c.guard_ns >= 20_000 && c.cluster.as_ref().is_some_and(|c| c.reference == "node0"), "{c:?}");
    // where the cluster's clock is in its period, this node's windows are
    let kept = c.kept.expect("kept");
    let cluster_phase = clock.windows.phase(clock.tai_ns + ahead) + c.guard_ns;
    let period = clock.windows.period_ns();
    let apart = kept.phase(clock.tai_ns).abs_diff(cluster_phase % period);
    // 100 ppm of the seconds since
    assert!(apart.min(period - apart) < 1_000_000, "{apart}: {clock:?}");
    assert_eq!(client.windows().expect("JSON").favored_ns(), 95_000_000, "as set");
    assert!(daemon.errno("clock", "none").is_none());
    assert_eq!(client.clock().expect("JSON").coordination.cluster, None);
    let said = std::fs::read_to_string(daemon.folder().join("log")).expect("a log");
    assert!(said.contains("coordinated: windows by the clock of node0"), "{said}");
}

#[test]
fn a_wrong_estimate_is_refused_and_users_may_not_give_one() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[access]\nusers = [\"65534\"]\n");
    let old = Feed { monotonic_ns: 1 - 4_000_000_000_000, ..feed(0, 1) };
    for (written, errno, reason) in [
        ("soon", libc::EINVAL, "no key=value"),
        ("tai_ns=1", libc::EINVAL, "missing"),
        (&old.to_string(), libc::ERANGE, "colony clock sync --feed"),
    ] {
        assert_eq!(daemon.errno("clock", written), Some(errno), "{written}");
        let said = daemon.read("last_error");
        assert!(said.starts_with("clock") && said.contains(reason), "{said}");
    }
    let said = text(&daemon.shell_as(Some(NOBODY), "echo none > $M/clock || cat $M/last_error"));
    assert!(said.contains("may not set the windows"), "{said}");
}

#[test]
fn a_clock_that_is_too_wrong_stops_the_windows_where_that_is_asked_for() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[clock]\nfallback = \"off\"\n");
    let client = daemon.client();
    client.feed(Some(&feed(0, 2_000_000))).expect("taken, though not good enough");
    let stats = client.stats().expect("JSON");
    assert_eq!((stats.coordination.mode, stats.coordination.kept), (Mode::Off, None));
    let reason = stats.coordination.reason.expect("a reason");
    assert!(reason.contains("500us is allowed"), "{reason}");
    let mut job = std::process::Command::new("sleep").arg("100").spawn().expect("sleep");
    client.join(job.id() as i32).expect("a job may be there all the same");
    let class = || colony_node::class::get(job.id() as i32).expect("alive");
    let own = class();
    assert!(!client.stats().expect("JSON").job.active && client.job().expect("readable").len() == 1);
    // as soon as the clock is good enough, windows are kept
    client.feed(Some(&feed(0, 1_000))).expect("taken");
    if real_time() {
        wait_until("windows are kept", || client.stats().expect("JSON").job.active);
        wait_until("the job is switched", || class() != own);
    }
    client.feed(Some(&feed(0, 2_000_000))).expect("taken");
    wait_until("the job has its own class again", || class() == own);
    assert!(!client.stats().expect("JSON").job.active);
    job.kill().expect("ours");
    job.wait().expect("ours");
    wait_until("the job has ended", || client.job().expect("readable").is_empty());
}
