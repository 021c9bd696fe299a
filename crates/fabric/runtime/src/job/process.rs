// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of a rank: a child of the launcher, or a child of an agent that `mpirun` has started.

use std::cell::RefCell;
use std::io;
use std::process::{Child, ExitStatus};
use std::rc::Rc;

use super::agents::Agent;

/// The process of a rank, or of a command that starts all of them.
pub(crate) enum Process {
    Child(Child),
    Agent(Rc<RefCell<Agent>>),
}

impl Process {
    /// Kills the process, if it runs.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Child(child) => {
                let _ = child.kill();
            }
            Self::Agent(agent) => agent.borrow_mut().kill(),
        }
    }

    /// Waits for the end of a process that was killed.
    pub(crate) fn wait(&mut self) {
        match self {
            Self::Child(child) => {
                let _ = child.wait();
            }
            Self::Agent(agent) => agent.borrow_mut().wait(),
        }
    }

    /// The exit status, if the process has ended.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Self::Child(child) => child.try_wait(),
            Self::Agent(agent) => agent.borrow_mut().status(),
        }
    }

    /// The process id, if the process runs on this host.
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Child(child) => Some(child.id()),
            Self::Agent(agent) => agent.borrow().local_id(),
        }
    }

    /// Returns `true` if the process has an agent that has ended.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Agent(agent) if agent.borrow().is_lost())
    }
}
