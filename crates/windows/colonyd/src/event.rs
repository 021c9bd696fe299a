// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that the main thread of the daemon waits for.

/// An event for the main thread of the daemon.
#[derive(Debug)]
pub(crate) enum Event {
    /// A process joined the job.
    Joined,
    /// A signal asks for the end.
    Signal(&'static str),
    /// The kernel asks no more: the tree was unmounted by somebody else.
    Unmounted,
    /// The guard of the mount is gone.
    GuardGone,
}
