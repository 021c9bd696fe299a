//! Compiles the BPF programs behind the proof of a run.

fn main() {
    colony_bpf::build::skeleton("bpf/windows.bpf.c", "windows");
}
