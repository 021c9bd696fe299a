// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony-boot`: the process that boots and ends the emulated nodes of one partition. Colony starts it.

fn main() -> std::process::ExitCode {
    colony_nodes::boot_main()
}
