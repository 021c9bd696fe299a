// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions over the elements of an array, as a state machine that sends nothing itself.
//!
//! Reductions of an array are numbered. Each element contributes once to each number, wherever it is at that time. A PE
//! passes the combination of what it has on when no element on it still has to contribute to that number; the root
//! waits until as many contributions are combined as the array has elements. So a reduction is complete however
//! elements migrate meanwhile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::address::Address;

/// How contributions are combined, value by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// The sum. The order of the additions is not defined, so the last bits of a sum of `f64` may differ from run to run.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// All contributions, in the order of the elements' packed indices: the result is the same in every run.
    Gather,
}

/// Values of a reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// Floating-point numbers.
    F64(Vec<f64>),
    /// Integers. A sum wraps.
    I64(Vec<i64>),
    /// One contribution an element, with the element's packed index.
    Gathered(Vec<([u64; 2], Values)>),
}

impl From<&[f64]> for Values {
    fn from(values: &[f64]) -> Self {
        Self::F64(values.to_vec())
    }
}

impl From<&[i64]> for Values {
    fn from(values: &[i64]) -> Self {
        Self::I64(values.to_vec())
    }
}

impl<const N: usize> From<[f64; N]> for Values {
    fn from(values: [f64; N]) -> Self {
        Self::F64(values.to_vec())
    }
}

impl<const N: usize> From<[i64; N]> for Values {
    fn from(values: [i64; N]) -> Self {
        Self::I64(values.to_vec())
    }
}

/// Contributions that cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "elements of one reduction contribute {0}: all have to give as many values of one type, one operation and one target"
)]
pub struct Mismatch(pub String);

fn each<T: Copy>(into: &mut [T], from: &[T], f: impl Fn(T, T) -> T) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = f(*a, *b);
    }
}

impl Values {
    /// Combines other values into these.
    ///
    /// # Errors
    /// [`Mismatch`] if types or numbers of values differ.
    pub fn combine(&mut self, other: Self, op: Op) -> Result<(), Mismatch> {
        match (self, other) {
            (Self::F64(a), Self::F64(b)) if a.len() == b.len() => match op {
                Op::Sum | Op::Gather => each(a, &b, |x, y| x + y),
                Op::Min => each(a, &b, f64::min),
                Op::Max => each(a, &b, f64::max),
            },
            (Self::I64(a), Self::I64(b)) if a.len() == b.len() => match op {
                Op::Sum | Op::Gather => each(a, &b, i64::wrapping_add),
                Op::Min => each(a, &b, Ord::min),
                Op::Max => each(a, &b, Ord::max),
            },
            (Self::Gathered(a), Self::Gathered(b)) => a.extend(b),
            (a, b) => return Err(Mismatch(format!("{} and {}", a.kind(), b.kind()))),
        }
        Ok(())
    }

    fn kind(&self) -> String {
        match self {
            Self::F64(v) => format!("{} values of type f64", v.len()),
            Self::I64(v) => format!("{} values of type i64", v.len()),
            Self::Gathered(v) => format!("{} gathered values", v.len()),
        }
    }

    /// Sorts gathered values by index.
    pub(crate) fn finish(&mut self) {
        if let Self::Gathered(all) = self {
            all.sort_by_key(|(index, _)| *index);
        }
    }
}

/// The object, or all objects of an array, that get a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Callback {
    /// Calls an entry method of one object.
    Element {
        /// The object.
        to: Address,
        /// Its entry method's number.
        entry: u16,
    },
    /// Calls an entry method of each object of an array.
    Array {
        /// The array.
        array: crate::address::ArrayId,
        /// The entry method's number.
        entry: u16,
    },
    /// Ends the program with exit code 0.
    Exit,
}

/// The combined contributions of one reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// Contributions in it.
    pub count: u64,
    /// The operation.
    pub op: Op,
    /// Their combination.
    pub values: Values,
    /// Where the result goes.
    pub callback: Callback,
}

impl Partial {
    /// The contribution of one element.
    #[must_use]
    pub fn of(element: Address, values: Values, op: Op, callback: Callback) -> Self {
        let values = match op {
            Op::Gather => Values::Gathered(vec![(element.index.halves(), values)]),
            _ => values,
        };
        Self { count: 1, op, values, callback }
    }

    /// Combines another part into this one.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn merge(&mut self, other: Self) -> Result<(), Mismatch> {
        if self.op != other.op || self.callback != other.callback {
            return Err(Mismatch("with different operations or targets".to_owned()));
        }
        self.values.combine(other.values, self.op)?;
        self.count += other.count;
        Ok(())
    }
}

/// The reductions of one array, on one PE.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reductions {
    /// The combined contributions, by the reduction's number.
    partial: BTreeMap<u64, Partial>,
    /// Elements here, by the number of the reduction that they contribute to next.
    next: BTreeMap<u64, u64>,
    /// The number of the next whole reduction: at the root.
    whole: u64,
    /// The elements that contribute to it, and by how many more contribute from a later number on: at the root.
    elements: u64,
    changes: BTreeMap<u64, i64>,
}

impl Reductions {
    /// The same without the elements here, for an image: they enter again where the image is restored.
    #[must_use]
    pub fn without_elements(&self) -> Self {
        Self { next: BTreeMap::new(), ..self.clone() }
    }

    /// The parts that are not complete, by their reductions' numbers.
    pub(crate) fn parts(self) -> impl Iterator<Item = (u64, Partial)> {
        self.partial.into_iter()
    }

    /// An element is here that contributes to `next` next.
    pub fn enter(&mut self, next: u64) {
        *self.next.entry(next).or_default() += 1;
    }

    /// An element leaves.
    pub fn leave(&mut self, next: u64) {
        if let Some(count) = self.next.get_mut(&next) {
            *count -= 1;
            if *count == 0 {
                self.next.remove(&next);
            }
        }
    }

    /// An element here contributes to reduction `number`.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn contribute(&mut self, number: u64, part: Partial) -> Result<(), Mismatch> {
        self.leave(number);
        self.enter(number + 1);
        self.add(number, part)
    }

    /// Combines a part that another PE has passed on.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn add(&mut self, number: u64, part: Partial) -> Result<(), Mismatch> {
        if let Some(partial) = self.partial.get_mut(&number) {
            partial.merge(part)
        } else {
            self.partial.insert(number, part);
            Ok(())
        }
    }

    /// Takes a part that no element here still has to contribute to.
    pub fn take_complete(&mut self) -> Option<(u64, Partial)> {
        let behind = self.next.keys().next().copied().unwrap_or(u64::MAX);
        let number = *self.partial.keys().next()?;
        if number < behind { self.partial.pop_first() } else { None }
    }

    /// The root's view of an array with this number of elements.
    #[must_use]
    pub fn at_root(elements: u64) -> Self {
        Self { elements, ..Self::default() }
    }

    /// Elements are inserted, or removed if `change` is negative: they contribute, or contribute no more, from reduction
    /// `from` on. Returns the number from which on the root counts the change: reductions before it are complete.
    pub fn change_elements(&mut self, from: u64, change: i64) -> u64 {
        let from = from.max(self.whole);
        *self.changes.entry(from).or_default() += change;
        from
    }

    /// The number of the next whole reduction.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Takes a part in which all elements of the array are combined: at the root. The last part of one reduction may
    /// come after all parts of the next, from another PE; all the same results are taken in order.
    pub fn take_whole(&mut self) -> Option<(u64, Partial)> {
        while let Some(change) = self.changes.first_entry().filter(|change| *change.key() <= self.whole) {
            self.elements = self.elements.saturating_add_signed(change.remove());
        }
        let (number, part) = self.partial.first_key_value()?;
        let number = *number;
        if number > self.whole || part.count < self.elements {
            return None;
        }
        self.whole = number + 1;
        self.partial.remove(&number).map(|mut part| {
            part.values.finish();
            (number, part)
        })
    }

    /// The most contributions to one reduction that is not complete.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.partial.values().map(|part| part.count).max().unwrap_or(0)
    }

    /// Reductions that are not complete.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.partial.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(value: i64) -> Partial {
        Partial { count: 1, op: Op::Sum, values: Values::from([value]), callback: Callback::Exit }
    }

    proptest! {
        #[test]
        fn every_contribution_counts_once_however_elements_migrate(
            pes in 1usize..5,
            elements in 1usize..6,
            steps in prop::collection::vec((0usize..6, 0usize..5, any::<bool>()), 0..200),
        ) {
            let mut all: Vec<Reductions> = (0..pes).map(|_| Reductions::default()).collect();
            let mut root = Reductions::at_root(elements as u64);
            let mut at: Vec<(usize, u64)> = (0..elements).map(|e| (e % pes, 0)).collect();
            for (pe, next) in &at {
                all[*pe].enter(*next);
            }
            let mut results = Vec::new();
            let finish = (0..elements).flat_map(|e| (0..40).map(move |_| (e, 0, true)));
            for (element, to, contributes) in steps.into_iter().chain(finish) {
                let (element, to) = (element % elements, to % pes);
                let (pe, next) = at[element];
                if contributes {
                    if next < 30 {
                        all[pe].contribute(next, part(1 << element)).expect("alike");
                        at[element].1 += 1;
                    }
                } else {
                    all[pe].leave(next);
                    all[to].enter(next);
                    at[element].0 = to;
                }
                for pe in &mut all {
                    while let Some((number, part)) = pe.take_complete() {
                        root.add(number, part).expect("alike");
                    }
                }
                while let Some(whole) = root.take_whole() {
                    results.push(whole);
                }
            }
            let sum = (1 << elements) - 1;
            prop_assert_eq!(results.len(), 30);
            for (number, (at, whole)) in results.iter().enumerate() {
                prop_assert_eq!(*at, number as u64);
                prop_assert_eq!(&whole.values, &Values::from([sum]));
            }
            prop_assert_eq!(root.pending(), 0);
        }
    }

    #[test]
    fn a_result_waits_for_those_before_it() {
        let mut root = Reductions::at_root(1);
        root.add(1, part(2)).expect("the first");
        assert_eq!(root.take_whole(), None, "the part of reduction 0 is still under way");
        root.add(0, part(1)).expect("the first");
        assert_eq!(root.take_whole(), Some((0, part(1))));
        assert_eq!(root.take_whole(), Some((1, part(2))));
        assert_eq!(root.take_whole(), None);
    }

    #[test]
    fn contributions_of_different_kinds_are_refused() {
        let mut reductions = Reductions::default();
        reductions.add(0, part(1)).expect("the first");
        let other = Partial { values: Values::from([1.0]), ..part(1) };
        let error = reductions.add(0, other).expect_err("f64 and i64").to_string();
        assert!(error.contains("1 values of type i64 and 1 values of type f64"), "{error}");
        let other = Partial { op: Op::Max, ..part(1) };
        assert!(reductions.add(0, other).is_err());
    }

    #[test]
    fn gathered_values_are_in_the_order_of_indices() {
        let gathered = |index: u64, value: i64| Values::Gathered(vec![([0, index], Values::from([value]))]);
        let mut all = gathered(2, 20);
        all.combine(gathered(1, 10), Op::Gather).expect("alike");
        all.finish();
        assert_eq!(all, Values::Gathered(vec![([0, 1], Values::from([10])), ([0, 2], Values::from([20]))]));
    }
}
