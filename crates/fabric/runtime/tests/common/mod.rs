// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples that tests start.

#![allow(dead_code, reason = "each test uses a part of this module")]

pub(crate) mod mortal;

use std::path::{Path, PathBuf};

/// Variables by which the example `run` starts its ranks by `mpirun`, as root and with more ranks than CPUs, too.
#[cfg(feature = "mpi")]
pub(crate) const MPI: [(&str, &str); 4] = [
    ("RUN_MPI", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
];

/// An example of this package, which cargo builds before its tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(Path::parent).expect("the profile's folder");
    folder.join("examples").join(name)
}
