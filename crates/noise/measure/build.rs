// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the attribution's BPF object.

fn main() {
    colony_bpf::build::skeleton("bpf/attrib.bpf.c", "attrib");
}
