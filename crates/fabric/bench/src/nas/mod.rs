// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NAS kernels `is`, `ep`, `cg` and `mg`, the flow solvers `lu`, `sp` and `bt`, and random access: serial, in our own Rust.
//!
//! Written from the specification (The NAS Parallel Benchmarks, report RNR-94-007) and the sizes, seeds
//! and verification values of NPB 3: with the same random numbers and, in the kernels, the same order of operations, so
//! that a run shows by its result that it did the work. Table 2 of Designing a Highly-Scalable Operating
//! System: The Blue Gene/L Story compares a compute node kernel with Linux by these programs.
//!
//! As in NPB, what is timed leaves out the making of the input and a first turn that touches all memory.

mod cg;
mod check;
mod class;
mod ep;
mod flow;
mod is;
mod memory;
mod mg;
mod outcome;
mod ra;
mod random;
mod timer;

use serde::{Deserialize, Serialize};

pub use check::Check;
pub use class::Class;
use memory::OutOfMemory;
pub use timer::Faults;

/// A kernel: of the NAS Parallel Benchmarks, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    /// Integer sort: ranks of keys by counting
    Is,
    /// Embarrassingly parallel: pairs of Gaussian deviates
    Ep,
    /// Conjugate gradient: smallest eigenvalue of a sparse matrix
    Cg,
    /// Multigrid: V-cycles on a cube with periodic borders
    Mg,
    /// Flow in a cube, by symmetric successive over-relaxation
    Lu,
    /// Flow in a cube, by scalar pentadiagonal systems along lines
    Sp,
    /// Flow in a cube, by block tridiagonal systems along lines
    Bt,
    /// Random access: updates all over one table (HPC Challenge, not NAS)
    Ra,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Is, Self::Ep, Self::Cg, Self::Mg, Self::Lu, Self::Sp, Self::Bt, Self::Ra];

    /// True for the kernels that march in time steps, which can be stopped after any of them.
    #[must_use]
    pub const fn is_flow_solver(self) -> bool {
        matches!(self, Self::Lu | Self::Sp | Self::Bt)
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Is => "is",
            Self::Ep => "ep",
            Self::Cg => "cg",
            Self::Mg => "mg",
            Self::Lu => "lu",
            Self::Sp => "sp",
            Self::Bt => "bt",
            Self::Ra => "ra",
        }
    }
}

/// The reasons for a kernel not to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NasError {
    /// A limit of iterations for a kernel that cannot be stopped.
    #[error("--iterations is for lu, sp and bt; {} runs whole", .0.name())]
    Iterations(Kernel),
    /// The problem is larger than the memory.
    #[error(
        "{} of class {class:?} needs {bytes} more bytes of memory than there are; take a smaller class",
        .kernel.name()
    )]
    Memory {
        /// The kernel.
        kernel: Kernel,
        /// The class.
        class: Class,
        /// Bytes of the last request.
        bytes: usize,
    },
}

/// The result of a run of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NasResult {
    /// [`SCHEMA`](Self::SCHEMA).
    pub schema: String,
    /// Version of this package.
    pub version: String,
    /// The kernel.
    pub kernel: Kernel,
    /// The class.
    pub class: Class,
    /// True if there are checks, and every one holds.
    pub verified: bool,
    /// Timed iterations.
    pub iterations: u32,
    /// Time of the timed part.
    pub seconds: f64,
    /// Millions of operations a second, counted as NPB counts them: floating-point operations in `cg`, `mg`, `lu`, `sp` and
    /// `bt`, ranked keys in `is`, random numbers in `ep`, updates in `ra`.
    pub mops: f64,
    /// Page faults in the timed part; `None` where the kernel does not count them.
    pub faults: Option<Faults>,
    /// Page faults of the whole process up to the end of the timed part.
    pub faults_whole: Option<Faults>,
    /// The checks that verified it; none if it was stopped after fewer iterations than it has.
    pub checks: Vec<Check>,
}

impl NasResult {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.nas/1";
}

/// Runs a kernel: makes its input, times it, verifies it. With `most`, a flow solver stops after so many iterations, and is not
/// verified if these are not all.
///
/// # Errors
/// [`NasError::Memory`] where the problem does not fit, [`NasError::Iterations`] where `most` is given to a kernel that is no flow
/// solver. A wrong result is no error: see [`NasResult::verified`].
pub fn run(kernel: Kernel, class: Class, most: Option<u32>) -> Result<NasResult, NasError> {
    if most.is_some() && !kernel.is_flow_solver() {
        return Err(NasError::Iterations(kernel));
    }
    let outcome = match kernel {
        Kernel::Is => is::run(class),
        Kernel::Ep => ep::run(class),
        Kernel::Cg => cg::run(class),
        Kernel::Mg => mg::run(class),
        Kernel::Lu => flow::lu::run(class, most),
        Kernel::Sp => flow::sp::run(class, most),
        Kernel::Bt => flow::bt::run(class, most),
        Kernel::Ra => ra::run(class),
    }
    .map_err(|OutOfMemory(bytes)| NasError::Memory { kernel, class, bytes })?;
    Ok(NasResult {
        schema: NasResult::SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        kernel,
        class,
        verified: !outcome.checks.is_empty() && outcome.checks.iter().all(Check::holds),
        iterations: outcome.iterations,
        seconds: outcome.timed.seconds,
        mops: outcome.operations / outcome.timed.seconds.max(1e-9) / 1e6,
        faults: outcome.timed.faults,
        faults_whole: outcome.timed.faults_whole,
        checks: outcome.checks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_verifies_in_the_small_classes() {
        for kernel in Kernel::ALL {
            for class in [Class::S, Class::W] {
                verify(kernel, class);
            }
        }
    }

    #[test]
    fn class_a_of_the_flow_solvers_verifies() {
        for kernel in [Kernel::Lu, Kernel::Sp, Kernel::Bt] {
            verify(kernel, Class::A);
        }
    }

    #[test]
    fn a_flow_solver_that_is_stopped_is_not_verified_and_other_kernels_are_not_stopped() {
        for kernel in Kernel::ALL {
            match run(kernel, Class::S, Some(2)) {
                Ok(r) => assert_eq!((r.iterations, r.verified, r.checks.len()), (2, false, 0), "{kernel:?}"),
                Err(e) => assert_eq!(e, NasError::Iterations(kernel)),
            }
        }
        assert!(run(Kernel::Lu, Class::S, Some(1_000)).expect("it fits").verified);
    }

    fn verify(kernel: Kernel, class: Class) {
        let r = run(kernel, class, None).expect("it fits");
        assert!(r.verified, "{kernel:?} {class:?}: {:?}", r.checks);
        assert!(!r.checks.is_empty() && r.mops > 0.0 && r.seconds > 0.0, "{r:?}");
    }
}
