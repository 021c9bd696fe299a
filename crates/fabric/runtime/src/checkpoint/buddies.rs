// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buddy of each rank: the rank that keeps the second copy of its image.

use crate::place::Place;

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

/// The buddy of each rank, by the places of all ranks. A buddy is on another machine if there are several, and outside of the
/// largest domain that leaves each rank the buddy of one other: in another rack rather than in another midplane. Each rank is
/// the buddy of about as many others.
pub(crate) fn buddies(places: &[Place], same_machine: bool) -> Result<Vec<u32>, NoBuddy> {
    let ranks = places.len();
    if ranks < 2 {
        return Err(NoBuddy::Alone);
    }
    if places.iter().all(|place| place.machine == places[0].machine) {
        // ranks that are far apart in number seldom share a core or a NUMA node
        let shift = ranks / 2;
        let far = (0..ranks).map(|rank| ((rank + shift) % ranks) as u32);
        return if same_machine { Ok(far.collect()) } else { Err(NoBuddy::OneMachine(ranks)) };
    }
    let levels = places.iter().map(|place| place.domains.len()).max().unwrap_or(0);
    let outside = (1..=levels).find_map(|level| in_other_domains(places, level));
    Ok(outside.unwrap_or_else(|| on_other_machines(places)))
}

/// Buddies in other domains of this level, each rank that of one other; `None` if there are none.
fn in_other_domains(places: &[Place], level: usize) -> Option<Vec<u32>> {
    let domain = |rank: usize| {
        let all = &places[rank].domains;
        &all[..level.min(all.len())]
    };
    let ranks = places.len();
    let mut order: Vec<usize> = (0..ranks).collect();
    order.sort_by_key(|&rank| (domain(rank), rank));
    // a shift by the size of the largest domain leaves each domain if none has more than half of the ranks
    let largest = order.chunk_by(|&a, &b| domain(a) == domain(b)).map(<[usize]>::len).max()?;
    if 2 * largest > ranks {
        return None;
    }
    let mut buddies = vec![0; ranks];
    for (at, &rank) in order.iter().enumerate() {
        let buddy = order[(at + largest) % ranks];
        // domains that are said wrongly may share a machine
        if places[buddy].machine == places[rank].machine {
            return None;
        }
        buddies[rank] = buddy as u32;
    }
    Some(buddies)
}

/// Buddies on other machines, of which there are several.
fn on_other_machines(places: &[Place]) -> Vec<u32> {
    let (ranks, machine) = (places.len(), |rank: usize| &places[rank].machine);
    // ranks by machine; a shift by the size of the largest machine leaves each machine, unless it has the majority
    let mut order: Vec<usize> = (0..ranks).collect();
    order.sort_by_key(|&rank| (machine(rank), rank));
    let largest = order.chunk_by(|&a, &b| machine(a) == machine(b)).map(<[usize]>::len).max().unwrap_or(1);
    let mut buddies = vec![0; ranks];
    let mut used = vec![0usize; ranks];
    for (place, &rank) in order.iter().enumerate() {
        let shifted = order[(place + largest) % ranks];
        let elsewhere = |other: &usize| machine(*other) != machine(rank);
        let buddy = Some(shifted)
            .filter(elsewhere)
            .or_else(|| (0..ranks).filter(elsewhere).min_by_key(|&other| (used[other], other)))
            .unwrap_or(shifted);
        used[buddy] += 1;
        buddies[rank] = buddy as u32;
    }
    buddies
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn on(machine: impl ToString, domains: &[String]) -> Place {
        Place { machine: machine.to_string(), domains: domains.to_vec() }
    }

    proptest! {
        #[test]
        fn buddies_are_on_other_machines_and_evenly_loaded(machines in prop::collection::vec(0u8..5, 2..40)) {
            let places: Vec<Place> = machines.iter().map(|machine| on(machine, &[])).collect();
            match buddies(&places, false) {
                Err(error) => {
                    prop_assert!(machines.iter().all(|m| *m == machines[0]));
                    prop_assert_eq!(error, NoBuddy::OneMachine(places.len()));
                    let same = buddies(&places, true).expect("allowed");
                    prop_assert!((0..).zip(same).all(|(rank, buddy): (u32, u32)| rank != buddy));
                }
                Ok(buddies) => {
                    let mut used = vec![0; places.len()];
                    for (rank, &buddy) in buddies.iter().enumerate() {
                        prop_assert_ne!(&places[rank].machine, &places[buddy as usize].machine);
                        used[buddy as usize] += 1;
                    }
                    // with a majority on one machine, the others keep its copies
                    let most = (0..5).map(|m| machines.iter().filter(|x| **x == m).count()).max().unwrap_or(0);
                    let others = places.len() - most;
                    prop_assert!(used.iter().all(|&n| n <= most.div_ceil(others) + 1), "{:?} {:?}", machines, used);
                }
            }
        }

        #[test]
        fn buddies_are_outside_of_the_largest_domain_that_has_no_majority(
            all in prop::collection::vec((0u8..3, 0u8..3, 0u8..4), 2..60),
        ) {
            let place = |&(rack, card, host): &(u8, u8, u8)| {
                on(format!("{rack}{card}{host}"), &[format!("R{rack}"), format!("N{card}")])
            };
            let places: Vec<Place> = all.iter().map(place).collect();
            let Ok(buddies) = buddies(&places, false) else { return Ok(()) };
            let most = |level: usize| {
                let count = |place: &Place| {
                    places.iter().filter(|other| other.domains[..level] == place.domains[..level]).count()
                };
                places.iter().map(count).max().unwrap_or(0)
            };
            let level = (1..=2).find(|level| 2 * most(*level) <= places.len());
            let mut used = vec![0; places.len()];
            for (rank, &buddy) in buddies.iter().enumerate() {
                let (own, other) = (&places[rank], &places[buddy as usize]);
                prop_assert_ne!(&own.machine, &other.machine);
                if let Some(level) = level {
                    prop_assert_ne!(&own.domains[..level], &other.domains[..level]);
                }
                used[buddy as usize] += 1;
            }
            prop_assert!(level.is_none() || used.iter().all(|n| *n == 1));
        }
    }

    #[test]
    fn one_process_has_no_buddy_and_domains_that_are_said_wrongly_count_for_nothing() {
        assert_eq!(buddies(&[on("a", &[])], true), Err(NoBuddy::Alone));
        // two "racks" on each machine
        let racks = ["R0".to_owned(), "R1".to_owned()];
        let places: Vec<Place> =
            [("a", 0), ("a", 1), ("b", 0), ("b", 1)].map(|(m, r)| on(m, &racks[r..=r])).to_vec();
        let found = buddies(&places, false).expect("two machines");
        assert!(
            (0..)
                .zip(&found)
                .all(|(rank, buddy): (usize, &u32)| places[rank].machine != places[*buddy as usize].machine)
        );
        // one without domains beside others with them
        let mixed = [on("a", &racks[..1]), on("b", &[]), on("c", &racks[1..])];
        assert!(buddies(&mixed, false).is_ok());
    }
}
