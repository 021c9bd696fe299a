// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buddy of each rank: the rank that keeps the second copy of its image.

/// A job in which no rank can have a buddy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoBuddy {
    /// There is no second process.
    #[error("checkpoints in memory need two processes or more: start the program with `colony launch -n 2`")]
    Alone,
    /// All ranks are on one machine.
    #[error(
        "all {0} ranks are on one machine, so both copies of a checkpoint would be lost with it: use more hosts, or \
         allow that by COLONY_CHECKPOINT=memory:same-machine"
    )]
    OneMachine(usize),
}

/// The buddy of each rank, by the machines of all ranks. A buddy is on another machine if there are several, and each rank
/// is the buddy of about as many others.
pub(crate) fn buddies(machines: &[String], same_machine: bool) -> Result<Vec<u32>, NoBuddy> {
    let ranks = machines.len();
    if ranks < 2 {
        return Err(NoBuddy::Alone);
    }
    if machines.iter().all(|machine| *machine == machines[0]) {
        // ranks that are far apart in number seldom share a core or a NUMA node
        let shift = ranks / 2;
        let far = (0..ranks).map(|rank| ((rank + shift) % ranks) as u32);
        return if same_machine { Ok(far.collect()) } else { Err(NoBuddy::OneMachine(ranks)) };
    }
    // ranks by machine; a shift by the size of the largest machine leaves each machine, unless it has the majority
    let mut order: Vec<usize> = (0..ranks).collect();
    order.sort_by_key(|&rank| (&machines[rank], rank));
    let largest = order.chunk_by(|&a, &b| machines[a] == machines[b]).map(<[usize]>::len).max().unwrap_or(1);
    let mut buddies = vec![0; ranks];
    let mut used = vec![0usize; ranks];
    for (place, &rank) in order.iter().enumerate() {
        let shifted = order[(place + largest) % ranks];
        let elsewhere = |other: &usize| machines[*other] != machines[rank];
        let buddy = Some(shifted)
            .filter(elsewhere)
            .or_else(|| (0..ranks).filter(elsewhere).min_by_key(|&other| (used[other], other)))
            .unwrap_or(shifted);
        used[buddy] += 1;
        buddies[rank] = buddy as u32;
    }
    Ok(buddies)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn buddies_are_on_other_machines_and_evenly_loaded(machines in prop::collection::vec(0u8..5, 2..40)) {
            let names: Vec<String> = machines.iter().map(u8::to_string).collect();
            match buddies(&names, false) {
                Err(error) => {
                    prop_assert!(machines.iter().all(|m| *m == machines[0]));
                    prop_assert_eq!(error, NoBuddy::OneMachine(names.len()));
                    let same = buddies(&names, true).expect("allowed");
                    prop_assert!((0..).zip(same).all(|(rank, buddy): (u32, u32)| rank != buddy));
                }
                Ok(buddies) => {
                    let mut used = vec![0; names.len()];
                    for (rank, &buddy) in buddies.iter().enumerate() {
                        prop_assert_ne!(&names[rank], &names[buddy as usize]);
                        used[buddy as usize] += 1;
                    }
                    // with a majority on one machine, the others keep its copies
                    let most = (0..5).map(|m| machines.iter().filter(|x| **x == m).count()).max().unwrap_or(0);
                    let others = names.len() - most;
                    prop_assert!(used.iter().all(|&n| n <= most.div_ceil(others) + 1), "{:?} {:?}", machines, used);
                }
            }
        }
    }

    #[test]
    fn one_process_has_no_buddy() {
        assert_eq!(buddies(&["a".to_owned()], true), Err(NoBuddy::Alone));
    }
}
