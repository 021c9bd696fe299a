// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the machine fails, and nodes that get no jobs, on a partition that the test plays.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use colony_control_api::api::{DrainRequest, Job, JobRequest, JobState, NodeState, PartitionState};
use serde_json::{Value, json};

use super::stub::{Daemon, PATIENCE, at_socket};

fn request(daemon: &Daemon, more: &Value) -> JobRequest {
    let partition = daemon.client.machine().expect("a machine").partitions[0].name.clone();
    let mut job = json!({ "partition": partition, "executable": "/bin/x", "directory": "/" });
    job.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    serde_json::from_value(job).expect("right")
}

fn submit(daemon: &Daemon, more: &Value) -> u64 {
    daemon.client.submit(&request(daemon, more)).expect("added").id
}

fn wait(daemon: &Daemon, id: u64, is_so: impl Fn(&Job) -> bool) -> Job {
    let began = Instant::now();
    loop {
        let job = daemon.client.job(id).expect("it is there");
        if is_so(&job) {
            return job;
        }
        assert!(began.elapsed() < PATIENCE, "{job:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(daemon: &Daemon, id: u64) -> Job {
    wait(daemon, id, |job| job.state == JobState::Ended)
}

#[test]
fn a_job_that_began_no_rank_is_first_in_the_queue_again_with_an_event() {
    let daemon = Daemon::ready("2x2x2", 8);
    let first = submit(&daemon, &json!({}));
    let second = submit(&daemon, &json!({}));
    daemon.wait_launched(1);
    daemon.end_job(first, 255, false, true);
    daemon.wait_launched(2);
    assert_eq!(daemon.launched(), [first, first], "before the one that was submitted later");
    let job = wait(&daemon, first, |job| job.state == JobState::Running);
    assert_eq!((job.requeues, job.error), (1, None));
    let events = daemon.client.ras(&[]).expect("read");
    let event = events.iter().find(|event| event.code == "job-requeued").expect("there is one");
    assert_eq!(event.job, Some(first));
    assert!(event.message.contains("began no rank") && event.message.contains("node 3 died"), "{event:?}");
    daemon.end_job(first, 0, true, false);
    assert_eq!(ended(&daemon, first).code, Some(0));
    daemon.wait_launched(3);
    // the ranks of this one had begun
    daemon.end_job(second, 255, true, true);
    let job = ended(&daemon, second);
    assert_eq!((job.code, job.error.as_deref(), job.requeues), (Some(255), Some("node 3 died"), 0));
}

#[test]
fn a_job_that_may_run_again_does_and_one_that_was_cancelled_does_not() {
    let daemon = Daemon::ready("2x2x2", 8);
    let again = submit(&daemon, &json!({ "requeue": true }));
    daemon.wait_launched(1);
    daemon.end_job(again, 255, true, true);
    daemon.wait_launched(2);
    assert_eq!(daemon.launched(), [again, again]);
    daemon.client.signal(again, 15).expect("told");
    daemon.end_job(again, 255, false, true);
    assert_eq!(ended(&daemon, again).code, Some(255));
    let text = daemon.client.submit(&request(&daemon, &json!({ "requeue": true, "sends_stdin": true })));
    assert!(text.is_err_and(|e| e.to_string().contains("cannot run again")));
}

#[test]
fn a_daemon_that_is_killed_puts_a_job_back_once() {
    let mut daemon = Daemon::ready("2x2x2", 8);
    let id = submit(&daemon, &json!({}));
    daemon.wait_launched(1);
    daemon.kill();
    daemon.end_job(id, 255, false, true);
    daemon.revive();
    daemon.wait_launched(2);
    daemon.end_job(id, 0, true, false);
    let job = ended(&daemon, id);
    assert_eq!((job.code, job.requeues), (Some(0), 1));
    assert_eq!(daemon.launched(), [id, id]);
}

#[test]
fn a_dead_node_gets_no_job_while_others_wait_for_jobs() {
    let daemon = Daemon::ready("4x2x2", 8);
    daemon.set(0, "dead");
    let half = submit(&daemon, &json!({ "nodes": 8 }));
    daemon.wait_launched(1);
    let job = wait(&daemon, half, |job| job.block.is_some());
    assert_eq!(job.block.expect("nodes").origin, [2, 0, 0], "beside the dead node");
    let all = submit(&daemon, &json!({}));
    let waits = daemon.client.job(all).expect("there").waits.unwrap_or_default();
    assert!(waits.contains("drained, lost or dead"), "{waits}");
    daemon.end_job(half, 0, true, false);
    daemon.set(0, "ready");
    daemon.wait_launched(2);
    assert_eq!(daemon.launched(), [half, all]);
}

#[test]
fn a_partition_with_drained_nodes_is_degraded_and_says_what_still_fits() {
    let daemon = Daemon::ready("4x2x2", 8);
    let drain = |location: &str| {
        let request = DrainRequest { location: location.to_owned(), reason: "x".to_owned() };
        daemon.client.drain(&request).map_err(|e| e.to_string())
    };
    let shown = || {
        let partition = daemon.client.machine().expect("a machine").partitions.remove(0);
        let usable =
            partition.usable.map(|usable| (usable.nodes, usable.largest.map(|shape| shape.to_string())));
        (partition.state, usable)
    };
    assert_eq!(shown(), (PartitionState::Ready, None));
    // both nodes are in one half of the machine
    assert_eq!(drain("R00-M0-N00-J00, R00-M0-N00-J05").expect("drained").len(), 2);
    assert_eq!(shown(), (PartitionState::Degraded, Some((8, Some("2x2x2".to_owned())))));
    assert!(
        drain("R00-M0-N00-J02,R00-M0-N00-J05")
            .is_err_and(|e| e.contains("R00-M0-N00-J05 is drained already"))
    );
    assert_eq!(shown().1, Some((8, Some("2x2x2".to_owned()))), "all of a list or none");
    let all = submit(&daemon, &json!({}));
    let waits = daemon.client.job(all).expect("there").waits.unwrap_or_default();
    assert!(waits.contains("8 of 16 nodes take jobs, and a job of 2x2x2 still fits"), "{waits}");
    let undrain = |list: &str| daemon.client.undrain(list).map_err(|e| e.to_string());
    assert!(undrain("R00-M0-N00-J02").is_err_and(|e| e.contains("is not drained")));
    assert!(undrain("R00,nowhere").is_err());
    assert_eq!(undrain("R00-M0").expect("they were"), ["R00-M0-N00-J00", "R00-M0-N00-J05"]);
    assert_eq!(shown(), (PartitionState::Ready, None));
    drain("R00-M0").expect("drained");
    assert!(undrain("R00-M0-N00-J00").is_err_and(|e| e.contains("as a part of R00-M0")));
    undrain("R00").expect("it is");
    daemon.wait_launched(1);
}

#[test]
fn a_partition_that_does_not_answer_is_lost_and_holds_up_nobody_for_long() {
    let daemon = Daemon::ready("2x2x2", 8);
    let shown = || daemon.client.machine().expect("a machine").partitions.remove(0);
    assert_eq!(shown().state, PartitionState::Ready);
    daemon.hang(true);
    let lost = shown();
    let why = lost.error.expect("a reason");
    assert_eq!((lost.state, lost.nodes.get(&NodeState::Lost)), (PartitionState::Lost, Some(&8)));
    assert!(
        why.contains(&format!("pid {}", std::process::id())) && why.contains("has not answered"),
        "{why}"
    );
    // it is not asked for each request
    for _ in 0..50 {
        assert_eq!(shown().state, PartitionState::Lost);
    }
    assert!(daemon.unanswered() < 10, "{}", daemon.unanswered());
    let id = submit(&daemon, &json!({}));
    let waits = daemon.client.job(id).expect("there").waits.unwrap_or_default();
    assert!(waits.contains("does not answer"), "{waits}");
    daemon.hang(false);
    daemon.wait_launched(1);
    let began = Instant::now();
    while shown().state != PartitionState::Ready {
        assert!(began.elapsed() < PATIENCE, "it answers again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn get(daemon: &Daemon, head: &str) -> String {
    at_socket(&daemon.socket(), format!("{head}\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
}

#[test]
fn numbers_that_no_job_and_no_event_can_have_are_answered_as_unknown() {
    let daemon = Daemon::ready("2x2x2", 8);
    let id = submit(&daemon, &json!({}));
    for number in [u64::MAX, i64::MAX.unsigned_abs() + 1, i64::MAX.unsigned_abs()] {
        for path in ["", "/stdout", "/stderr"] {
            let answer = get(&daemon, &format!("GET /v1/jobs/{number}{path} HTTP/1.1"));
            assert!(answer.starts_with("HTTP/1.1 404"), "{number}{path}: {answer}");
        }
        assert!(daemon.client.signal(number, 15).is_err_and(|e| e.to_string().contains("no job")));
        assert!(daemon.client.send_input(number, 0, b"x", true).is_err_and(|e| e.is_wrong_use()));
        assert!(daemon.client.ras(&[("after", number.to_string())]).expect("answered").is_empty());
        let answer = get(&daemon, &format!("GET /v1/jobs/{id}/stdout?follow=false&from={number} HTTP/1.1"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let answer = get(&daemon, &format!("GET /v1/jobs?before={number} HTTP/1.1"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let answer = get(&daemon, "GET /v1/jobs/18446744073709551616 HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn a_request_with_two_hosts_is_refused() {
    let daemon = Daemon::ready("2x2x2", 8);
    let network = daemon.listen();
    let token = daemon.token();
    let head = |hosts: &str| {
        format!(
            "GET /v1/machine HTTP/1.1\r\n{hosts}authorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        )
    };
    for (hosts, status) in [
        ("host: localhost\r\n", 200),
        ("host: localhost\r\nhost: evil.example\r\n", 400),
        ("host: evil.example\r\nhost: localhost\r\n", 400),
        ("host: localhost\r\nhost: localhost\r\n", 400),
    ] {
        let expected = format!("HTTP/1.1 {status} ");
        let local = at_socket(&daemon.socket(), head(hosts).as_bytes());
        assert!(local.starts_with(&expected), "{hosts}: {local}");
        let far = super::network::raw(&network, head(hosts).as_bytes());
        assert!(far.starts_with(&expected), "{hosts}: {far}");
    }
}

#[test]
fn listings_have_no_environments_and_large_ones_are_refused() {
    let daemon = Daemon::ready("2x2x2", 8);
    let with = |bytes: usize| BTreeMap::from([("A".to_owned(), "x".repeat(bytes))]);
    let id = submit(&daemon, &json!({ "environment": with(200 << 10) }));
    assert_eq!(daemon.client.job(id).expect("there").request.environment.len(), 1);
    let machine = daemon.client.machine().expect("a machine");
    let listed = daemon.client.jobs(u32::MAX).expect("listed");
    assert_eq!((machine.jobs.len(), machine.more_jobs, listed.len()), (1, 0, 1));
    assert!(machine.jobs.iter().chain(&listed).all(|job| job.request.environment.is_empty()));
    let refused = daemon.client.submit(&request(&daemon, &json!({ "environment": with(300 << 10) })));
    assert!(refused.is_err_and(|e| e.to_string().contains("256 KiB")));
    let refused = daemon.client.submit(&request(&daemon, &json!({ "arguments": ["x".repeat(2 << 20)] })));
    assert!(refused.is_err_and(|e| e.to_string().contains("1024 KiB")));
}

#[test]
fn a_machine_that_is_refused_leaves_no_daemon_and_one_that_is_up_stays() {
    use colony_control_api::Client;
    use colony_control_api::api::MachineRequest;
    let folder = tempfile::tempdir().expect("a folder");
    let client = || Client::new(folder.path(), std::path::Path::new(super::stub::DAEMON)).expect("a client");
    let machine = |shape: &str| MachineRequest {
        shape: shape.parse().expect("a shape"),
        partition: None,
        allocation: None,
    };
    let first = client();
    first.start_daemon().expect("it starts");
    first.set_up(&machine("3x3x3")).expect_err("no machine has this shape");
    assert!(first.is_served());
    first.end_unused_daemon();
    assert!(!first.is_served() && !folder.path().join("api").exists());
    let second = client();
    second.start_daemon().expect("it starts");
    second.set_up(&machine("2x2x2")).expect("set up");
    second.set_up(&machine("3x3x3")).expect_err("no machine has this shape");
    second.end_unused_daemon();
    assert!(second.is_served(), "the machine is up");
    second.down().expect("it ends");
}
