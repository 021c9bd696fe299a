// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects: blocks of bytes that change a little and call `at_sync`, round by round.

use colony_runtime::{Bulk, Callback, Context, Entry, Main, Object, Op, Program};
use serde::{Deserialize, Serialize};

/// One program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    /// PEs of each process.
    pub(super) threads: u32,
    /// PEs of all processes.
    pub(super) pes: u32,
    /// Objects of each PE.
    pub(super) objects: u32,
    /// Bytes of state of each PE.
    pub(super) bytes: u64,
    /// Checkpoints to make, one at each round.
    pub(super) rounds: u32,
}

impl Setup {
    /// Bytes of an object, by its index: those of a PE add up to `bytes`.
    fn bytes_of(&self, index: u32) -> u64 {
        let (objects, place) = (u64::from(self.objects), u64::from(index % self.objects));
        self.bytes / objects + u64::from(place < self.bytes % objects)
    }
}

/// A block of the state.
#[derive(Serialize, Deserialize)]
struct Block {
    state: Bulk<u8>,
    round: u32,
    rounds: u32,
}

#[derive(Serialize, Deserialize)]
struct Start;

impl Object for Block {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        let index = cx.index() as u32;
        let state =
            (0..setup.bytes_of(index)).map(|byte| (byte ^ u64::from(index)) as u8).collect::<Vec<_>>();
        Self { state: state.into(), round: 0, rounds: setup.rounds }
    }

    fn state_bytes(&self) -> u64 {
        self.state.len() as u64
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        // no two checkpoints are of the same bytes
        let place = self.round as usize % self.state.len().max(1);
        if let Some(byte) = self.state.get_mut(place) {
            *byte = byte.wrapping_add(1);
        }
        self.round += 1;
        if self.round < self.rounds {
            cx.at_sync();
        } else {
            cx.contribute([1i64], Op::Sum, Callback::Exit);
        }
    }
}

impl Entry<Start> for Block {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        cx.at_sync();
    }
}

/// The program's classes.
pub(super) fn program() -> Program {
    Program::new().class::<Block>(|c| c.entry::<Start>())
}

/// Makes the blocks and starts them.
pub(super) fn begin(setup: Setup, cx: &mut Context<'_, Main>) {
    let blocks = cx.create_array::<Block>(&[setup.pes * setup.objects], setup);
    cx.broadcast(blocks, Start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_a_pe_share_its_bytes() {
        for (objects, bytes) in [(1, 80_000), (8, 80_000), (7, 80_001), (8, 3)] {
            let setup = Setup { threads: 1, pes: 3, objects, bytes, rounds: 1 };
            for pe in 0..3 {
                let all: Vec<u64> = (pe * objects..(pe + 1) * objects).map(|i| setup.bytes_of(i)).collect();
                assert_eq!(all.iter().sum::<u64>(), bytes);
                assert!(all.iter().max() <= all.iter().min().map(|least| least + 1).as_ref(), "{all:?}");
            }
        }
    }
}
