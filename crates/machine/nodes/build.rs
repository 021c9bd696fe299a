// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the compute node kernel, which the library carries inside: whoever boots a node needs no second file.

fn main() -> Result<(), String> {
    guests::KERNEL.embed("COLONY_CNK")
}
