// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which the C++ standard library of GCC leaves elements that compare as equal.

/// Runs of at most this many elements are sorted by insertion.
const SHORT: usize = 16;

/// Sorts `v` by `key` with the steps of introsort (Musser, "Introspective sorting and selection algorithms",
/// 1997) that libstdc++'s `std::sort` takes. The steps decide the order of elements with equal keys, and with it
/// results of LogGOPSim. For runs of up to 16 elements the sort is stable.
///
/// libstdc++ changes to a heap sort when halving has failed 2·log2(n) times. With the three keys of GOAL
/// operations, only a list made for that purpose gets there; the rest is then sorted stably.
pub(super) fn sort<T: Copy>(v: &mut [T], key: impl Fn(&T) -> u8) {
    if v.len() > SHORT {
        split(v, 2 * v.len().ilog2(), &key);
    }
    // what is left to do moves no element over an equal one
    v.sort_by_key(|e| key(e));
}

/// Partitions until runs are short.
fn split<T: Copy>(mut v: &mut [T], mut depth: u32, key: &impl Fn(&T) -> u8) {
    while v.len() > SHORT && depth > 0 {
        depth -= 1;
        let cut = partition(v, key);
        let (left, right) = v.split_at_mut(cut);
        split(right, depth, key);
        v = left;
    }
}

/// Hoare's partition around the median of the second, the middle and the last element.
fn partition<T: Copy>(v: &mut [T], key: &impl Fn(&T) -> u8) -> usize {
    let (a, b, c) = (1, v.len() / 2, v.len() - 1);
    let less = |i: usize, j: usize| key(&v[i]) < key(&v[j]);
    let median = if less(a, b) {
        if less(b, c) {
            b
        } else if less(a, c) {
            c
        } else {
            a
        }
    } else if less(a, c) {
        a
    } else if less(b, c) {
        c
    } else {
        b
    };
    v.swap(0, median);
    let pivot = key(&v[0]);
    let (mut first, mut last) = (1, v.len());
    loop {
        while key(&v[first]) < pivot {
            first += 1;
        }
        last -= 1;
        while pivot < key(&v[last]) {
            last -= 1;
        }
        if first >= last {
            return first;
        }
        v.swap(first, last);
        first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_sorted_and_short_runs_keep_their_order(keys in prop::collection::vec(1u8..4, 0..200)) {
            let mut v: Vec<(u8, usize)> = keys.iter().copied().zip(0..).collect();
            let mut stable = v.clone();
            sort(&mut v, |e| e.0);
            stable.sort_by_key(|e| e.0);
            prop_assert_eq!(v.iter().map(|e| e.0).collect::<Vec<_>>(), stable.iter().map(|e| e.0).collect::<Vec<_>>());
            prop_assert!(keys.len() > SHORT || v == stable);
        }
    }

    #[test]
    fn seventeen_equal_elements_are_in_the_order_that_gcc_leaves() {
        // found with std::sort of GCC 12
        let mut v: Vec<(u8, usize)> = (0..17).map(|i| (1, i)).collect();
        sort(&mut v, |e| e.0);
        assert_eq!(v.iter().map(|e| e.1).collect::<Vec<_>>(), GCC);
    }

    const GCC: [usize; 17] = [8, 16, 15, 14, 13, 12, 11, 10, 9, 0, 7, 6, 5, 4, 3, 2, 1];
}
