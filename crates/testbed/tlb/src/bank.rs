// SPDX-License-Identifier: MIT OR Apache-2.0
//! The TLBs of one CPU, one for each page size.

use crate::{Replacement, Setup, Tlb};

/// No page has this number.
const NO_PAGE: u64 = u64::MAX;

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// A read or write of data.
    Data,
    /// A fetch of instructions.
    Instructions,
}

/// The TLBs of one CPU for all page sizes of a setup. Each sees every access, as if the whole program had pages of its size.
#[derive(Clone, Debug)]
pub struct Bank {
    /// Page size (as a power of two) and TLB; the smallest pages first.
    tlbs: Vec<(u32, Tlb)>,
    /// The smallest of the page sizes.
    smallest: u32,
    /// The last small page of each stream if it is certain to be held by every TLB. Most accesses are to the page of the one before.
    recent: [u64; 2],
    is_lru: bool,
}

impl Bank {
    /// Empty TLBs for the CPU of this number.
    #[must_use]
    pub fn new(setup: &Setup, cpu: u32) -> Self {
        const SEED: u64 = 88_172_645_463_325_252;
        let seed = |shift: u32| SEED.wrapping_mul(u64::from(cpu * 64 + shift) + 1);
        let tlb = |&shift: &u32| (shift, Tlb::new(setup.entries(), setup.replacement(), seed(shift)));
        let tlbs: Vec<_> = setup.page_shifts().iter().map(tlb).collect();
        let smallest = tlbs.first().map_or(0, |(shift, _)| *shift);
        Self { tlbs, smallest, recent: [NO_PAGE; 2], is_lru: setup.replacement() == Replacement::Lru }
    }

    /// Looks an address up in every TLB. Calls `on_miss` with the index of each page size that misses.
    #[inline]
    pub fn access(&mut self, stream: Stream, address: u64, on_miss: impl FnMut(usize)) {
        let page = address >> self.smallest;
        // the page is held in every size: larger pages contain smaller ones, and no entry was replaced since
        if self.recent[stream as usize] != page {
            self.look_up(stream, address, on_miss);
        }
    }

    fn look_up(&mut self, stream: Stream, address: u64, mut on_miss: impl FnMut(usize)) {
        let mut has_missed = false;
        for (index, (shift, tlb)) in self.tlbs.iter_mut().enumerate() {
            if !tlb.access(address >> *shift) {
                has_missed = true;
                on_miss(index);
            }
        }
        if has_missed || self.is_lru {
            // A miss may have replaced the other stream's page. With LRU, a page that another one followed must get a new stamp
            // when it is used again.
            self.recent = [NO_PAGE; 2];
        }
        self.recent[stream as usize] = address >> self.smallest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bank_misses_where_single_tlbs_miss(
            entries in 1_u16..20,
            policy in 0_usize..3,
            stream in proptest::collection::vec((any::<bool>(), 0_u64..1 << 21), 0..800),
        ) {
            let setup = Setup::new(entries, Replacement::ALL[policy], &[12, 16, 20], true).expect("a setup");
            let mut bank = Bank::new(&setup, 0);
            // TLBs of their own, which are asked for every access
            let mut single = Bank::new(&setup, 0).tlbs;
            for (is_fetch, address) in stream {
                let kind = if is_fetch { Stream::Instructions } else { Stream::Data };
                let mut missed = [false; 3];
                bank.access(kind, address, |index| missed[index] = true);
                let expected: Vec<bool> =
                    single.iter_mut().map(|(shift, tlb)| !tlb.access(address >> *shift)).collect();
                prop_assert_eq!(missed.to_vec(), expected);
            }
        }
    }
}
