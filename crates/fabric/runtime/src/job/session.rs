// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses and options that the launcher gives to all ranks of a job.

use std::path::PathBuf;

/// Addresses and options that are the same for all ranks of a job.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The launcher's addresses, for ranks and for requests of users.
    pub(crate) launcher: String,
    pub(crate) requests: String,
    /// The folder with the checkpoint from which the job begins, if it is not that of the environment.
    pub(crate) restart: Option<PathBuf>,
}
