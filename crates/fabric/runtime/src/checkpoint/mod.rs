// SPDX-License-Identifier: MIT OR Apache-2.0
//! In-memory double checkpoint (Zheng, Shi, Kalé: FTC-Charm++, Cluster 2004): the image of each PE is kept by its own
//! process and by its *buddy*, a process on another machine if there is one.
//!
//! A checkpoint is complete once every buddy has its copy; then PE 0 commits it, and the images before it are dropped. A
//! death at any time leaves a complete checkpoint: the one under way, if every PE's image of it has survived, or the one
//! before. What has not changed since the last complete checkpoint is neither packed nor sent again ([`fields`], [`pieces`]):
//! successive images share it. A second level is on disk ([`disk`]): it survives the whole job, and is read on any number of PEs.

pub(crate) mod buddies;
pub(crate) mod disk;
pub(crate) mod draft;
pub(crate) mod fields;
pub(crate) mod options;
pub(crate) mod outline;
pub(crate) mod part;
pub(crate) mod pieces;
pub(crate) mod recovery;
pub(crate) mod store;
