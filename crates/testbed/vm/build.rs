// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the files that the library carries inside, the guest's first program and the emulator's plugin that counts: whoever starts a machine
//! needs no second file, wherever it was installed.

fn main() -> Result<(), String> {
    guests::INIT.embed("COLONY_INIT")?;
    guests::TLB_PLUGIN.embed("COLONY_TLB_PLUGIN")
}
