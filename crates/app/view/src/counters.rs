// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a run on compute nodes.

use colony_nodes::{NodeCounters, RunCounters};

use crate::table;
use crate::tlb::extent;
use crate::units::scaled;

/// Nodes that have a row; the others are in the sum.
const SHOWN: usize = 8;
/// Shown in place of a counter that was lost.
const NONE: &str = "–";

/// The table of a run: a row for each node. `is_whole`: the program has ended by itself and without an error.
#[must_use]
pub fn counters(counters: &RunCounters, is_whole: bool) -> String {
    let header = [
        "node",
        "instr.",
        "loads",
        "stores",
        "bytes\nloaded",
        "bytes\nstored",
        "local\ncalls",
        "shipped\ncalls",
        "faults",
        "inter-\nrupts",
    ];
    let mut t = table::new(header);
    for (number, node) in counters.nodes.iter().take(SHOWN).enumerate() {
        t.add_row(cells(number.to_string(), node));
    }
    if counters.nodes.len() > SHOWN {
        t.add_row(["…"]);
    }
    if counters.nodes.len() > 1 {
        t.add_row(cells("all".into(), &counters.sum));
    }
    let mut out = format!("{}, counted by node:\n{}\n", extent(is_whole), table::trimmed(&t));
    if counters.sum.kernel.is_none() {
        out.push_str("–: a process was lost with its node, and what the kernel counted for it\n");
    }
    out
}

fn cells(name: String, node: &NodeCounters) -> [String; 10] {
    let number = |n: u64| scaled(n as f64);
    let of_kernel = |count: fn(&colony_ciod::Counters) -> u64| {
        node.kernel.as_ref().map_or_else(|| NONE.into(), |kernel| number(count(kernel)))
    };
    [
        name,
        number(node.instructions),
        number(node.loads),
        number(node.stores),
        number(node.bytes_loaded),
        number(node.bytes_stored),
        of_kernel(|kernel| kernel.local_calls),
        of_kernel(|kernel| kernel.shipped_calls),
        of_kernel(|kernel| kernel.faults),
        of_kernel(|kernel| kernel.timer_interrupts.saturating_add(kernel.other_interrupts)),
    ]
}

#[cfg(test)]
mod tests {
    use colony_ciod::{Counters, End, JobError, ProcessOutcome};
    use colony_tlb::Counts;

    use super::*;

    fn run(nodes: u32, number: u64, end: &End) -> RunCounters {
        let counts = Counts {
            instructions: number,
            loads: number,
            stores: number,
            bytes_loaded: number,
            bytes_stored: number,
            ..Counts::default()
        };
        let counters = Counters {
            timer_interrupts: number,
            other_interrupts: 0,
            local_calls: number,
            shipped_calls: number,
            faults: number,
        };
        let process = |node| ProcessOutcome { rank: node, node, end: end.clone(), counters, crash: None };
        let processes: Vec<_> = (0..nodes).map(process).collect();
        RunCounters::new(&vec![counts; nodes as usize], &processes)
    }

    #[test]
    fn a_table_has_a_row_for_each_of_a_few_nodes_and_the_sum_of_all() {
        let text = |nodes| counters(&run(nodes, 3, &End::Exited(0)), true);
        let numbers = |sum: &str| [sum; 9].join(" ");
        let rows = |nodes| -> Vec<String> {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            text(nodes).lines().skip(4).map(words).collect()
        };
        assert_eq!(rows(1), [format!("0 {}", numbers("3"))]);
        assert_eq!(rows(2)[1..], [format!("1 {}", numbers("3")), format!("all {}", numbers("6"))]);
        let many = rows(20);
        assert_eq!((many.len(), many[8].as_str()), (10, "…"));
        assert_eq!(many[9], format!("all {}", numbers("60")));
    }

    #[test]
    fn a_table_fits_80_columns_whatever_was_counted() {
        for number in [0, 9999, 999_999, 999_999_999_999, u64::MAX] {
            let text = counters(&run(9, number, &End::Exited(0)), true);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert_eq!(text.lines().count(), 4 + 8 + 2, "no row is broken: {text}");
        }
    }

    #[test]
    fn counters_that_were_lost_are_no_zeros() {
        let text = counters(&run(1, 3, &End::Lost(JobError::NodeNotReady(0))), false);
        assert!(text.starts_with("Run until an error or a signal"), "{text}");
        let row = text.lines().nth(4).expect("a row");
        assert_eq!(row.split_whitespace().filter(|cell| *cell == NONE).count(), 4, "{text}");
        assert!(text.contains("was lost with its node"), "{text}");
    }
}
