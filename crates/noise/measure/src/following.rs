// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows the kernel's events of every measured CPU while they arrive.

use std::collections::{BTreeMap, HashSet};

use colony_inject as inject;
use colony_node::task;
use colony_time::tsc::ClockMap;

use crate::attrib::Probe;
use crate::attrib::event::Event;
use crate::attrib::spans::{Span, Tracker};
use crate::selfish::ObservedCpu;

/// Follows the events of each CPU while they arrive.
pub(super) struct Following {
    pub(super) trackers: BTreeMap<usize, Tracker>,
    batch: BTreeMap<usize, Vec<Event>>,
    /// Threads of this process that were looked at.
    threads: HashSet<i32>,
}

impl Following {
    /// Follows these CPUs, each with the tracker of its observer.
    pub(super) fn new(trackers: impl IntoIterator<Item = (usize, Tracker)>) -> Self {
        Self { trackers: trackers.into_iter().collect(), batch: BTreeMap::new(), threads: HashSet::new() }
    }

    pub(super) fn drain(&mut self, probe: &mut Probe) {
        let own = own_threads(&mut self.threads);
        if !own.is_empty() {
            self.trackers.values_mut().for_each(|t| t.own(&own));
        }
        probe.drain(|cpu, event| self.batch.entry(cpu).or_default().push(event));
        for (cpu, events) in &mut self.batch {
            events.sort_by_key(|e| e.at_ns);
            if let Some(tracker) = self.trackers.get_mut(cpu) {
                events.drain(..).for_each(|e| tracker.event(&e));
            }
        }
    }

    /// The last events; returns how many were lost.
    pub(super) fn end(&mut self, probe: &mut Probe) -> u64 {
        probe.stop();
        // twice: a place still being filled the first time is full or lost the second
        self.drain(probe);
        self.drain(probe);
        probe.lost() + self.trackers.values().map(Tracker::unkept).sum::<u64>()
    }

    /// The spans of one CPU; `None` where nothing was followed.
    pub(super) fn spans(&mut self, cpu: &ObservedCpu, clocks: &ClockMap) -> Option<Vec<Span>> {
        let tracker = self.trackers.remove(&cpu.cpu)?;
        Some(tracker.finish(clocks.monotonic_ns(cpu.end)))
    }
}

/// Threads of this process that are not among `known`, but for those of an injection: its noise is what is measured.
/// None where /proc does not say.
fn own_threads(known: &mut HashSet<i32>) -> Vec<i32> {
    let injects = |tid: &i32| task::name(*tid).is_some_and(|name| inject::THREADS.contains(&name.as_str()));
    let all = task::threads(std::process::id() as i32).into_iter();
    all.filter(|tid| known.insert(*tid)).filter(|tid| !injects(tid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_inject_are_not_the_measurements_own() {
        for (name, own) in [("colony-leibniz", false), ("colony-inject", false), ("bystander", true)] {
            let (send_tid, receive_tid) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
                let _ = send_tid.send(nix::unistd::gettid().as_raw());
                let _ = ended.recv();
            });
            let tid = receive_tid.recv().expect("it runs");
            assert_eq!(own_threads(&mut HashSet::new()).contains(&tid), own, "{name}");
            drop(end);
            thread.expect("started").join().expect("ended");
        }
    }
}
