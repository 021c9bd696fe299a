// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects: blocks of bytes that change a little and call `at_sync`, round by round.

use colony_runtime::{Bulk, Callback, Context, Entry, Main, Object, Op, Program, Tracked};
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
    /// Objects of each PE that change between two checkpoints.
    pub(super) changed: u32,
    /// Checkpoints to make, one at each round.
    pub(super) rounds: u32,
}

impl Setup {
    /// Bytes of an object, by its index: those of a PE add up to `bytes`.
    fn bytes_of(&self, index: u32) -> u64 {
        let (objects, place) = (u64::from(self.objects), u64::from(index % self.objects));
        self.bytes / objects + u64::from(place < self.bytes % objects)
    }

    /// Returns `true` if an object changes after a round. The objects of a PE take turns.
    fn changes(&self, index: u32, round: u32) -> bool {
        let turn = (index % self.objects + round % self.objects) % self.objects;
        turn < self.changed
    }
}

/// A block of the state.
#[derive(Serialize, Deserialize)]
struct Block {
    state: Tracked<Bulk<u8>>,
    setup: Setup,
    round: u32,
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
        Self { state: Tracked::new(state.into()), setup, round: 0 }
    }

    fn state_bytes(&self) -> u64 {
        self.state.len() as u64
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        // no two checkpoints are of the same bytes
        let place = self.round as usize % self.state.len().max(1);
        if self.setup.changes(cx.index() as u32, self.round)
            && let Some(byte) = self.state.get_mut(place)
        {
            *byte = byte.wrapping_add(1);
        }
        self.round += 1;
        if self.round < self.setup.rounds {
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
            let setup = Setup { threads: 1, pes: 3, objects, bytes, changed: objects, rounds: 1 };
            for pe in 0..3 {
                let all: Vec<u64> = (pe * objects..(pe + 1) * objects).map(|i| setup.bytes_of(i)).collect();
                assert_eq!(all.iter().sum::<u64>(), bytes);
                assert!(all.iter().max() <= all.iter().min().map(|least| least + 1).as_ref(), "{all:?}");
            }
        }
    }

    #[test]
    fn as_many_objects_of_each_pe_change_in_each_round_and_all_take_turns() {
        for (objects, changed) in [(8, 8), (10, 1), (7, 3), (5, 0)] {
            let setup = &Setup { threads: 1, pes: 2, objects, bytes: 100, changed, rounds: 1 };
            let change = |round| (objects..2 * objects).filter(move |index| setup.changes(*index, round));
            for round in (0..20).chain([u32::MAX]) {
                assert_eq!(change(round).count(), changed as usize, "{objects} objects, round {round}");
            }
            let turns: std::collections::BTreeSet<u32> = (0..objects).flat_map(change).collect();
            assert_eq!(turns.len(), if changed > 0 { objects as usize } else { 0 });
        }
    }
}
