// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a run on compute nodes: those of the emulator and those of the nodes' kernels.

use colony_ciod::{Counters, End, ProcessOutcome};
use colony_tlb::Counts;
use serde::Serialize;

/// Counters of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunCounters {
    /// Those of each node, by number.
    pub nodes: Vec<NodeCounters>,
    /// Sums over the nodes.
    pub sum: NodeCounters,
}

/// Counters of a node, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounters {
    /// Instructions of user code.
    pub instructions: u64,
    /// Reads of user code.
    pub loads: u64,
    /// Writes of user code.
    pub stores: u64,
    /// Bytes of the reads.
    pub bytes_loaded: u64,
    /// Bytes of the writes.
    pub bytes_stored: u64,
    /// Counters of the kernel for all processes; `None` if a process was lost with its node, and its counters with it.
    pub kernel: Option<Counters>,
}

impl RunCounters {
    /// The counters of nodes with these counts of user code, on which these processes ran.
    #[must_use]
    pub fn new(counts: &[Counts], processes: &[ProcessOutcome]) -> Self {
        let nodes: Vec<_> =
            (0..).zip(counts).map(|(node, counts)| of_node(node, counts, processes)).collect();
        let start = NodeCounters { kernel: Some(Counters::default()), ..NodeCounters::default() };
        let sum = nodes.iter().fold(start, |sum, node| NodeCounters {
            instructions: sum.instructions.saturating_add(node.instructions),
            loads: sum.loads.saturating_add(node.loads),
            stores: sum.stores.saturating_add(node.stores),
            bytes_loaded: sum.bytes_loaded.saturating_add(node.bytes_loaded),
            bytes_stored: sum.bytes_stored.saturating_add(node.bytes_stored),
            kernel: sum.kernel.zip(node.kernel).map(|(sum, kernel)| added(sum, kernel)),
        });
        Self { nodes, sum }
    }
}

fn of_node(node: u32, counts: &Counts, processes: &[ProcessOutcome]) -> NodeCounters {
    let counted = |p: &ProcessOutcome| (!matches!(p.end, End::Lost(_))).then_some(p.counters);
    let mut own = processes.iter().filter(|p| p.node == node);
    let kernel = own.try_fold(Counters::default(), |sum, process| Some(added(sum, counted(process)?)));
    NodeCounters {
        instructions: counts.instructions,
        loads: counts.loads,
        stores: counts.stores,
        bytes_loaded: counts.bytes_loaded,
        bytes_stored: counts.bytes_stored,
        kernel,
    }
}

/// Saturating: a node sends its counters, and may send anything.
fn added(a: Counters, b: Counters) -> Counters {
    Counters {
        timer_interrupts: a.timer_interrupts.saturating_add(b.timer_interrupts),
        other_interrupts: a.other_interrupts.saturating_add(b.other_interrupts),
        local_calls: a.local_calls.saturating_add(b.local_calls),
        shipped_calls: a.shipped_calls.saturating_add(b.shipped_calls),
        faults: a.faults.saturating_add(b.faults),
    }
}

#[cfg(test)]
mod tests {
    use colony_ciod::JobError;

    use super::*;

    fn process(node: u32, end: End, local_calls: u64) -> ProcessOutcome {
        let counters = Counters { local_calls, ..Counters::default() };
        ProcessOutcome { rank: 0, node, end, counters, crash: None }
    }

    #[test]
    fn counters_of_processes_are_added_by_node() {
        let counts = Counts { instructions: 5, loads: 3, bytes_loaded: 24, ..Counts::default() };
        let exited = || End::Exited(0);
        let processes = [process(0, exited(), 1), process(0, exited(), 2), process(1, exited(), 4)];
        let found = RunCounters::new(&[counts; 3], &processes);
        let local = |node: &NodeCounters| node.kernel.map(|kernel| kernel.local_calls);
        assert_eq!(found.nodes.iter().map(local).collect::<Vec<_>>(), [Some(3), Some(4), Some(0)]);
        let sum = &found.sum;
        assert_eq!((sum.instructions, sum.loads, sum.bytes_loaded, local(sum)), (15, 9, 72, Some(7)));
    }

    #[test]
    fn a_lost_process_leaves_no_zeros_of_its_kernel() {
        let lost = End::Lost(JobError::NodeNotReady(1));
        let processes = [process(0, End::Exited(0), 1), process(1, lost, 0)];
        let found = RunCounters::new(&[Counts::default(); 2], &processes);
        assert!(found.nodes[0].kernel.is_some() && found.nodes[1].kernel.is_none());
        assert_eq!(found.sum.kernel, None);
    }
}
