// SPDX-License-Identifier: MIT OR Apache-2.0
//! News of a partition, while the daemon that stores them is killed.

use std::collections::BTreeMap;

use super::stub::{Daemon, PATIENCE};

#[test]
fn each_event_of_a_partition_is_stored_once_although_the_daemon_is_killed_at_any_point() {
    let mut daemon = Daemon::ready("2x2x2", 8);
    const ALL: usize = 300;
    (0..ALL).for_each(|n| daemon.event(n % 8, "info", "test-event", &format!("event {n}")));
    let stored = |daemon: &Daemon| -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let events = daemon.client.ras(&[("limit", "10000".to_owned())]).expect("read");
        for event in events.into_iter().filter(|event| event.code == "test-event") {
            *counts.entry(event.message).or_default() += 1;
        }
        counts
    };
    let (began, mut before) = (std::time::Instant::now(), 0);
    for kills in 0.. {
        let now = stored(&daemon);
        assert!(now.values().all(|count| *count == 1), "after {kills} kills: {now:?}");
        if now.len() == ALL {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{} events after {kills} kills", now.len());
        // a daemon that is killed at each turn before it stores anything would never be done
        if kills < 30 || now.len() > before {
            before = now.len();
            daemon.kill();
            daemon.revive();
        }
    }
    let expected: BTreeMap<String, usize> = (0..ALL).map(|n| (format!("event {n}"), 1)).collect();
    assert_eq!(stored(&daemon), expected);
}
