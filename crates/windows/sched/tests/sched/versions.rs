// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes of an earlier version of Colony left when they were killed: it had no ledger of affinities, and wrote them into its
//! undo files.

use std::path::PathBuf;
use std::process::Command;

use colony_ledger::state::{boot, folder};
use colony_node::cpu::{self, CpuSet};
use colony_node::task::TaskId;
use serde_json::{Value, json};

use crate::common::*;

/// Writes an undo file of a process that is dead.
fn leave(kind: &str, what: &Value) -> PathBuf {
    let mut process = Command::new("true").spawn().expect("true");
    let dead = TaskId::of(process.id().cast_signed()).expect("ours");
    process.wait().expect("ours");
    let path = folder().expect("ours").join(format!("{}.{}.0.{kind}", dead.tid, dead.start_ticks));
    let file = json!({"schema": "colony.undo/1", "boot": boot().expect("linux"), "what": what});
    std::fs::write(&path, file.to_string()).expect("ours");
    path
}

fn id_of(task: &Owned) -> TaskId {
    TaskId::of(task.pid()).expect("alive")
}

/// A task of a job that an earlier version has bound to the job's CPU, one that it has moved away for a reservation, and its undo
/// files.
struct Left {
    bound: Vec<Owned>,
    moved: Owned,
    files: Vec<PathBuf>,
}

/// Changes tasks as processes of an earlier version did that were killed since.
fn left_by_an_earlier_version(all: &CpuSet, job: &CpuSet) -> Left {
    let spare = all.without(job);
    let bound = vec![bound_to(job), bound_to(job)];
    let moved = bound_to(&spare);
    let binding = |task: &Owned| json!([{"task": id_of(task), "old": all, "new": job}]);
    let files = vec![
        leave(
            "daemon",
            &json!({"mount": "/nonexistent/colony", "remove": true, "bound": binding(&bound[0]),
            "processes": [id_of(&bound[0])], "socket": null}),
        ),
        leave("tasks", &json!({"tasks": [], "bound": binding(&bound[1])})),
        leave(
            "spare",
            &json!({"job": job, "spare": spare, "group": null, "transaction": null, "members": [],
            "affinities": {"before": {all.to_string(): [id_of(&moved)]}}}),
        ),
    ];
    Left { bound, moved, files }
}

#[test]
fn what_an_earlier_version_left_is_undone_also_beside_a_reservation_of_this_one() {
    let Some(_cpu) = the_job_cpu() else { return };
    let (all, job) = (cpu::usable().expect("linux"), last_cpu());
    let spare = all.without(&job);
    let has = |task: &Owned, cpus: &CpuSet| cpu::affinity(task.pid()).is_ok_and(|now| now == *cpus);
    for is_beside_a_reservation in [false, true] {
        let left = left_by_an_earlier_version(&all, &job);
        let is_moved = |task: &Owned| eventually(|| has(task, &spare)).is_some();
        let undone = || left.files.iter().all(|file| !file.exists());
        if is_beside_a_reservation {
            // the files come back when the reservation is there: it undoes them when it starts
            let kept: Vec<String> =
                left.files.iter().map(|file| std::fs::read_to_string(file).expect("ours")).collect();
            left.files.iter().for_each(|file| std::fs::remove_file(file).expect("ours"));
            let reservation = wait_until_ready(me(&["reserve", "1"]));
            assert!(left.bound.iter().all(is_moved));
            left.files.iter().zip(kept).for_each(|(file, text)| std::fs::write(file, text).expect("ours"));
            assert!(me(&["restore"]).status().expect("itself").success() && undone());
            assert!(left.bound.iter().chain([&left.moved]).all(is_moved), "they are still the reservation's");
            assert_eq!(stop(reservation).trim(), "ended");
        } else {
            assert!(me(&["restore"]).status().expect("itself").success() && undone());
        }
        for task in left.bound.iter().chain([&left.moved]) {
            assert!(has(task, &all), "{is_beside_a_reservation}: {:?}", cpu::affinity(task.pid()));
        }
    }
}
