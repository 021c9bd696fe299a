// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all ranks of a job get from the launcher.

use std::path::PathBuf;

/// What the ranks of a job have in common.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The launcher's addresses, for ranks and for requests of users.
    pub(crate) launcher: String,
    pub(crate) requests: String,
    /// The folder with the checkpoint from which the job begins, if it is not that of the environment.
    pub(crate) restart: Option<PathBuf>,
}
