//! Compiles the BPF programs behind the proof of a run.

fn main() {}
