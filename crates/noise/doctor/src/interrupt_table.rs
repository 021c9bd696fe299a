// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `/proc/interrupts` that have a number, with what rules ask of them. A node of 1,024 CPUs has a table of 45 MB, so it is
//! read once.

use std::collections::HashMap;

use colony_node::cpu::CpuSet;
use colony_node::interrupts;

use crate::root::{MAX_TABLE, Root, Unread};

pub(crate) const TABLE: &str = "/proc/interrupts";

/// The rows by number.
#[derive(Debug)]
pub(crate) struct InterruptTable(HashMap<u32, Row>);

/// A row.
#[derive(Debug)]
pub(crate) struct Row {
    /// Arrivals on the job's CPUs since boot.
    pub(crate) on_job: u64,
    /// CPUs with an arrival.
    pub(crate) arrived_on: usize,
    /// Columns: CPUs that were online when the table was read.
    pub(crate) columns: usize,
    /// Name of the interrupt controller.
    pub(crate) chip: String,
    /// The number by which the controller knows it.
    pub(crate) hardware_number: Option<u64>,
    /// Names of its handlers.
    pub(crate) handlers: Vec<String>,
}

impl InterruptTable {
    pub(crate) fn read(root: &Root, job: &CpuSet) -> Result<Self, Unread> {
        let text = root.read_up_to(TABLE, MAX_TABLE)?;
        let row = |interrupt: interrupts::Interrupt<'_, interrupts::Totals>| {
            let number = interrupt.label.parse().ok()?;
            let names = interrupt.names();
            let handlers = names.split(", ").filter(|n| !n.is_empty()).map(str::to_owned).collect();
            Some((
                number,
                Row {
                    on_job: interrupt.counts.on_cpus,
                    arrived_on: interrupt.counts.arrived_on,
                    columns: interrupt.counts.columns,
                    chip: interrupt.chip(),
                    hardware_number: interrupt.hardware_number(),
                    handlers,
                },
            ))
        };
        Ok(Self(interrupts::totals(&text, job).filter_map(row).collect()))
    }

    /// The row of the interrupt `number`.
    pub(crate) fn row(&self, number: u32) -> Option<&Row> {
        self.0.get(&number)
    }
}
