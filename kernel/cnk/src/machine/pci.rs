// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PCI bus: functions, their addresses and their interrupts.
//!
//! On the machine `microvm` no firmware gives addresses to devices; the kernel does.

use core::ops::Range;

use colony_fship::layout::LARGE_PAGE;

use super::{apic, ops, phys};

/// Configuration space of bus 0, as `microvm` has it (it publishes no MCFG table).
const CONFIG: u64 = 0xe000_0000;
/// Addresses below 4 GiB that devices can have.
const LOW: Range<u64> = 0xc000_0000..0xe000_0000;

const COMMAND: u64 = 0x04;
const BARS: u64 = 0x10;
const CAPABILITIES: u64 = 0x34;
const MSIX: u8 = 0x11;

/// A device's table of interrupts, by its physical address.
#[derive(Clone, Copy, Debug)]
pub struct Interrupts(u64);

/// A function's configuration space.
#[derive(Clone, Copy)]
pub(super) struct Function(u64);

impl Function {
    /// The function at a slot of the bus.
    pub(super) fn at(slot: u64) -> Self {
        Self(CONFIG + (slot << 15))
    }

    pub(super) fn read<T: Copy>(self, at: u64) -> T {
        // SAFETY: configuration space is there on this machine, all ones where no device is.
        unsafe { phys::read(self.0 + at) }
    }

    fn write<T: Copy>(self, at: u64, value: T) {
        // SAFETY: the kernel moves devices only to addresses where no memory is.
        unsafe { phys::write(self.0 + at, value) }
    }

    /// The places of its capabilities, and their kinds.
    pub(super) fn capabilities(self) -> impl Iterator<Item = (u64, u8)> {
        let follow = move |link: u64| match u64::from(self.read::<u8>(link) & !3) {
            0 => None,
            at => Some(at),
        };
        // a list that runs in a circle ends, too
        let places = core::iter::successors(follow(CAPABILITIES), move |at| follow(at + 1)).take(48);
        places.map(move |at| (at, self.read::<u8>(at)))
    }

    /// Gives it addresses and lets it work: these and the sizes, and its interrupts.
    pub(super) fn start(self, free: &mut Free) -> ([Option<(u64, u64)>; 6], Option<Interrupts>) {
        let mut bars = [None; 6];
        let mut n = 0;
        while n < bars.len() {
            let wide = self.read::<u32>(BARS + 4 * n as u64) & 6 == 4;
            bars[n] = self.place(n as u64, free);
            n += if wide { 2 } else { 1 };
        }
        // memory accesses, and messages as a master
        self.write::<u16>(COMMAND, 6);
        let interrupts = self.capabilities().find(|&(_, kind)| kind == MSIX).and_then(|(at, _)| {
            let table = self.read::<u32>(at + 4);
            self.write::<u16>(at + 2, 1 << 15);
            let (bar, _) = (*bars.get(table as usize & 7)?)?;
            Some(Interrupts(bar + u64::from(table & !7)))
        });
        (bars, interrupts)
    }

    /// Gives base address register `n` an address; that and the size.
    fn place(self, n: u64, free: &mut Free) -> Option<(u64, u64)> {
        let at = BARS + 4 * n;
        let wide = self.read::<u32>(at) & 6 == 4;
        self.write(at, u32::MAX);
        let mut mask = u64::from(self.read::<u32>(at) & !0xf) | 0xffff_ffff_0000_0000;
        if wide {
            self.write(at + 4, u32::MAX);
            mask = mask & 0xffff_ffff | u64::from(self.read::<u32>(at + 4)) << 32;
        }
        if mask as u32 == 0 && (!wide || mask == 0) {
            return None;
        }
        let size = mask.wrapping_neg();
        // what is large is mapped by itself
        let address = free.take(wide && size >= LARGE_PAGE, size)?;
        self.write(at, address as u32);
        if wide {
            self.write(at + 4, (address >> 32) as u32);
        }
        Some((address, size))
    }
}

/// Addresses not given yet.
pub(super) struct Free {
    low: Range<u64>,
    high: Range<u64>,
}

impl Free {
    pub(super) fn new() -> Self {
        let bits = if ops::has_leaf(0x8000_0008) { ops::cpuid(0x8000_0008, 0).eax & 0xff } else { 36 };
        let end = 1u64 << bits.clamp(36, 52);
        // the last quarter of what the processor can address
        Self { low: LOW, high: end / 4 * 3..end }
    }

    /// Gives an address below 4 GiB, or above the memory.
    fn take(&mut self, high: bool, size: u64) -> Option<u64> {
        let range = if high { &mut self.high } else { &mut self.low };
        let at = range.start.next_multiple_of(size);
        (at + size <= range.end).then(|| range.start = at + size)?;
        Some(at)
    }
}

impl Interrupts {
    /// Lets interrupt `vector` come to this CPU.
    pub fn route(&self, vector: usize, apic: u32) {
        let entry = self.0 + 16 * vector as u64;
        let words = [0xfee0_0000 | apic << 12, 0, u32::from(apic::DOORBELL), 0];
        for (n, word) in words.into_iter().enumerate() {
            // SAFETY: the device's table of interrupts; the message only interrupts, and there is a handler.
            unsafe { phys::write(entry + 4 * n as u64, word) };
        }
    }
}
