// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node's devices: the two shared windows, QEMU's ivshmem devices; or a network device (`virtio.rs`).

use super::pci::{Free, Function, Interrupts};
use super::window::Memory;
use super::{phys, virtio};

/// Vendor and device of QEMU's ivshmem.
const IVSHMEM: u32 = 0x1110_1af4;

/// A shared window.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// The memory that it shares.
    pub memory: Memory,
    /// Physical address of its registers.
    registers: u64,
    /// Its interrupts, if it has doorbells.
    interrupts: Option<Interrupts>,
}

impl Device {
    /// Lets doorbell `vector` interrupt this CPU.
    pub fn route(&self, vector: usize, apic: u32) {
        if let Some(interrupts) = self.interrupts {
            interrupts.route(vector, apic);
        }
    }

    /// Rings the daemon's bell: peer 0, the vector of the channel.
    pub fn ring(&self, channel: usize) {
        // SAFETY: the device's doorbell register.
        unsafe { phys::write(self.registers + 12, channel as u32) };
    }
}

/// The devices of the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// The window of function shipping: it has doorbells.
    pub shipping: Option<Device>,
    /// The partition's window.
    pub torus: Option<Device>,
    /// A network device.
    pub network: Option<virtio::Registers>,
}

/// Finds the first of each.
pub fn find() -> Found {
    let mut found = Found::default();
    let mut free = Free::new();
    for slot in 0..32 {
        let function = Function::at(slot);
        match function.read::<u32>(0) {
            IVSHMEM => {
                let Some(device) = start(function, &mut free) else { continue };
                let has_bells = device.interrupts.is_some();
                let place = if has_bells { &mut found.shipping } else { &mut found.torus };
                place.get_or_insert(device);
            }
            virtio::NETWORK if found.network.is_none() => {
                found.network = virtio::Registers::find(function, &mut free);
            }
            _ => {}
        }
    }
    found
}

fn start(function: Function, free: &mut Free) -> Option<Device> {
    let (bars, interrupts) = function.start(free);
    let (registers, _) = bars[0]?;
    let (physical, size) = bars[2]?;
    let memory = Memory { physical, size, shared: true };
    Some(Device { memory, registers, interrupts })
}
