// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that the main thread of the daemon waits for.

/// An event for the main thread of the daemon.
#[derive(Debug)]
pub(crate) enum Event {
    /// A process joined the job.
    Joined,
    /// A signal asks for the end.
    Signal(&'static str),
    /// Another program unmounted the tree.
    Unmounted,
    /// The guard of the mount has ended.
    GuardGone,
}
