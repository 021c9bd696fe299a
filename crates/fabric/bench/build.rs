// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the C twin of the allreduce loop, which the feature `mpi` compares with.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "mpi")]
    c_twin();
}

/// With the wrapper compiler of the very MPI the crate `mpi` binds to: `$MPICC`, else `mpicc`.
#[cfg(feature = "mpi")]
fn c_twin() {
    println!("cargo::rerun-if-changed=c/allreduce.c");
    println!("cargo::rerun-if-env-changed=MPICC");
    let mpicc = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    cc::Build::new()
        .compiler(mpicc)
        .file("c/allreduce.c")
        .opt_level(2)
        .warnings(true)
        .compile("colony_c_twin");
}
