// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts ranks of a program on this host: `run RANKS PROGRAM [ARGUMENT…]`.

use std::process::ExitCode;

use colony_runtime::launch::Launch;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let ranks = words.next().and_then(|w| w.to_str()?.parse().ok());
    let (Some(ranks), Some(program)) = (ranks, words.next()) else {
        eprintln!("error: run RANKS PROGRAM [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let launch = Launch { ranks, hosts: Vec::new(), this_host: None, program, arguments: words.collect() };
    match launch.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
