// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use metis::option::{Seed, UFactor};
use metis::{Graph, Idx};
use serde::Deserialize;

use super::greedy::fixed_times_s;
use super::options::{Checked, tolerance_problem};
use super::shed::{Pick, Refinement};
use super::{Effort, Outcome, Strategy};
use crate::database::{Database, Pe};
use crate::error::BalanceError;
use crate::quality::water_level;
use crate::topology::Topology;

/// Partitions the graph of messages with METIS (Karypis and Kumar 1998, multilevel k-way), so that few bytes pass between
/// PEs. Parts are numbered so that few objects move; then refinement meets the tolerance. It knows no links between PEs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metis {
    /// Load of a PE that is allowed, over its share.
    pub tolerance: f64,
    /// Seed of METIS's random numbers.
    pub seed: u32,
}

impl Default for Metis {
    fn default() -> Self {
        Self { tolerance: 1.02, seed: 1 }
    }
}

impl Checked for Metis {
    fn problem(&self) -> Option<String> {
        let seed = || format!("the seed is {}; it must be at most {}", self.seed, Idx::MAX);
        tolerance_problem(self.tolerance).or_else(|| Idx::try_from(self.seed).is_err().then(seed))
    }
}

/// METIS needs some objects a part; with fewer than this, there is only refinement.
const OBJECTS_A_PART: usize = 4;
static ALONE: Mutex<()> = Mutex::new(());
/// The sum of all loads, and of all bytes, in METIS's integers.
const SUM: f64 = 1e9;

/// The graph of the objects that may move, in compressed rows.
struct Rows {
    starts: Vec<Idx>,
    neighbours: Vec<Idx>,
    bytes: Vec<Idx>,
    loads: Vec<Idx>,
}

impl Rows {
    /// The graph of these objects. None if it has more edges than METIS can number.
    fn of(database: &Database, movable: &[u32]) -> Option<Self> {
        let mut place = vec![Idx::MAX; database.objects()];
        for (at, &number) in movable.iter().enumerate() {
            place[number as usize] = Idx::try_from(at).ok()?;
        }
        let mut edges = BTreeMap::<(Idx, Idx), f64>::new();
        for edge in database.edges() {
            let (a, b) = (place[edge.from as usize], place[edge.to as usize]);
            if a != b && a != Idx::MAX && b != Idx::MAX {
                *edges.entry((a, b)).or_default() += edge.bytes as f64;
                *edges.entry((b, a)).or_default() += edge.bytes as f64;
            }
        }
        let whole = |value: f64, sum: f64| if sum > 0.0 { (value / sum * SUM).round() as Idx } else { 0 };
        let bytes: f64 = edges.values().sum();
        let load: f64 = movable.iter().map(|&n| database.loads_s()[n as usize]).sum();
        let mut starts = vec![0; movable.len() + 1];
        for &(a, _) in edges.keys() {
            starts[a as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] = Idx::checked_add(starts[at], starts[at - 1])?;
        }
        Some(Self {
            starts,
            neighbours: edges.keys().map(|&(_, b)| b).collect(),
            bytes: edges.values().map(|&b| whole(b, bytes).max(1)).collect(),
            loads: movable.iter().map(|&n| whole(database.loads_s()[n as usize], load)).collect(),
        })
    }

    /// The part of each object, where parts have these shares of the load.
    fn partition(&self, shares: &[f32], options: &Metis) -> Result<Vec<Idx>, BalanceError> {
        let mut parts = vec![0; self.loads.len()];
        let fail = |problem: String| BalanceError::Option { strategy: "metis".to_owned(), problem };
        if shares.len() < 2 {
            return Ok(parts);
        }
        let count = Idx::try_from(shares.len()).map_err(|e| fail(e.to_string()))?;
        // thousandths above the share
        let allowed = ((options.tolerance - 1.0) * 1000.0).clamp(1.0, 1000.0) as Idx;
        let graph = Graph::new(1, count, &self.starts, &self.neighbours).map_err(|e| fail(e.to_string()))?;
        let graph = graph.set_vwgt(&self.loads).set_adjwgt(&self.bytes).set_tpwgts(shares);
        let graph = graph.set_option(Seed(options.seed as Idx)).set_option(UFactor(allowed));
        // METIS draws its random numbers from one state of the process
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        graph.part_kway(&mut parts).map_err(|e| fail(format!("METIS: {e}")))?;
        Ok(parts)
    }
}

/// The PE of each part: the one from which most of the part's load need not move, among those with a like share.
fn name_parts(parts: &[Idx], movable: &[u32], shares: &[(u32, f32)], database: &Database) -> Vec<u32> {
    let mut common = BTreeMap::<(usize, u32), f64>::new();
    for (&part, &number) in parts.iter().zip(movable) {
        let number = number as usize;
        *common.entry((part as usize, database.placement()[number])).or_default() +=
            database.loads_s()[number];
    }
    let mut common: Vec<_> = common.into_iter().collect();
    common.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let share_of: BTreeMap<u32, f32> = shares.iter().copied().collect();
    let (mut named, mut free) = (vec![None; shares.len()], share_of.clone());
    for ((part, pe), _) in common {
        let like = share_of.get(&pe).is_some_and(|share| (share / shares[part].1 - 1.0).abs() < 0.01);
        if like && named[part].is_none() && free.remove(&pe).is_some() {
            named[part] = Some(pe);
        }
    }
    // the others: large shares to large ones
    let mut free: Vec<(u32, f32)> = free.into_iter().collect();
    free.sort_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    let mut left: Vec<usize> = (0..named.len()).filter(|&part| named[part].is_none()).collect();
    left.sort_by(|&a, &b| shares[b].1.total_cmp(&shares[a].1).then(a.cmp(&b)));
    for part in left {
        named[part] = free.pop().map(|(pe, _)| pe);
    }
    named.into_iter().zip(shares).map(|(pe, share)| pe.unwrap_or(share.0)).collect()
}

impl Strategy for Metis {
    fn name(&self) -> &'static str {
        "metis"
    }

    fn uses_communication(&self) -> bool {
        true
    }

    fn assign(&self, database: &Database, _: &Topology) -> Result<Outcome, BalanceError> {
        let mut placement = database.placement().to_vec();
        let movable: Vec<u32> =
            (0..database.objects() as u32).filter(|&n| database.is_migratable(n as usize)).collect();
        let work = movable.iter().map(|&n| database.loads_s()[n as usize]).sum();
        let floors = database.pes().iter().zip(fixed_times_s(database));
        let pes: Vec<Pe> = floors.map(|(pe, floor)| Pe { background_s: floor, ..*pe }).collect();
        let level = water_level(&pes, work);
        let rooms = pes.iter().map(|pe| (level - pe.background_s).max(0.0) * pe.speed);
        let shares: Vec<(u32, f32)> =
            (0..).zip(rooms).map(|(pe, room)| (pe, (room / work) as f32)).filter(|s| s.1 > 0.0).collect();
        if work > 0.0
            && movable.len() >= OBJECTS_A_PART * shares.len().max(1)
            && let Some(rows) = Rows::of(database, &movable)
        {
            let parts = rows.partition(&shares.iter().map(|s| s.1).collect::<Vec<_>>(), self)?;
            let names = name_parts(&parts, &movable, &shares, database);
            for (&number, &part) in movable.iter().zip(&parts) {
                placement[number as usize] = names[part as usize];
            }
        }
        let mut refinement = Refinement::from(database, placement, self.tolerance);
        let _ = refinement.shed(Pick::Heaviest) || refinement.shed(Pick::Lightest);
        Ok(Outcome { placement: refinement.placement, effort: Effort::central(database) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::database::{Edge, Object};
    use crate::generate::{Generator, Shape};
    use crate::quality::Quality;
    use crate::strategy::{Strategies, Strategy as _};

    #[test]
    fn metis_cuts_fewer_bytes_than_strategies_that_do_not_see_them() {
        let database =
            Generator::new(Shape::lb_test(64, 4096)).and_then(|g| g.database()).expect("a database");
        let quality = |name: &str| {
            let strategy = Strategies::parse(name).expect("a strategy");
            let outcome = strategy.assign(&database, &Topology::Flat).expect("it fits");
            let again = strategy.assign(&database, &Topology::Flat).expect("it fits");
            assert!(outcome == again, "{name} decides the same again");
            Quality::of(&database, &outcome.placement, &Topology::Flat).expect("a placement")
        };
        let (metis, greedy) = (quality("metis"), quality("greedy"));
        assert!(metis.hop_bytes < 0.5 * greedy.hop_bytes, "{metis:?} {greedy:?}");
        assert!(metis.imbalance < 1.05, "{metis:?}");
    }

    #[test]
    fn parts_stay_where_they_are() {
        let mut database = Database::of_equal_pes(2).expect("PEs");
        for id in 0..8u32 {
            let object = Object { id: id.into(), pe: 1 - id / 4, load_s: 1.0, bytes: 1, migratable: true };
            database.push_object(object).expect("an object");
        }
        for from in 0..8u32 {
            let to = from / 4 * 4 + (from + 1) % 4;
            database.push_edge(Edge { from, to, bytes: 1000, messages: 1 }).expect("an edge");
        }
        let outcome = Metis::default().assign(&database, &Topology::Flat).expect("it fits");
        assert_eq!(outcome.placement, database.placement());
    }

    proptest! {
        #[test]
        fn every_database_is_partitioned(
            loads in proptest::collection::vec(0.0..10.0f64, 0..60),
            edges in proptest::collection::vec((0u32..60, 0u32..60, 0u64..1 << 40), 0..100),
            pes in 1u32..9,
        ) {
            let each = (0..pes).map(|pe| Pe { background_s: f64::from(pe % 3), speed: 1.0 + f64::from(pe % 2) });
            let mut database = Database::new(each.collect()).expect("PEs");
            for (id, &load_s) in (0u32..).zip(&loads) {
                let object =
                    Object { id: id.into(), pe: id % pes, load_s, bytes: 1, migratable: id % 7 != 0 };
                database.push_object(object).expect("an object");
            }
            for (from, to, bytes) in edges {
                let _ = database.push_edge(Edge { from, to, bytes, messages: 1 });
            }
            let outcome = Metis::default().assign(&database, &Topology::Flat).expect("it fits");
            database.check_placement(&outcome.placement).expect("a valid placement");
            for number in (0..database.objects()).filter(|&n| !database.is_migratable(n)) {
                prop_assert_eq!(outcome.placement[number], database.placement()[number]);
            }
        }
    }
}
