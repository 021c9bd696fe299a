// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the kernel by its own script, without a libc.
fn main() {
    println!("cargo::rerun-if-changed=linker.ld");
    println!("cargo::rerun-if-changed=build.rs");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/linker.ld");
    for arg in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        &format!("-Wl,-T,{script}"),
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
        "-Wl,--gc-sections",
        "-Wl,--no-eh-frame-hdr",
    ] {
        println!("cargo::rustc-link-arg-bins={arg}");
    }
}
