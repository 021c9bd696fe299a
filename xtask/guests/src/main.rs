// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the guests that are not current: what `cargo xtask guests` does, without the other commands' dependencies.
//! `--release` shares procedural macros with a release build.

use std::process::ExitCode;

use guests::Profile;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let profile = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Profile::Dev,
        ["--release"] => Profile::Release,
        _ => {
            eprintln!("error: guests takes --release or nothing, not {}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match guests::build_all(profile) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
