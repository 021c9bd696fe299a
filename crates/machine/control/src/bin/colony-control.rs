// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control daemon.

fn main() -> std::process::ExitCode {
    colony_control::daemon_main()
}
