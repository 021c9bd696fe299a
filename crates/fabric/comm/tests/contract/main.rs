// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each network keeps the contract of [`colony_comm::Comm`].

mod contract;
#[cfg(feature = "mpi")]
mod mpi;
mod torus;

#[cfg(not(feature = "mpi"))]
mod mpi {
    #[test]
    fn the_contract_is_tested_over_mpi() {
        colony_testing::skip("built without the feature `mpi`");
    }
}
