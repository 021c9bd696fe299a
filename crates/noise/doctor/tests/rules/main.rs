// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every rule on made-up nodes: a finding, no finding, undecidable.

mod arbitrary;
mod cases;
mod cheapness;
mod defaults;
mod interrupts;
mod irqbalance;
mod isolation;
mod known;
mod node;
mod owners;
mod preemption;
mod remedies;
mod speeds;
mod topology;
mod unreadable;
