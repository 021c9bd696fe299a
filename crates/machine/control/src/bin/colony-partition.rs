// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service of one partition. `colony-control` starts it.

fn main() -> std::process::ExitCode {
    colony_control::service_main()
}
