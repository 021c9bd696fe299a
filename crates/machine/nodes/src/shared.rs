// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the nodes of a block share: messages of a job go through it.

use std::fs::File;

use colony_fship::layout::LARGE_PAGE;
use colony_torus::layout::Layout;
use colony_torus::{Dims, Window};
use colony_vm::Accel;
use colony_vm::qemu::{Seal, memory_file, seal};
use nix::fcntl::{FallocateFlags, fallocate};

use crate::{CnkError, Machine};

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    file: File,
    bytes: u64,
    nodes: Vec<u32>,
}

impl Shared {
    /// Memory for these nodes, enough for a process on every CPU; `None` if their machine shall have none.
    pub(crate) fn new(machine: &Machine, nodes: Vec<u32>) -> Result<Option<Self>, CnkError> {
        if !machine.can_share() {
            return Ok(None);
        }
        // several emulators that count instructions have no atomic operations between them
        let is_counted = matches!(machine.accel, Accel::Counted { .. }) && nodes.len() > 1;
        let bytes = match machine.torus {
            Some(0) => return Ok(None),
            None if is_counted => return Ok(None),
            Some(_) if is_counted => {
                return Err(CnkError::Machine(
                    "nodes that count instructions exchange no messages: take one node, or leave out the memory for messages".into(),
                ));
            }
            Some(bytes) => bytes,
            None => layout([nodes.len() as u32, machine.cpus, 1])?.bytes() as u64,
        };
        let bytes = bytes.next_power_of_two().max(LARGE_PAGE);
        let file = memory_file("colony-torus")?;
        file.set_len(bytes).map_err(CnkError::io("the nodes' shared memory"))?;
        // the emulators have it, and the owner of the partition maps it
        seal(&file, Seal::Length)?;
        Ok(Some(Self { file, bytes, nodes }))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The nodes that it was made for.
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Makes it ready for a job: nothing of the last one is left.
    pub(crate) fn format(&self, dims: [u32; 3]) -> Result<Window, CnkError> {
        let layout = layout(dims)?;
        let needed = layout.bytes() as u64;
        if needed > self.bytes {
            return Err(CnkError::Machine(format!(
                "messages of {dims:?} processes need {} MiB of shared memory, and there are {}: ask for more",
                needed.div_ceil(1 << 20),
                self.bytes >> 20
            )));
        }
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let length = i64::try_from(self.bytes).map_err(|e| CnkError::Machine(e.to_string()))?;
        fallocate(&self.file, hole, 0, length)
            .map_err(|e| CnkError::io("clearing the nodes' shared memory")(e.into()))?;
        Window::create_in(&self.file, layout.dims()).map_err(|e| CnkError::Machine(e.to_string()))
    }
}

fn layout(dims: [u32; 3]) -> Result<Layout, CnkError> {
    let layout = Dims::new(dims.map(|d| d as usize)).and_then(Layout::new);
    layout.map_err(|e| CnkError::Machine(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_count_instructions_share_no_memory() {
        let counted =
            |torus| Machine { cpus: 1, torus, accel: Accel::Counted { shift: 1 }, ..Machine::default() };
        let shared = |torus, nodes: u32| Shared::new(&counted(torus), (0..nodes).collect());
        assert!(shared(None, 1).expect("one node").is_some());
        assert!(shared(None, 2).expect("no memory was asked for").is_none());
        let refused = shared(Some(2 << 20), 2).expect_err("it was asked for").to_string();
        assert!(refused.contains("exchange no messages"), "{refused}");
    }
}
