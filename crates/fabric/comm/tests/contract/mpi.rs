// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI; a launcher starts this test program once for each rank.

use std::process::{Command, Output};

use colony_comm::Comm;
use colony_comm::mpi::{Mpi, MpiError};

/// Set for ranks: the program that they run.
const PROGRAM: &str = "COLONY_COMM_TEST_PROGRAM";

/// Runs [`rank`] as that many ranks; `None` if there is no launcher.
fn launch(ranks: &str, program: &str) -> Option<Output> {
    let launcher = std::env::var("COLONY_MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let output = Command::new(launcher)
        .args(["-n", ranks])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "mpi::rank", "--nocapture"])
        .env(PROGRAM, program)
        // Open MPI refuses to start more ranks than cores, and anything as root; the first is of version 4, the
        // second of version 5
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // a waiting rank offers its CPU to the others
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        .output();
    match output {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            colony_testing::skip("no mpirun");
            None
        }
        output => Some(output.expect("the launcher can be started")),
    }
}

/// No test of its own: what each rank runs.
#[test]
fn rank() {
    let Ok(program) = std::env::var(PROGRAM) else { return };
    let mpi = Mpi::initialize().expect("the first time");
    let world = mpi.world();
    match &*program {
        "contract" => {
            assert!(matches!(Mpi::initialize(), Err(MpiError::Initialize)));
            super::contract::check(&world);
            assert!(!mpi.library().is_empty() && !mpi.processor_name().expect("a name").is_empty());
            println!("rank {} of {} is done", world.rank(), world.size());
        }
        "short" if world.rank() == 0 => world.send(1, &[1, 2, 3]).expect("sent"),
        "short" => {
            let error = world.recv(0, &mut [0; 4]).expect_err("too short");
            assert!(matches!(error, MpiError::Length { from: 0, length: 3, expected: 4 }), "{error}");
            println!("{error}");
        }
        "abort" if world.rank() == 0 => world.abort(),
        "abort" => world.barrier().expect("MPI ends this process"),
        other => panic!("no program {other}"),
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn mpi_keeps_the_contract() {
    for ranks in ["2", "3", "5"] {
        let Some(output) = launch(ranks, "contract") else { return };
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.matches(&format!(" of {ranks} is done")).count().to_string(), ranks, "{text}");
    }
}

#[test]
fn a_shorter_message_is_an_error() {
    let Some(output) = launch("2", "short") else { return };
    let text = text(&output);
    assert!(output.status.success() && text.contains("rank 0 sent 3 bytes"), "{text}");
}

#[test]
fn an_abort_ends_every_rank() {
    let Some(output) = launch("3", "abort") else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}
