// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler loads and works on every kernel that has sched_ext.

use colony_client::Backend;
use colony_sched::run::RunReport;
use colony_vm::testing::missing;
use colony_vm::{Exit, Image, Kernel, Vm, VmError};

use crate::common::stripped;

/// The series Debian has had kernels with sched_ext of; the newest of each is taken, as far as it is there.
const SERIES: [&str; 8] = ["6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "7.3"];

#[test]
fn the_scheduler_runs_a_job_on_every_kernel_since_it_could() {
    if let Some(reason) = missing() {
        colony_testing::skip(reason);
        return;
    }
    let mut image = Image::new();
    image.busybox().expect("busybox");
    image.program(stripped(assert_cmd::cargo::cargo_bin!("colony"))).expect("our program");
    let (mut ran, mut refused) = (Vec::new(), Vec::new());
    for series in SERIES {
        let kernel = match Kernel::find(series) {
            Ok(kernel) => kernel,
            // the archive keeps some for some years
            Err(e @ VmError::NoKernel { .. }) => {
                eprintln!("{series}: {e}");
                continue;
            }
            Err(e) => panic!("{series}: {e}"),
        };
        let out = Vm::new(&kernel, &image)
            .memory_mib(768)
            .collect("/run.json")
            .run(&["colony", "run", "--backend", "sched-ext", "--out", "/run.json", "--", "sleep", "1"])
            .expect("the node runs");
        if out.error_text().contains("type information lacks functions of sched_ext") {
            eprintln!("{} refuses every scheduler", out.kernel);
            refused.push(out.kernel);
            continue;
        }
        assert_eq!(out.exit, Exit::Code(0), "{series}: {}", out.error_text());
        let bytes = out.files.values().next().and_then(|f| f.as_ref().ok()).expect("a report");
        let report: RunReport = serde_json::from_slice(bytes).expect("JSON");
        let ext = report.sched_ext.expect("figures");
        assert!(report.backend == Backend::SchedExt && ext.edges > 0, "{series}: {ext:?}");
        ran.push(out.kernel);
    }
    eprintln!("ran on {}", ran.join(", "));
    assert!(ran.len() >= 3 && ran.len() > refused.len(), "only {ran:?}; {refused:?}");
}
