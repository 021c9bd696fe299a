//! Messages between nodes.

use colony_cnk::Machine;
use colony_cnk::ciod::Mode;

use crate::common::{boot, folder, programs, run, spec};

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
