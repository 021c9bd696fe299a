// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI benchmark programs of the seeds and their launcher.
//!
//! This library, which needs no MPI, has five parts:
//!
//! * what to run ([`Params`]), how to start it ([`Launch`]), and what comes back ([`BenchResult`], a table,
//!   JSON);
//! * the programs themselves ([`programs`]), which do the measuring, over any network of [`colony_comm`]. `colony-bench`
//!   (feature `mpi`) runs them over MPI, `colony-bench-cnk` over the window of compute nodes;
//! * the NAS kernels ([`nas`]), serial, and their program `colony-nas`;
//! * load balancing of objects that migrate between processes ([`lb`]), without MPI;
//! * checkpoints in memory of such objects ([`checkpoint`]), beside the least time that their bytes take.
//!
//! The programs are those of the seeds: `allreduce` and `glob` (Colony Linux kernel technical report,
//! 3.1.2 and 3.1.3), `barrier`, `alltoall` and `myallreduce` with detours by timer signal (Initial
//! Results: Experiments on Watson BlueGene/L), the `ring` of that paper's thought experiment, and `bsp`,
//! work and a barrier in turn (HPC-Colony progress report 2006, Fig. 3).
//!
//! # How an operation is timed
//! One counter read after each operation goes into a buffer: the next operation starts where the last
//! one ended, so nothing is lost between two operations of a stretch. Between stretches (at most 4096
//! operations or about 20 ms) the buffer goes into the histograms and the ranks agree on the next
//! stretch; that time is no part of `seconds` and is reported as `excluded_s`.
//!
//! # Building the program for MPI
//! ```text
//! cargo build -p colony-bench --features mpi                        # the MPI behind `mpicc`
//! MPICC=mpicc.mpich CARGO_TARGET_DIR=target/mpich \
//!     cargo build -p colony-bench --features mpi                    # MPICH beside Open MPI (Debian)
//! ```
//! It needs libclang; where it is not found by itself, set `LIBCLANG_PATH` (`/usr/lib/llvm-19/lib`).

pub mod checkpoint;
mod distribution;
mod error;
pub mod launch;
pub mod lb;
pub mod nas;
mod options;
mod pace;
mod params;
mod program;
pub mod programs;
mod ranks;
mod recorder;
mod result;
mod table;

pub use distribution::Distribution;
pub use error::{BenchError, ParamsError};
pub use launch::{Launch, LauncherChoice};
pub use options::Options;
pub use pace::Pace;
pub use params::{Detours, Params, Phase};
pub use program::Program;
pub use recorder::Recorder;
pub use result::{
    BenchResult, Comparison, DetourRecord, Measurement, MpiRecord, RankRecord, SlowOp, Timeline, WorkRecord,
};
