// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers by address: the compact tables of [`order`](crate::order).

use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::address::{Address, ArrayId};
use crate::index::Index;

/// Entries that are searched one by one; with more, the table becomes a map.
const FEW: usize = 8;
/// A map gives memory back once so many times its entries fit into it.
const SPARSE: usize = 8;

/// One number for each address: a list while it is short, then maps. Most objects have a handful of neighbours.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Numbers {
    few: Vec<(Address, u64)>,
    many: Option<Box<Many>>,
}

/// More than [`FEW`] numbers. Indices of one and two dimensions fill one half, so these need 16 bytes an entry instead of 32.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Many {
    /// By array, for the indices whose upper half is 0.
    narrow: Vec<(ArrayId, FxHashMap<u64, u64>)>,
    wide: FxHashMap<Address, u64>,
    len: usize,
}

/// The address, if its index fills one half: the half.
#[inline]
fn half(address: Address) -> Option<u64> {
    let [high, low] = address.index.halves();
    (high == 0).then_some(low)
}

impl Many {
    #[inline]
    fn get_mut(&mut self, address: Address) -> Option<&mut u64> {
        let Some(low) = half(address) else { return self.wide.get_mut(&address) };
        self.narrow.iter_mut().find(|(array, _)| *array == address.array)?.1.get_mut(&low)
    }

    fn insert(&mut self, address: Address, number: u64) {
        let before = match half(address) {
            None => self.wide.insert(address, number),
            Some(low) => {
                let at = self.narrow.iter().position(|(array, _)| *array == address.array);
                let at = at.unwrap_or_else(|| {
                    self.narrow.push((address.array, FxHashMap::default()));
                    self.narrow.len() - 1
                });
                self.narrow[at].1.insert(low, number)
            }
        };
        self.len += usize::from(before.is_none());
    }

    fn remove(&mut self, address: Address) {
        let removed = match half(address) {
            None => take(&mut self.wide, &address),
            Some(low) => {
                let Some(at) = self.narrow.iter().position(|(array, _)| *array == address.array) else {
                    return;
                };
                let removed = take(&mut self.narrow[at].1, &low);
                if self.narrow[at].1.is_empty() {
                    self.narrow.swap_remove(at);
                }
                removed
            }
        };
        self.len -= usize::from(removed);
    }

    fn iter(&self) -> impl Iterator<Item = (Address, u64)> {
        let narrow = self.narrow.iter().flat_map(|(array, numbers)| {
            numbers.iter().map(|(low, number)| {
                (Address { array: *array, index: Index::from_halves([0, *low]) }, *number)
            })
        });
        narrow.chain(self.wide.iter().map(|(address, number)| (*address, *number)))
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.narrow.iter_mut().flat_map(|(_, numbers)| numbers.values_mut()).chain(self.wide.values_mut())
    }
}

/// Removes an entry, and gives memory back if few are left.
fn take<K: Eq + Hash>(map: &mut FxHashMap<K, u64>, key: &K) -> bool {
    let removed = map.remove(key).is_some();
    if map.capacity() > FEW * SPARSE && map.capacity() > SPARSE * map.len() {
        map.shrink_to(2 * map.len());
    }
    removed
}

impl Numbers {
    #[inline]
    pub(crate) fn get_mut(&mut self, address: Address) -> Option<&mut u64> {
        if let Some(many) = &mut self.many {
            return many.get_mut(address);
        }
        self.few.iter_mut().find(|(a, _)| *a == address).map(|(_, number)| number)
    }

    pub(crate) fn insert(&mut self, address: Address, number: u64) {
        if let Some(known) = self.get_mut(address) {
            *known = number;
        } else if self.many.is_none() && self.few.len() < FEW {
            self.few.push((address, number));
        } else {
            let few = std::mem::take(&mut self.few);
            let many = self.many.get_or_insert_default();
            few.into_iter().for_each(|(address, number)| many.insert(address, number));
            many.insert(address, number);
        }
    }

    pub(crate) fn remove(&mut self, address: Address) {
        if let Some(many) = &mut self.many {
            many.remove(address);
            if many.len == 0 {
                self.many = None;
            }
        } else {
            self.few.retain(|(a, _)| *a != address);
            if self.few.is_empty() {
                self.few = Vec::new();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.many.as_ref().map_or(self.few.len(), |many| many.len)
    }

    /// Returns `true` if the table is a map, whose entries are worth retiring.
    pub(crate) fn is_long(&self) -> bool {
        self.many.is_some()
    }

    fn iter(&self) -> impl Iterator<Item = (Address, u64)> {
        self.few.iter().copied().chain(self.many.iter().flat_map(|many| many.iter()))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let few = self.few.iter_mut().map(|(_, number)| number);
        few.chain(self.many.iter_mut().flat_map(|many| many.values_mut()))
    }

    /// All entries for which `is_wanted`, in the order of their addresses: that of the maps depends on the past.
    pub(crate) fn sorted(&self, is_wanted: impl Fn(u64) -> bool) -> Vec<(Address, u64)> {
        let mut all: Vec<_> = self.iter().filter(|(_, number)| is_wanted(*number)).collect();
        all.sort_unstable();
        all
    }
}

/// Tables are equal if they hold the same, in whatever order it was entered.
impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        self.sorted(|_| true) == other.sorted(|_| true)
    }
}

impl Eq for Numbers {}

impl Hash for Numbers {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.sorted(|_| true).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_table_holds_what_a_map_holds_and_gives_its_memory_back(
            steps in prop::collection::vec((0u32..3, 0u64..2, 0u64..40, any::<bool>()), 0..400),
        ) {
            let (mut table, mut map) = (Numbers::default(), BTreeMap::new());
            for (number, (array, high, low, is_removed)) in (0..).zip(steps) {
                let address = Address { array: ArrayId(array), index: Index::from_halves([high, low]) };
                if is_removed {
                    table.remove(address);
                    map.remove(&address);
                } else {
                    table.insert(address, number);
                    map.insert(address, number);
                }
                prop_assert_eq!(table.len(), map.len());
                prop_assert_eq!(table.get_mut(address).copied(), map.get(&address).copied());
            }
            prop_assert_eq!(table.sorted(|_| true), map.clone().into_iter().collect::<Vec<_>>());
            map.into_keys().for_each(|address| table.remove(address));
            prop_assert!(table.many.is_none() && table.few.capacity() == 0);
        }
    }
}
