// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the guests that are not current: what `cargo xtask guests` does, without the other commands' dependencies.

use std::process::ExitCode;

fn main() -> ExitCode {
    match guests::build_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
