// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of reductions, and the operations that combine them.

pub use colony_torus::Op;

/// An element of a reduction: `f64`, `i64` or `u64`.
pub trait Number: private::Element {}

impl<T: private::Element> Number for T {}

/// A reduction's operation that the program defines. It has to be associative and commutative.
pub trait Combine {
    /// Combines two elements.
    fn combine(a: f64, b: f64) -> f64;
}

/// Each network's own requirements of an element.
mod private {
    #[cfg(not(feature = "mpi"))]
    pub trait Element: colony_torus::Number {}
    #[cfg(not(feature = "mpi"))]
    impl<T: colony_torus::Number> Element for T {}

    #[cfg(feature = "mpi")]
    pub trait Element: colony_torus::Number + ::mpi::traits::Equivalence {}
    #[cfg(feature = "mpi")]
    impl<T: colony_torus::Number + ::mpi::traits::Equivalence> Element for T {}
}
