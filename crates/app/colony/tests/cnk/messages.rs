// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between nodes.

use colony_nodes::ciod::{JobError, Mode};
use colony_nodes::{CnkError, Machine};

use crate::common::{boot, folder, launch, programs, run, spec};

#[test]
fn the_benchmark_programs_run_between_nodes() {
    let Some([bench]) = programs(["colony-bench-cnk"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 2);
    for (mode, ranks) in [(Mode::Coprocessor, 2), (Mode::VirtualNode, 4)] {
        for program in ["barrier", "allreduce", "alltoall", "bsp", "glob", "ring"] {
            let mut job = spec(
                &bench,
                place.path(),
                &[program, "--ops", "50", "--warmup", "2", "--out", "result.json"],
            );
            job.mode = mode;
            let ran = run(&mut partition, job);
            ran.output();
            let result = std::fs::read(place.path().join("result.json")).expect("rank 0 wrote it");
            let result: serde_json::Value = serde_json::from_slice(&result).expect("JSON");
            assert_eq!(result["ranks"], ranks, "{program}");
            let measured = &result["results"][0];
            assert_eq!(measured["wrong"], 0, "{program}: {measured}");
            assert!(measured["ops"].as_u64() > Some(0), "{program}: {measured}");
        }
    }
}

#[test]
fn a_second_job_is_refused_and_leaves_the_messages_of_the_first_alone() {
    let Some([bench]) = programs(["colony-bench-cnk"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 2);
    let job = |ops: &str| spec(&bench, place.path(), &["allreduce", "--ops", ops, "--warmup", "2"]);
    let running = launch(&mut partition, job("5000"));
    assert!(running.job().wait_started());
    let mut refused = 0;
    while running.job().wait_timeout(std::time::Duration::from_millis(20)).is_none() {
        let second = partition.launch_captured(job("1"));
        // the first may have ended meanwhile
        refused += u32::from(matches!(second, Err(CnkError::Job(JobError::NodeBusy(0)))));
    }
    assert!(refused > 0, "the first job took some time");
    running.end(&partition).output();
}
