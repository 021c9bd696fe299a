// SPDX-License-Identifier: MIT OR Apache-2.0
//! One PE in one generation of the job: it begins, is restored, runs again or goes on, until the program ends or a rank dies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::balancer::BalanceReport;
use crate::checkpoint::recovery::{Agreed, Origin};
use crate::core::{CheckpointReport, Core, Counts, Failure};
use crate::logging::history::{History, Received};
use crate::object::Context;
use crate::port::{Mail, Remote};
use crate::scheduler;
use crate::track::Track;

/// The type of a [`Context`] at the program's beginning, where no object runs.
#[derive(Debug)]
pub enum Main {}

/// The program's beginning.
pub(crate) type Begin = Box<dyn FnOnce(&mut Context<'_, Main>) + Send>;

/// The end of a PE: its result and its counts.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) failure: Option<Failure>,
    pub(crate) exit: Option<u8>,
    pub(crate) has_left: bool,
    pub(crate) counts: Counts,
    pub(crate) balance: Vec<BalanceReport>,
    pub(crate) checkpoints: Vec<CheckpointReport>,
    pub(crate) track: Option<Track>,
}

impl Ended {
    /// A failure beside those of the PEs.
    pub(crate) fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

/// The beginning of a PE in one generation of the job.
pub(crate) struct Start {
    /// The program's beginning, on PE 0 of a job that begins.
    pub(crate) begin: Option<Begin>,
    /// The state from which the PE goes on.
    pub(crate) origin: Origin<u64>,
    /// Frames that other ranks have sent to this process before it goes on.
    pub(crate) early: Vec<(u32, Vec<u8>)>,
    /// The PE goes on where it was.
    pub(crate) is_survivor: bool,
    /// With [`Origin::Log`]: the rank that runs again, and what all ranks have of this one.
    pub(crate) repeats: Option<u32>,
    pub(crate) histories: Vec<History>,
}

impl Start {
    pub(crate) fn new(origin: Origin<u64>) -> Self {
        Self {
            begin: None,
            origin,
            early: Vec::new(),
            is_survivor: false,
            repeats: None,
            histories: Vec::new(),
        }
    }

    pub(crate) fn agreed(agreed: Agreed, is_survivor: bool) -> Self {
        let Agreed { origin, repeats, histories, early, .. } = agreed;
        Self { begin: None, origin, early, is_survivor, repeats, histories }
    }
}

/// The text of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

/// Begins one PE in one generation of the job.
pub(crate) fn begin_pe(core: &mut Core, start: &mut Start) {
    if start.is_survivor {
        let received: Vec<Received> = start.histories.iter().map(|history| history.received).collect();
        core.go_on_with(&received, start.repeats);
        return core.tell_run();
    }
    core.tell_run();
    match &start.origin {
        Origin::Memory(number) => core.restore(*number, None),
        Origin::Log(number) => core.restore(*number, Some(std::mem::take(&mut start.histories))),
        Origin::Disk(checkpoint) => core.restore_from_disk(checkpoint),
        Origin::Anew => {
            if let Some(begin) = start.begin.take() {
                begin(&mut Context::new(core, None));
            }
        }
    }
}

/// Runs one PE in one generation of the job.
pub(crate) fn run_pe(core: &mut Core, mut start: Start) {
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        begin_pe(core, &mut start);
        scheduler::run(core, start.early);
    }));
    if let Err(panic) = panicked {
        let what = core.show_running().unwrap_or_else(|| "the program's beginning".to_owned());
        core.fail_program(format!("{what} panicked: {}", panic_text(&*panic)));
    }
    if core.failure.is_some() {
        for sibling in &core.port.siblings {
            let _ = sibling.send(Mail::Stop);
        }
    }
}

/// Ends one PE.
pub(crate) fn end_pe(mut core: Core) -> (Ended, Remote) {
    core.checkpoints.finish();
    core.count_tables();
    let Core { failure, exit, has_left, counts, balancer, checkpoints, port, mut track, .. } = core;
    track.end();
    let (balance, checkpoints) = (balancer.reports, checkpoints.reports);
    (Ended { failure, exit, has_left, counts, balance, checkpoints, track: Some(track) }, port.remote)
}
