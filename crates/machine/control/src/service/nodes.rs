// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that the threads of a partition service share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use colony_nodes::{Partition, Running};

use super::events::{Journal, News, Numbered};
use super::input::Input;
use super::protocol::Status;
use crate::api::{NodeState, PartitionState, Severity};

/// A job of the partition.
#[derive(Debug)]
pub(crate) struct JobEntry {
    /// While its processes run.
    pub(crate) running: Option<Arc<Running>>,
    pub(crate) has_ended: bool,
    /// A signal that came before its processes ran.
    pub(crate) signal: Option<i32>,
    /// Its standard input, if its user sends it.
    pub(crate) input: Option<Arc<Input>>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) partition: PartitionState,
    pub(crate) error: Option<String>,
    pub(crate) boot_s: Option<f64>,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) jobs: BTreeMap<u64, JobEntry>,
    pub(crate) journal: Journal,
    /// Nodes that are started again although they have died too often.
    pub(crate) mended: BTreeSet<u32>,
    /// Nodes whose deaths were reported at the end of their jobs.
    pub(crate) reported: BTreeSet<u32>,
    /// Boot processes whose ends have been reported.
    pub(crate) boots: BTreeSet<u32>,
    /// Number of checks of the nodes that threads have requested, and number of the last request that was served.
    pub(crate) checks: (u64, u64),
    pub(crate) is_over: bool,
}

/// A partition and its jobs.
#[derive(Debug)]
pub(crate) struct Nodes {
    state: Mutex<State>,
    changed: Condvar,
    /// The nodes, once they are being started. Locked before `state`, never after.
    partition: Mutex<Option<Partition>>,
}

impl Nodes {
    pub(crate) fn new(nodes: u32) -> Arc<Self> {
        let state = State {
            partition: PartitionState::Booting,
            error: None,
            boot_s: None,
            nodes: vec![NodeState::Off; nodes as usize],
            jobs: BTreeMap::new(),
            journal: Journal::default(),
            mended: BTreeSet::new(),
            reported: BTreeSet::new(),
            boots: BTreeSet::new(),
            checks: (0, 0),
            is_over: false,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), partition: Mutex::new(None) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn partition(&self) -> MutexGuard<'_, Option<Partition>> {
        self.partition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells all who wait for changes.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    pub(crate) fn tell(&self, news: News) {
        self.change(|state| state.journal.add(news));
    }

    pub(crate) fn ras(
        &self,
        (severity, code): (Severity, &str),
        node: Option<u32>,
        job: Option<u64>,
        message: String,
    ) {
        self.tell(News::Ras { severity, node, location: None, code: code.to_owned(), message, job });
    }

    /// Sets the state of the whole partition.
    pub(crate) fn set(&self, partition: PartitionState, error: Option<String>, boot_s: Option<f64>) {
        self.change(|state| {
            state.partition = partition;
            (state.error, state.boot_s) = (error.clone(), boot_s);
            state.journal.add(News::State { state: partition, error, boot_s });
        });
    }

    /// The next of the news after this number, if it comes within this time.
    pub(crate) fn next_after(&self, number: u64, limit: Duration) -> Option<Numbered> {
        let none = |state: &mut State| state.journal.after(number).is_none();
        let waited = self.changed.wait_timeout_while(self.state(), limit, none);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.journal.tell_after(number)
    }

    /// Waits until the service is to end.
    pub(crate) fn wait_over(&self, limit: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Waits until the service is to end, a thread requests a check of the nodes, or the time is over. Returns `true` if the
    /// service is to end.
    pub(crate) fn wait_for_check(&self, limit: Duration) -> bool {
        let idle = |state: &mut State| !state.is_over && state.checks.0 == state.checks.1;
        let waited = self.changed.wait_timeout_while(self.state(), limit, idle);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Requests a check of the nodes, and waits until it is done.
    pub(crate) fn check_now(&self, limit: Duration) {
        let wanted = self.change(|state| {
            state.checks.0 += 1;
            state.checks.0
        });
        let waits = |state: &mut State| !state.is_over && state.checks.1 < wanted;
        drop(self.changed.wait_timeout_while(self.state(), limit, waits));
    }

    /// Notes a check of the nodes that began after this request.
    pub(crate) fn note_checked(&self, wanted: u64) {
        if self.state().checks.1 < wanted {
            self.change(|state| state.checks.1 = wanted);
        }
    }

    /// Reports the end of a boot process, once: all nodes that died with it have one cause.
    pub(crate) fn boot_process_died(&self, pid: u32, job: Option<u64>) {
        let message = format!(
            "the process that boots the nodes ended (process {pid}), and its nodes with it: they are started again, and none is \
             counted as broken"
        );
        let (severity, code) = (Severity::Error, "boot-process-died".to_owned());
        self.change(|state| {
            if state.boots.insert(pid) {
                state.journal.add(News::Ras { severity, node: None, location: None, code, message, job });
            }
        });
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.state();
        Status {
            state: state.partition,
            error: state.error.clone(),
            boot_s: state.boot_s,
            nodes: state.nodes.clone(),
            jobs: state.jobs.keys().copied().collect(),
        }
    }
}
