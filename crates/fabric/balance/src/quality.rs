// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quality of a placement, and the cost of the migrations to it.

use serde::Serialize;

use crate::database::{Database, Pe};
use crate::error::BalanceError;
use crate::topology::Topology;

/// Time that each PE takes for one step under a placement: background, and its objects' load over its speed.
///
/// # Panics
/// The placement names a PE that does not exist; see [`Database::check_placement`].
#[must_use]
pub fn step_times_s(database: &Database, placement: &[u32]) -> Vec<f64> {
    let mut work = vec![0.0; database.pes().len()];
    for (&pe, load) in placement.iter().zip(database.loads_s()) {
        work[pe as usize] += load;
    }
    for (work, pe) in work.iter_mut().zip(database.pes()) {
        *work = pe.background_s + *work / pe.speed;
    }
    work
}

/// The step time of all PEs if loads could be divided at will: no placement is faster. Without background load and with
/// equal PEs it is the average.
#[must_use]
pub fn ideal_step_s(database: &Database) -> f64 {
    level(database.pes(), database.loads_s().iter().sum())
}

/// The level of time to which PEs fill up that divide `work` among them, with their backgrounds as floors; at least
/// the highest background.
pub(crate) fn level(pes: &[Pe], work: f64) -> f64 {
    let highest = pes.iter().map(|p| p.background_s).fold(0.0, f64::max);
    let speed: f64 = pes.iter().map(|p| p.speed).sum();
    let all: f64 = pes.iter().map(|p| p.speed * p.background_s).sum();
    let even = (work + all) / speed;
    if even >= highest {
        return even;
    }
    // some PEs are above the level: their background is the step time, whatever objects do
    highest
}

/// The level of the PEs below it, which may lie under the highest background.
pub(crate) fn water_level(pes: &[Pe], work: f64) -> f64 {
    let mut floors: Vec<(f64, f64)> = pes.iter().map(|p| (p.background_s, p.speed)).collect();
    floors.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut speed, mut volume) = (0.0, work);
    let mut level = 0.0;
    for (i, &(floor, s)) in floors.iter().enumerate() {
        speed += s;
        volume += s * floor;
        level = volume / speed;
        if floors.get(i + 1).is_none_or(|next| level <= next.0) {
            break;
        }
    }
    level
}

/// A placement beside the one that a database has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// Step time of the slowest PE, in seconds.
    pub max_s: f64,
    /// Step time if loads could be divided at will, in seconds.
    pub ideal_s: f64,
    /// Step time of the slowest PE over the ideal one ("max/avg"); 1 if there is no load.
    pub imbalance: f64,
    /// Objects that are on another PE than before.
    pub moved_objects: u64,
    /// Bytes of their states; `None` if those of an object that moved are unknown.
    pub moved_bytes: Option<u64>,
    /// The most bytes that one PE sends and receives; `None` if those of an object that moved are unknown.
    pub moved_bytes_one_pe: Option<u64>,
    /// Bytes of all messages times the links between their PEs.
    pub hop_bytes: f64,
}

impl Quality {
    /// Judges a placement.
    ///
    /// # Errors
    /// The placement is not of this database, or the topology has another number of PEs.
    pub fn of(database: &Database, placement: &[u32], topology: &Topology) -> Result<Self, BalanceError> {
        database.check_placement(placement)?;
        topology.check(database.pes().len())?;
        let max_s = step_times_s(database, placement).into_iter().fold(0.0, f64::max);
        let ideal_s = ideal_step_s(database);
        let (mut moved_objects, mut moved_bytes, mut all_known) = (0, 0u64, true);
        let mut traffic = vec![0u64; database.pes().len()];
        let moves = database.placement().iter().zip(placement).enumerate();
        for (number, (&from, &to)) in moves.filter(|(_, (from, to))| from != to) {
            moved_objects += 1;
            let Some(bytes) = database.known_bytes(number) else {
                all_known = false;
                continue;
            };
            moved_bytes = moved_bytes.saturating_add(bytes);
            for pe in [from, to] {
                traffic[pe as usize] = traffic[pe as usize].saturating_add(bytes);
            }
        }
        let hop_bytes = database.edges().iter().map(|e| {
            let hops = topology.hops(placement[e.from as usize], placement[e.to as usize]);
            f64::from(hops) * e.bytes as f64
        });
        Ok(Self {
            max_s,
            ideal_s,
            imbalance: if ideal_s > 0.0 { max_s / ideal_s } else { 1.0 },
            moved_objects,
            moved_bytes: all_known.then_some(moved_bytes),
            moved_bytes_one_pe: traffic.into_iter().max().filter(|_| all_known),
            hop_bytes: hop_bytes.sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{Edge, Object};

    #[test]
    fn the_ideal_goes_around_backgrounds() {
        let pe = |background_s, speed| Pe { background_s, speed };
        assert_eq!(level(&[pe(0.0, 1.0), pe(2.0, 1.0)], 4.0), 3.0);
        assert_eq!(level(&[pe(0.0, 1.0), pe(0.0, 3.0)], 4.0), 1.0);
        assert_eq!(level(&[pe(0.0, 1.0), pe(9.0, 1.0)], 4.0), 9.0);
        assert_eq!(water_level(&[pe(0.0, 1.0), pe(9.0, 1.0)], 4.0), 4.0);
        assert_eq!(water_level(&[pe(0.0, 1.0), pe(2.0, 1.0)], 4.0), 3.0);
    }

    #[test]
    fn moves_and_hops_are_counted() {
        let mut database = Database::of_equal_pes(4).expect("PEs");
        for (id, pe) in [(0, 0), (1, 1), (2, 1)] {
            let object = Object { id, pe, load_s: 1.0, bytes: 10 << id, migratable: true };
            database.push_object(object).expect("an object");
        }
        database.push_edge(Edge { from: 0, to: 2, bytes: 100, messages: 1 }).expect("an edge");
        let topology = Topology::Torus(vec![4]);
        let before = Quality::of(&database, &[0, 1, 1], &topology).expect("a placement");
        let after = Quality::of(&database, &[0, 1, 2], &topology).expect("a placement");
        assert_eq!((before.max_s, before.imbalance, before.moved_objects), (2.0, 2.0 / 0.75, 0));
        assert_eq!(
            (after.max_s, after.moved_objects, after.moved_bytes, after.moved_bytes_one_pe),
            (1.0, 1, Some(40), Some(40))
        );
        assert_eq!((before.hop_bytes, after.hop_bytes), (100.0, 200.0));
    }
}
