// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a job, as the kernel keeps them.
//!
//! A process that loses its parent between two scans is nobody's descendant any more. So an agent puts the processes it finds
//! into a group of the [hierarchy](super::hierarchy) that has no controllers, and the kernel puts there what they fork. Nothing is
//! limited by that, and the groups of Slurm, systemd and others stay as they are.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use colony_node::task::TaskId;

use super::hierarchy::{Hierarchy, JOB, serves_a_job};

/// The most that is read of a list of processes: a million numbers.
const LONGEST: u64 = 8 << 20;

/// A group for the processes of one job.
#[derive(Debug)]
pub(crate) struct JobGroup {
    hierarchy: Arc<Hierarchy>,
    name: String,
}

impl JobGroup {
    /// A new group for a job of process `owner`.
    pub(super) fn new(hierarchy: &Arc<Hierarchy>, owner: TaskId) -> Option<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("{JOB}{}.{}.{serial}", owner.tid, owner.start_ticks);
        hierarchy.make(&name).ok()?;
        Some(Self { hierarchy: Arc::clone(hierarchy), name })
    }

    /// The group of a dead agent.
    pub(super) fn of_hierarchy(hierarchy: &Arc<Hierarchy>, name: &str) -> Self {
        Self { hierarchy: Arc::clone(hierarchy), name: name.to_owned() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The processes in it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mut text = String::new();
        let opened = self.hierarchy.open_file(&format!("{}/cgroup.procs", self.name));
        // a group that is gone has none
        let _ = opened.map(|file| file.take(LONGEST).read_to_string(&mut text));
        text.lines().filter_map(|l| l.parse().ok()).collect()
    }

    /// Puts process `pid` and what it forks from now on into it, unless it serves another job.
    pub(crate) fn add(&self, pid: i32) {
        if !serves_a_job(pid) {
            // it may have ended just now
            let _ = self.hierarchy.write(&format!("{}/cgroup.procs", self.name), pid.to_string().as_bytes());
        }
    }

    /// Lets all processes go, and removes the group.
    pub(crate) fn dissolve(&self) {
        // what is forked meanwhile is found by the next look
        for _ in 0..20 {
            let processes = self.processes();
            if processes.is_empty() {
                break;
            }
            let Ok(mut all): Result<File, _> = self.hierarchy.open_to_write("cgroup.procs") else { break };
            for pid in processes {
                let _ = all.write_all(pid.to_string().as_bytes());
            }
        }
        self.hierarchy.remove(&self.name);
    }
}

/// The processes in group `name`, which a dead agent has left. `None` if the group is gone with its hierarchy.
///
/// # Errors
/// This process cannot look into the group: it may not mount, for example.
pub(super) fn group_of_a_dead_agent(name: &str) -> io::Result<Option<JobGroup>> {
    if !name.starts_with(JOB) {
        return Ok(None);
    }
    match Hierarchy::open_once() {
        Ok(hierarchy) => Ok(Some(JobGroup::of_hierarchy(&Arc::new(hierarchy), name))),
        // a hierarchy that is being freed has no groups
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => Ok(None),
        Err(e) => Err(e),
    }
}
