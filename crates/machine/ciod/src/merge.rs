// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reports of a job's workers together: when all programs start, when the processes that are left are killed, and
//! the outcome.
//!
//! Workers are the user. A report counts for the worker's own nodes and ranks only, and only once.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::control::Report;
use crate::outcome::{Counters, End, ProcessOutcome};
use crate::{JobError, JobOutcome};

/// Bytes of nodes' words that are kept of a job.
const LOG: usize = 64 << 10;

/// The share of one worker in the job: its nodes, by number, with the ranks of each.
pub(crate) type Share = Vec<(u32, Range<u32>)>;

/// What is to be done after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Todo {
    Nothing,
    /// Tell all workers to let the programs run.
    Start,
    /// Tell all workers to kill their processes.
    KillAll,
}

/// Progress of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its nodes boot.
    Waiting,
    /// Its nodes have their programs.
    Ready,
    /// Its programs run.
    Running,
    /// It has ended.
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Merge {
    shares: Vec<(Share, Stage)>,
    go_on: bool,
    /// The workers were told to let the programs run.
    has_begun: bool,
    /// The workers were told to kill their processes, or the job cannot start any more.
    stops: bool,
    processes: BTreeMap<u32, ProcessOutcome>,
    outcome: JobOutcome,
    /// Words of nodes that were not kept.
    unlogged: u64,
}

impl Merge {
    pub(crate) fn new(shares: Vec<Share>, go_on: bool) -> Self {
        Self {
            shares: shares.into_iter().map(|share| (share, Stage::Waiting)).collect(),
            go_on,
            has_begun: false,
            stops: false,
            processes: BTreeMap::new(),
            outcome: JobOutcome::default(),
            unlogged: 0,
        }
    }

    /// The workers that have not ended.
    pub(crate) fn open(&self) -> Vec<usize> {
        (0..self.shares.len()).filter(|&n| self.shares[n].1 != Stage::Over).collect()
    }

    /// Returns `true` if all programs run, or ran.
    pub(crate) fn has_started(&self) -> bool {
        self.has_begun && self.shares.iter().all(|(_, stage)| matches!(stage, Stage::Running | Stage::Over))
    }

    /// Returns `true` if the workers were told to let the programs run: some may run, or have run.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The workers are not told to let the programs run after all: the job ends without them.
    pub(crate) fn give_up_start(&mut self) {
        (self.has_begun, self.stops) = (false, true);
    }

    /// The ranks that have ended, and whether each ended by itself with code 0.
    pub(crate) fn ended(&self) -> Vec<(u32, bool)> {
        self.processes.values().map(|p| (p.rank, p.end == End::Exited(0))).collect()
    }

    /// Takes a report of worker `from`, which has not ended.
    pub(crate) fn hear(&mut self, from: usize, report: Report) -> Todo {
        let (share, stage) = &mut self.shares[from];
        match report {
            Report::Ready if *stage == Stage::Waiting => {
                *stage = Stage::Ready;
                if self.stops || self.shares.iter().any(|(_, stage)| *stage != Stage::Ready) {
                    return Todo::Nothing;
                }
                self.has_begun = true;
                return Todo::Start;
            }
            Report::Started if self.has_begun && *stage == Stage::Ready => *stage = Stage::Running,
            Report::Ended(process) => {
                let node =
                    share.iter().find(|(_, ranks)| ranks.contains(&process.rank)).map(|(node, _)| *node);
                let Some(node) = node.filter(|_| !self.processes.contains_key(&process.rank)) else {
                    return Todo::Nothing;
                };
                let broken = !matches!(process.end, End::Exited(_));
                self.processes.insert(process.rank, ProcessOutcome { node, ..*process });
                if broken {
                    return self.broken();
                }
            }
            Report::Log { node, text } => self.log(format!("node {node}: {text}")),
            Report::Lost { node } => {
                if share.iter().any(|(own, _)| *own == node) && !self.outcome.lost.contains(&node) {
                    self.outcome.lost.push(node);
                }
                // before the start, the worker ends with the reason
                return if self.has_begun { self.broken() } else { Todo::Nothing };
            }
            Report::Ready | Report::Started | Report::Done(_) => {}
        }
        Todo::Nothing
    }

    /// Worker `from` has ended, with this error of the job. If `is_lost`, its nodes are not usable: it died, or still
    /// has their memory.
    pub(crate) fn over(&mut self, from: usize, error: Option<JobError>, is_lost: bool) -> Todo {
        let (share, stage) = &mut self.shares[from];
        *stage = Stage::Over;
        if is_lost {
            for (node, ranks) in share {
                if !self.outcome.lost.contains(node) {
                    self.outcome.lost.push(*node);
                }
                let Some(why) = error.as_ref().filter(|_| self.has_begun) else { continue };
                for rank in ranks {
                    self.processes.entry(rank).or_insert_with(|| ProcessOutcome {
                        rank,
                        node: *node,
                        end: End::Lost(why.clone()),
                        counters: Counters::default(),
                        crash: None,
                    });
                }
            }
        }
        let Some(error) = error else { return Todo::Nothing };
        self.outcome.error.get_or_insert(error);
        // without a worker that is dead, the others may go on; what ends the job itself ends it for all
        if is_lost { self.broken() } else { self.stop() }
    }

    /// A process, a node or a worker has failed.
    fn broken(&mut self) -> Todo {
        if self.has_begun && self.go_on { Todo::Nothing } else { self.stop() }
    }

    fn stop(&mut self) -> Todo {
        // a worker that is alone has killed its processes before it reports
        let told = std::mem::replace(&mut self.stops, true) || self.shares.len() == 1;
        if told { Todo::Nothing } else { Todo::KillAll }
    }

    /// Keeps words of a node, as far as there is room.
    fn log(&mut self, text: String) {
        let kept: usize = self.outcome.log.iter().map(|t| t.len() + size_of::<String>()).sum();
        if self.unlogged == 0 && kept + text.len() <= LOG {
            self.outcome.log.push(text);
        } else {
            self.unlogged += 1;
        }
    }

    /// The outcome of the job, whose workers have all ended.
    pub(crate) fn outcome(&mut self) -> JobOutcome {
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.processes = std::mem::take(&mut self.processes).into_values().collect();
        if self.unlogged > 0 {
            outcome
                .log
                .push(format!("{} more reports of nodes are not kept: {LOG} bytes a job are", self.unlogged));
        }
        outcome.lost.sort_unstable();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers with two nodes each, of one process a node.
    fn two(go_on: bool) -> Merge {
        let share = |first: u32| (first..first + 2).map(|n| (n, n..n + 1)).collect();
        Merge::new(vec![share(0), share(2)], go_on)
    }

    fn begun(go_on: bool) -> Merge {
        let mut merge = two(go_on);
        assert_eq!(merge.hear(0, Report::Ready), Todo::Nothing);
        assert_eq!(merge.hear(1, Report::Ready), Todo::Start);
        assert!(!merge.has_started());
        for worker in [0, 1] {
            assert_eq!(merge.hear(worker, Report::Started), Todo::Nothing);
        }
        assert!(merge.has_started());
        merge
    }

    fn ended(rank: u32, end: End) -> Report {
        let (counters, crash) = (Counters::default(), None);
        Report::Ended(Box::new(ProcessOutcome { rank, node: 99, end, counters, crash }))
    }

    fn failed() -> JobError {
        JobError::IoNodeFailed { pset: 1, why: "signal".into() }
    }

    #[test]
    fn ends_of_all_workers_are_one_outcome_by_rank() {
        let mut merge = begun(false);
        for rank in [3, 0, 2, 1] {
            assert_eq!(merge.hear(rank as usize / 2, ended(rank, End::Exited(rank as i32))), Todo::Nothing);
        }
        assert_eq!(merge.over(1, None, false), Todo::Nothing);
        assert_eq!(merge.open(), [0]);
        assert_eq!(merge.over(0, None, false), Todo::Nothing);
        let outcome = merge.outcome();
        let all: Vec<_> = outcome.processes.iter().map(|p| (p.rank, p.node, p.end.code())).collect();
        assert_eq!(all, [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 3, 3)]);
        assert_eq!((outcome.error.clone(), outcome.lost.clone(), outcome.code()), (None, vec![], 1));
    }

    #[test]
    fn a_failure_of_one_worker_s_process_or_node_kills_those_of_all_once() {
        for report in [ended(1, End::Signaled(11)), Report::Lost { node: 1 }] {
            let mut merge = begun(false);
            assert_eq!(merge.hear(0, report.clone()), Todo::KillAll);
            assert_eq!(merge.hear(1, ended(2, End::Signaled(9))), Todo::Nothing);
            assert_eq!(begun(true).hear(0, report), Todo::Nothing, "the others go on");
        }
    }

    #[test]
    fn a_worker_that_dies_takes_its_processes_along() {
        for go_on in [false, true] {
            let mut merge = begun(go_on);
            assert_eq!(merge.hear(1, ended(2, End::Exited(0))), Todo::Nothing);
            let todo = merge.over(1, Some(failed()), true);
            assert_eq!(todo, if go_on { Todo::Nothing } else { Todo::KillAll });
            assert_eq!(merge.over(0, None, false), Todo::Nothing);
            let outcome = merge.outcome();
            assert_eq!((&outcome.error, &outcome.lost), (&Some(failed()), &vec![2, 3]));
            let ends: Vec<_> = outcome.processes.iter().map(|p| (p.rank, p.end.clone())).collect();
            assert_eq!(ends, [(2, End::Exited(0)), (3, End::Lost(failed()))]);
        }
    }

    #[test]
    fn an_error_before_the_start_ends_the_job_and_no_program_starts() {
        for (error, keeps) in [(JobError::NodeNotReady(3), false), (failed(), true)] {
            let mut merge = two(true);
            assert_eq!(merge.hear(1, Report::Lost { node: 3 }), Todo::Nothing, "the reason follows");
            assert_eq!(merge.over(1, Some(error.clone()), keeps), Todo::KillAll);
            assert_eq!(merge.hear(0, Report::Ready), Todo::Nothing);
            let killed = JobError::System("killed".into());
            assert_eq!(merge.over(0, Some(killed), false), Todo::Nothing);
            let outcome = merge.outcome();
            assert_eq!((outcome.error, outcome.processes.len()), (Some(error), 0));
        }
    }

    #[test]
    fn a_worker_has_no_say_about_what_is_not_its_own() {
        let mut merge = two(false);
        assert_eq!(merge.hear(0, Report::Started), Todo::Nothing);
        assert!(!merge.has_started());
        let mut merge = begun(true);
        let _ = merge.hear(0, ended(2, End::Signaled(9)));
        let _ = merge.hear(0, Report::Lost { node: 3 });
        let _ = merge.hear(0, ended(1, End::Exited(0)));
        let _ = merge.hear(0, ended(1, End::Exited(7)));
        assert_eq!(merge.ended(), [(1, true)]);
        assert_eq!(merge.outcome().lost, [0; 0]);
    }

    #[test]
    fn a_worker_that_is_alone_needs_nobody_to_kill_its_processes() {
        let mut merge = Merge::new(vec![vec![(0, 0..1), (1, 1..2)]], false);
        assert_eq!(merge.hear(0, Report::Ready), Todo::Start);
        assert_eq!(merge.hear(0, ended(0, End::Signaled(9))), Todo::Nothing);
    }
}
