// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network device on the PCI bus: virtio-net (Virtual I/O Device Version 1.1, 2.6 split queues, 4.1 PCI, 5.1 network).
//!
//! Queues and buffers lie in the control area of the node's own window, which the layout leaves free there. One queue
//! receives and interrupts, the other transmits and does not.

use core::sync::atomic::{Ordering, fence};

use colony_fship::frame::{ETHERNET, MTU, MTU_MOST};
use colony_fship::layout::{FREE_AT, LARGE_PAGE};

use super::pci::{Free, Function, Interrupts};
use super::phys;
use super::window::{self, Window};

/// Vendor and device of a modern network device.
pub const NETWORK: u32 = 0x1041_1af4;

/// Buffers of a queue; also its entries.
pub const SLOTS: u16 = 32;
/// Bytes of a buffer: what the device puts before a frame, and the largest frame.
const SLOT: u64 = 0x2800;
/// Bytes that the device has before each frame.
const BEFORE: usize = 12;
/// Offsets of the queues and of their buffers in the window.
const QUEUES: [(u64, u64); 2] = [(0x6_0000, 0x8_0000), (0x6_1000, 0xe_0000)];
/// Parts of a queue: descriptors, then these.
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;

const _: () = {
    assert!(FREE_AT <= QUEUES[0].0 && QUEUES[1].1 + SLOTS as u64 * SLOT <= LARGE_PAGE);
    assert!(QUEUES[0].1 + SLOTS as u64 * SLOT <= QUEUES[1].1);
    assert!(BEFORE + ETHERNET + MTU_MOST as usize <= SLOT as usize);
};

/// Features: the device tells its MTU; it is no relic.
const TELLS_MTU: u64 = 1 << 3;
const VERSION_1: u64 = 1 << 32;

/// Registers of the common structure (4.1.4.3).
mod common {
    pub const DEVICE_SELECT: u64 = 0;
    pub const DEVICE_FEATURES: u64 = 4;
    pub const DRIVER_SELECT: u64 = 8;
    pub const DRIVER_FEATURES: u64 = 12;
    pub const STATUS: u64 = 20;
    pub const QUEUE: u64 = 22;
    pub const QUEUE_SIZE: u64 = 24;
    pub const QUEUE_VECTOR: u64 = 26;
    pub const QUEUE_ENABLE: u64 = 28;
    pub const QUEUE_NOTIFY: u64 = 30;
    pub const QUEUE_ADDRESSES: [u64; 3] = [32, 40, 48];
}

/// A structure of the device's registers.
#[derive(Clone, Copy, Debug)]
struct Structure {
    at: u64,
    length: u64,
}

impl Structure {
    fn place<T>(&self, offset: u64) -> u64 {
        assert!(offset + size_of::<T>() as u64 <= self.length);
        self.at + offset
    }

    fn get<T: Copy>(&self, offset: u64) -> T {
        // SAFETY: a register of the device, in the direct map; reading has no effect on memory.
        unsafe { phys::read(self.place::<T>(offset)) }
    }

    fn set<T: Copy>(&self, offset: u64, value: T) {
        // SAFETY: a register of the device; it is told only of memory that is its own.
        unsafe { phys::write(self.place::<T>(offset), value) }
    }
}

/// Places of the device's registers.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    common: Structure,
    notify: Structure,
    notify_step: u32,
    device: Structure,
    interrupts: Interrupts,
}

impl Registers {
    /// Gives the device addresses, and finds its structures there.
    pub(super) fn find(function: Function, free: &mut Free) -> Option<Self> {
        /// Vendor-specific: a structure of virtio.
        const STRUCTURE: u8 = 9;
        let (bars, interrupts) = function.start(free);
        let structure = |wanted: u8| {
            let at = function
                .capabilities()
                .find(|&(at, kind)| kind == STRUCTURE && function.read::<u8>(at + 3) == wanted);
            let (at, _) = at?;
            let (bar, size) = (*bars.get(usize::from(function.read::<u8>(at + 4)))?)?;
            let [first, length] = [at + 8, at + 12].map(|at| u64::from(function.read::<u32>(at)));
            (first + length <= size).then_some((Structure { at: bar + first, length }, at))
        };
        let (notify, capability) = structure(2)?;
        Some(Self {
            common: structure(1)?.0,
            notify,
            notify_step: function.read(capability + 16),
            device: structure(4)?.0,
            interrupts: interrupts?,
        })
    }
}

/// A queue, and the buffers of its entries: entry `n` is always buffer `n`.
struct Queue {
    number: u16,
    at: u64,
    buffers: u64,
    /// The structure with its bell, and where that is.
    bell: (Structure, u64),
    given: u16,
    seen: u16,
}

impl Queue {
    fn start(number: u16, registers: &Registers, window: &Window) -> Self {
        let (at, buffers) = QUEUES[usize::from(number)];
        let common = registers.common;
        common.set(common::QUEUE, number);
        common.set(common::QUEUE_SIZE, SLOTS);
        common.set(common::QUEUE_VECTOR, if number == 0 { 0 } else { u16::MAX });
        for (register, part) in common::QUEUE_ADDRESSES.into_iter().zip([0, AVAILABLE, USED]) {
            let address = window.0.physical + at + part;
            common.set(register, address as u32);
            common.set(register + 4, (address >> 32) as u32);
        }
        let step = u64::from(common.get::<u16>(common::QUEUE_NOTIFY)) * u64::from(registers.notify_step);
        common.set::<u16>(common::QUEUE_ENABLE, 1);
        Self { number, at, buffers, bell: (registers.notify, step), given: 0, seen: 0 }
    }

    fn write<T>(&self, offset: u64, value: T) {
        // SAFETY: in this queue's page of the control area, aligned by the layout of queues.
        unsafe { window::place::<T>(self.at + offset).write_volatile(value) }
    }

    fn read<T: Copy>(&self, offset: u64) -> T {
        // SAFETY: as above; any bits are a number.
        unsafe { window::place::<T>(self.at + offset).read_volatile() }
    }

    /// Gives a buffer to the device.
    fn give(&mut self, window: &Window, slot: u16, length: u32, writes: bool) {
        let descriptor = 16 * u64::from(slot);
        self.write(descriptor, window.0.physical + self.buffers + u64::from(slot) * SLOT);
        self.write(descriptor + 8, length);
        self.write(descriptor + 12, if writes { 2u16 } else { 0 });
        self.write(AVAILABLE + 4 + 2 * u64::from(self.given % SLOTS), slot);
        self.given = self.given.wrapping_add(1);
        fence(Ordering::SeqCst);
        self.write(AVAILABLE + 2, self.given);
        fence(Ordering::SeqCst);
        if self.read::<u16>(USED) & 1 == 0 {
            self.bell.0.set(self.bell.1, self.number);
        }
    }

    /// A buffer that the device has given back, with the bytes in it.
    fn taken(&mut self) -> Option<(u16, usize)> {
        if self.read::<u16>(USED + 2) == self.seen {
            return None;
        }
        fence(Ordering::SeqCst);
        let entry = USED + 4 + 8 * u64::from(self.seen % SLOTS);
        self.seen = self.seen.wrapping_add(1);
        let (slot, length) = (self.read::<u32>(entry) as u16 % SLOTS, self.read::<u32>(entry + 4));
        Some((slot, (length as usize).min(SLOT as usize)))
    }
}

/// The device, which works.
pub struct Network {
    window: Window,
    receive: Queue,
    transmit: Queue,
    /// Bits of the buffers of `transmit` that the device has.
    sending: u32,
    /// Address of this node.
    pub address: [u8; 6],
    /// Bytes that a frame carries behind the Ethernet header.
    pub mtu: u16,
}

impl Network {
    /// Starts the device; it interrupts the CPU with this interrupt controller.
    pub fn start(registers: &Registers, window: Window, apic: u32) -> Self {
        let common = registers.common;
        let status = |more: u8| common.set(common::STATUS, common.get::<u8>(common::STATUS) | more);
        common.set(common::STATUS, 0u8);
        status(1 | 2);
        let offered = [0u32, 1].map(|half| {
            common.set(common::DEVICE_SELECT, half);
            common.get::<u32>(common::DEVICE_FEATURES)
        });
        let features = (u64::from(offered[0]) | u64::from(offered[1]) << 32) & (TELLS_MTU | VERSION_1);
        for half in [0u32, 1] {
            common.set(common::DRIVER_SELECT, half);
            common.set(common::DRIVER_FEATURES, (features >> (32 * half)) as u32);
        }
        status(8);
        assert!(common.get::<u8>(common::STATUS) & 8 != 0, "the network device refuses this driver");
        registers.interrupts.route(0, apic);
        let [receive, transmit] = [0, 1].map(|number| Queue::start(number, registers, &window));
        status(4);
        let address = core::array::from_fn(|n| registers.device.get(n as u64));
        let mtu = if features & TELLS_MTU != 0 { registers.device.get(10) } else { MTU };
        let mut network = Self { window, receive, transmit, sending: 0, address, mtu };
        for slot in 0..SLOTS {
            network.give_back(slot);
        }
        network
    }

    /// Returns `true` if the device has transmitted the content of a buffer.
    pub fn is_free(&mut self, slot: u16) -> bool {
        while let Some((slot, _)) = self.transmit.taken() {
            self.sending &= !(1 << slot);
        }
        self.sending & 1 << slot == 0
    }

    /// A buffer for a frame.
    ///
    /// # Panics
    /// If it is not free.
    pub fn frame(&mut self, slot: u16) -> &mut [u8] {
        assert!(slot < SLOTS && self.sending & 1 << slot == 0);
        let at = self.transmit.buffers + u64::from(slot) * SLOT + BEFORE as u64;
        // SAFETY: in the control area, and only reached through here as long as the device does not have it.
        unsafe { core::slice::from_raw_parts_mut(window::place(at), SLOT as usize - BEFORE) }
    }

    /// Transmits the first bytes of a buffer. What comes before the frame is zero for good: no offloading.
    pub fn send(&mut self, slot: u16, length: usize) {
        self.sending |= 1 << slot;
        self.transmit.give(&self.window, slot, (BEFORE + length) as u32, false);
    }

    /// A buffer with a frame that has come; it is to be given back.
    pub fn received(&mut self) -> Option<(u16, usize)> {
        let (slot, length) = self.receive.taken()?;
        Some((slot, length.saturating_sub(BEFORE)))
    }

    /// The frame in a buffer that was received.
    pub fn bytes(&self, slot: u16, length: usize) -> &[u8] {
        let at = self.receive.buffers + u64::from(slot % SLOTS) * SLOT + BEFORE as u64;
        // SAFETY: in the control area; the device writes it again only after it was given back.
        unsafe { core::slice::from_raw_parts(window::place(at), length.min(SLOT as usize - BEFORE)) }
    }

    /// Gives a buffer to the device again, to receive.
    pub fn give_back(&mut self, slot: u16) {
        self.receive.give(&self.window, slot, SLOT as u32, true);
    }
}
