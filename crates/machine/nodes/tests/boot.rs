// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `colony-boot`, started by something else than Colony.

use std::process::{Command, Stdio};

#[test]
fn without_a_socket_the_boot_process_names_its_starter() {
    let program = env!("CARGO_BIN_EXE_colony-boot");
    let out = Command::new(program).stdin(Stdio::null()).output().expect("it starts");
    let error = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{error}");
    assert!(error.contains("it is started by Colony"), "{error}");
}
