// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of the NAS kernels, as users run it.

use std::process::{Command, Output};

use colony_bench::nas::{Class, Kernel, NasResult};

fn nas(args: &[&str]) -> Output {
    let _cpus = crate::share_cpus();
    Command::new(env!("CARGO_BIN_EXE_colony-nas")).args(args).output().expect("it was built")
}

#[test]
fn each_kernel_prints_one_line_of_json() {
    let output = nas(&["is", "ep", "cg", "mg", "lu", "sp", "bt", "ra", "--class", "s", "--json"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let results: Vec<NasResult> =
        text.lines().map(|line| serde_json::from_str(line).expect("a result")).collect();
    assert!(results.iter().map(|r| r.kernel).eq(Kernel::ALL));
    for r in results {
        assert!(r.verified && r.class == Class::S && r.schema == NasResult::SCHEMA, "{r:?}");
        let (timed, whole) = (r.faults.expect("Linux counts"), r.faults_whole.expect("Linux counts"));
        assert!(timed.minor < whole.minor, "memory is touched before the timed part: {r:?}");
    }
}

#[test]
fn flow_solvers_show_each_norm_beside_the_published_one() {
    let output = nas(&["lu", "sp", "bt", "--json"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for (line, norms) in text.lines().zip([11, 10, 10]) {
        let r: NasResult = serde_json::from_str(line).expect("a result");
        assert!(
            r.checks.len() == norms && r.checks.iter().all(|c| c.holds() && c.tolerance <= 1e-8),
            "{r:?}"
        );
    }
}

#[test]
fn people_read_verified_and_wrong_use_is_exit_2() {
    let output = nas(&["mg"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("mg class S: VERIFIED"));
    for args in [&[][..], &["ft"], &["is", "--class", "Z"]] {
        assert_eq!(nas(args).status.code(), Some(2), "{args:?}");
    }
}
