// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the guest's first program, a static binary, which the library carries inside: whoever starts a machine needs
//! no second file, wherever it was installed.

fn main() -> Result<(), String> {
    guests::INIT.embed("COLONY_INIT")
}
