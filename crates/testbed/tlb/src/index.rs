// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry of each page in a TLB: a hash table with linear probing. A program such as integer sort misses in every tenth access, and
//! a search through all entries would then take longer than the emulation.

/// Entry of each page that a TLB holds. The pages themselves are with the TLB.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// One more than an entry, or 0 in a free slot.
    slots: Box<[u16]>,
    /// Bits of a hash that are not used.
    shift: u32,
}

impl Index {
    /// Without a page, for a TLB of so many entries. A quarter of the slots is used at most, so most pages are in their first slot.
    pub(crate) fn new(entries: usize) -> Self {
        let slots = (entries * 4).next_power_of_two();
        Self { slots: vec![0; slots].into(), shift: u64::BITS - slots.ilog2() }
    }

    /// The first slot to look for a page.
    fn home(&self, page: u64) -> usize {
        // the golden ratio: neighbouring pages get different slots
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// The entry of a page; `pages` are those of the entries.
    #[inline]
    pub(crate) fn find(&self, page: u64, pages: &[u64]) -> Option<usize> {
        self.slot(page, pages).map(|slot| usize::from(self.slots[slot]) - 1)
    }

    fn slot(&self, page: u64, pages: &[u64]) -> Option<usize> {
        let mut slot = self.home(page);
        loop {
            match self.slots[slot] {
                0 => return None,
                entry if pages[usize::from(entry) - 1] == page => return Some(slot),
                _ => slot = self.after(slot),
            }
        }
    }

    /// Adds a page that is not there.
    pub(crate) fn insert(&mut self, page: u64, entry: usize) {
        let mut slot = self.home(page);
        while self.slots[slot] != 0 {
            slot = self.after(slot);
        }
        self.slots[slot] = entry as u16 + 1;
    }

    /// Removes a page. The pages behind it move up, so that no search ends too early at the slot that becomes free.
    pub(crate) fn remove(&mut self, page: u64, pages: &[u64]) {
        let Some(mut free) = self.slot(page, pages) else { return };
        let mask = self.slots.len() - 1;
        let mut slot = self.after(free);
        while self.slots[slot] != 0 {
            let home = self.home(pages[usize::from(self.slots[slot]) - 1]);
            // the page may move to the free slot if that is not before its home
            if (slot.wrapping_sub(home) & mask) >= (slot.wrapping_sub(free) & mask) {
                self.slots[free] = self.slots[slot];
                free = slot;
            }
            slot = self.after(slot);
        }
        self.slots[free] = 0;
    }
}
