// SPDX-License-Identifier: MIT OR Apache-2.0
//! The changes to undo on this node if every process that could undo them is killed.
//!
//! The agent and its [guardian](crate::guardian) put tasks back into their own class when one of them dies, and `colonyd` and
//! its guard do the same for mounts and CPU bindings. For the death of all of them there are files in
//! `/run/colony-undo`, a [`UndoFile`] each, readable for root only and named after the process that changed the node. Four
//! readers undo what is in the files of dead processes:
//!
//! * the [release agent](arm) that the kernel itself starts when the last process has died,
//! * `colonyd --restore`, which the unit runs after `colonyd` has ended (`ExecStopPost=`),
//! * every agent and every `colonyd` when it starts,
//! * the guardian, which removes the file when it has done its work.
//!
//! Affinities of tasks are in the [ledger](colony_ledger) beside them, which all processes share; an undo file names its owner
//! there.
//!
//! A user without privileges has such a folder in `$XDG_RUNTIME_DIR`.

mod file;
mod former;
mod group;
mod hierarchy;
pub mod mount;
mod namespace;
mod node;
mod program;
pub(crate) mod release;
mod tasks;

pub use file::UndoFile;
pub use former::FormerBindings;
pub use namespace::MountNamespace;
pub use node::{DAEMON, NodeChanges, SocketFile};
pub use release::{ArmError, arm, arm_again, arm_or_log};

pub(crate) use file::{left_behind, read_to_undo, rewrite};
pub(crate) use former::Kept;
pub(crate) use group::JobGroup;
pub(crate) use node::restore_node;
pub(crate) use tasks::{TASKS, Tasks, finish, restore_tasks};
