// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of every strategy, and the promises of each one.

use proptest::prelude::*;

use super::Strategy as _;
use super::*;
use crate::database::{Edge, Object, Pe};
use crate::generate::{Generator, Shape};
use crate::quality::{Quality, ideal_step_s, step_times_s};

fn max_s(database: &Database, placement: &[u32]) -> f64 {
    step_times_s(database, placement).into_iter().fold(0.0, f64::max)
}

fn assign(name: &str, database: &Database) -> Vec<u32> {
    let strategy = Strategies::parse(name).expect("a strategy");
    let outcome = strategy.assign(database, &Topology::Flat).expect("flat fits every database");
    database.check_placement(&outcome.placement).expect("one PE each");
    outcome.placement
}

prop_compose! {
    fn databases()(
        pes in proptest::collection::vec((prop_oneof![3 => Just(0.0), 1 => 0.0..50.0f64], prop_oneof![3 => Just(1.0), 1 => 0.25..4.0f64]), 1..12),
        objects in proptest::collection::vec((any::<u32>(), prop_oneof![4 => 0.01..10.0f64, 1 => Just(0.0), 1 => 50.0..500.0f64], prop::bool::weighted(0.85)), 0..80),
        edges in proptest::collection::vec((any::<u32>(), any::<u32>(), 0u64..100_000), 0..60),
    ) -> Database {
        let pes: Vec<Pe> = pes.into_iter().map(|(background_s, speed)| Pe { background_s, speed }).collect();
        let (n, count) = (pes.len() as u32, objects.len() as u32);
        let mut database = Database::new(pes).expect("PEs");
        for (id, (pe, load_s, migratable)) in (0..).zip(objects) {
            database.push_object(Object { id, pe: pe % n, load_s, bytes: 100, migratable }).expect("an object");
        }
        for (from, to, bytes) in edges.into_iter().filter(|_| count > 0) {
            database.push_edge(Edge { from: from % count, to: to % count, bytes, messages: 1 }).expect("an edge");
        }
        database
    }
}

proptest! {
    #[test]
    fn every_object_has_one_pe_and_fixed_ones_stay(database in databases()) {
        for name in Strategies::names() {
            let placement = assign(name, &database);
            for (i, (&new, &old)) in placement.iter().zip(database.placement()).enumerate() {
                prop_assert!(database.is_migratable(i) || new == old, "{} moved object {}", name, i);
            }
        }
    }

    #[test]
    fn decisions_are_the_same_in_every_run(database in databases()) {
        for name in Strategies::names() {
            prop_assert_eq!(assign(name, &database), assign(name, &database), "{}", name);
        }
    }

    #[test]
    fn refinement_never_makes_the_slowest_pe_slower(database in databases()) {
        let before = max_s(&database, database.placement());
        for name in ["refine", "refine:tolerance=1", "greedy-refine", "greedy-refine:tolerance=1.0", "gossip"] {
            let after = max_s(&database, &assign(name, &database));
            prop_assert!(after <= before * (1.0 + 1e-9), "{}: {} {}", name, before, after);
        }
    }

    #[test]
    fn nothing_is_faster_than_the_ideal(database in databases()) {
        let ideal = ideal_step_s(&database);
        for name in Strategies::names() {
            prop_assert!(max_s(&database, &assign(name, &database)) >= ideal * (1.0 - 1e-9), "{}", name);
        }
    }

    /// List scheduling on equal PEs stays below the ideal and the heaviest object (Graham 1966).
    #[test]
    fn greedy_keeps_grahams_bound(
        loads in proptest::collection::vec(0.0..10.0f64, 0..80), pes in 1u32..12, communication: bool,
    ) {
        let mut database = Database::of_equal_pes(pes).expect("PEs");
        for (id, &load_s) in (0..).zip(&loads) {
            database.push_object(Object { id, pe: 0, load_s, bytes: 0, migratable: true }).expect("an object");
        }
        let heaviest = loads.iter().copied().fold(0.0, f64::max);
        let bound = ideal_step_s(&database) + heaviest * (1.0 - 1.0 / f64::from(pes));
        let hybrid = format!("hybrid:communication={communication}");
        for (name, slack) in [("greedy", 1e-9), (hybrid.as_str(), 1e-4)] {
            let reached = max_s(&database, &assign(name, &database));
            prop_assert!(reached <= bound * (1.0 + slack), "{}: {} {}", name, reached, bound);
        }
    }

    #[test]
    fn the_order_of_objects_does_not_matter(
        loads in proptest::collection::hash_set(1u32..100_000, 1..60), pes in 1u32..9, turn in 0usize..60,
    ) {
        let objects: Vec<Object> = loads.iter().map(|&l| {
            Object { id: l.into(), pe: l % pes, load_s: f64::from(l), bytes: 0, migratable: true }
        }).collect();
        let placed = |name: &str, turn: usize| {
            let mut database = Database::of_equal_pes(pes).expect("PEs");
            let mut turned = objects.clone();
            turned.rotate_left(turn % objects.len());
            turned.iter().for_each(|&o| { database.push_object(o).expect("an object"); });
            let mut by_id: Vec<(u64, u32)> = database.ids().iter().copied().zip(assign(name, &database)).collect();
            by_id.sort_unstable();
            by_id
        };
        for name in ["greedy", "refine", "random", "rotate"] {
            prop_assert_eq!(placed(name, 0), placed(name, turn), "{}", name);
        }
    }
}

#[test]
fn extreme_databases_are_balanced_too() {
    let object = |id, load_s| Object { id, pe: 0, load_s, bytes: 1, migratable: true };
    for name in Strategies::names() {
        let empty = Database::of_equal_pes(5).expect("PEs");
        assert!(assign(name, &empty).is_empty());
        let mut alone = Database::of_equal_pes(1).expect("a PE");
        (0..9).for_each(|id| {
            alone.push_object(object(id, 1.0)).expect("an object");
        });
        assert_eq!(assign(name, &alone), [0; 9]);
        let mut idle = Database::of_equal_pes(4).expect("PEs");
        (0..9).for_each(|id| {
            idle.push_object(object(id, 0.0)).expect("an object");
        });
        assert_eq!(max_s(&idle, &assign(name, &idle)), 0.0);
        let mut giant = Database::of_equal_pes(4).expect("PEs");
        giant.push_object(object(0, 1e12)).expect("an object");
        (1..9).for_each(|id| {
            giant.push_object(object(id, 1e-9)).expect("an object");
        });
        assert!(max_s(&giant, &assign(name, &giant)).is_finite());
    }
    // strategies that balance by load move no idle object
    let mut idle = Database::of_equal_pes(4).expect("PEs");
    (0..9).for_each(|id| {
        idle.push_object(object(id, 0.0)).expect("an object");
    });
    for name in ["greedy", "greedy-refine", "refine", "hybrid", "gossip", "topology"] {
        assert_eq!(assign(name, &idle), [0; 9], "{name}");
    }
}

#[test]
fn a_daemon_that_stays_is_balanced_around() {
    let mut database = Generator::new(Shape { imbalance: 1.0, ..Shape::lb_test(32, 2048) })
        .and_then(|g| g.database())
        .expect("a database");
    let quarter = ideal_step_s(&database) * 0.25;
    database.set_background(7, quarter).expect("a PE");
    let before =
        Quality::of(&database, database.placement(), &Topology::Flat).expect("a placement").imbalance;
    for name in ["greedy", "greedy-refine", "refine", "hybrid", "gossip", "topology"] {
        let placement = assign(name, &database);
        let after = Quality::of(&database, &placement, &Topology::Flat).expect("a placement").imbalance;
        assert!(before > 1.2 && after < 1.03, "{name}: {before} {after}");
    }
}

#[test]
fn fast_pes_get_more() {
    let pes: Vec<Pe> =
        (0..32).map(|i| Pe { background_s: 0.0, speed: if i % 4 == 0 { 3.0 } else { 1.0 } }).collect();
    let mut database = Database::new(pes).expect("PEs");
    let generator = Generator::new(Shape::lb_test(32, 2048)).expect("a generator");
    (0..2048).for_each(|n| {
        database.push_object(generator.object(n)).expect("an object");
    });
    for name in ["greedy", "greedy-refine", "refine", "hybrid", "gossip", "topology"] {
        let placement = assign(name, &database);
        let after = Quality::of(&database, &placement, &Topology::Flat).expect("a placement").imbalance;
        assert!(after < 1.03, "{name}: {after}");
    }
}

#[test]
fn the_targets_hold_at_a_sixteenth_of_their_size() {
    let shape = Shape::lb_test(1024, 65_536);
    let database = Generator::new(shape).and_then(|g| g.database()).expect("a database");
    let quality =
        |name: &str| Quality::of(&database, &assign(name, &database), &Topology::Flat).expect("a placement");
    let greedy_refine = quality("greedy-refine");
    assert!(
        greedy_refine.imbalance <= 1.002 && greedy_refine.moved_objects <= 65_536 * 6 / 100,
        "{greedy_refine:?}"
    );
    let refine = quality("refine");
    assert!(refine.imbalance <= 1.008 && refine.moved_objects <= 65_536 * 6 / 100, "{refine:?}");
    assert!(quality("greedy").imbalance <= 1.002 && quality("gossip").imbalance <= 1.05);
}

#[test]
fn hybrid_holds_no_more_than_a_domain() {
    let shape = Shape::lb_test(4096, 262_144);
    let generator = Generator::new(shape).expect("a generator");
    let tree = Hybrid::default().balance_generated(&generator);
    assert_eq!(tree.domains, 4);
    assert!(tree.database_bytes_one_pe <= 2_000_000 && tree.imbalance <= 1.01, "{tree:?}");
    // the same by way of the whole database
    let database = generator.database().expect("a database");
    let outcome = Hybrid::default().assign(&database, &Topology::Flat).expect("a placement");
    assert_eq!(outcome.effort.database_bytes_one_pe, tree.database_bytes_one_pe);
    let quality = Quality::of(&database, &outcome.placement, &Topology::Flat).expect("a placement");
    assert!((quality.imbalance - tree.imbalance).abs() < 1e-9);
    assert!(outcome.effort.database_bytes_one_pe * 15 < database.memory_bytes());
}

#[test]
fn hybrid_moves_load_between_domains() {
    // all load in the first of four domains
    let mut database = Database::of_equal_pes(64).expect("PEs");
    for id in 0..4096u32 {
        let load_s = 1.0 + f64::from(id % 7);
        database
            .push_object(Object { id: id.into(), pe: id % 16, load_s, bytes: 1, migratable: true })
            .expect("an object");
    }
    let placement = assign("hybrid:domain=16", &database);
    let quality = Quality::of(&database, &placement, &Topology::Flat).expect("a placement");
    assert!(quality.imbalance < 1.03, "{quality:?}");
}

#[test]
fn partners_are_put_together_where_communication_counts() {
    let database = Generator::new(Shape::lb_test(64, 4096)).and_then(|g| g.database()).expect("a database");
    let bytes = |name: &str, topology: &Topology| {
        let strategy = Strategies::parse(name).expect("a strategy");
        let placement = strategy.assign(&database, topology).expect("it fits").placement;
        Quality::of(&database, &placement, topology).expect("a placement").hop_bytes
    };
    assert!(bytes("hybrid", &Topology::Flat) < 0.8 * bytes("hybrid:communication=false", &Topology::Flat));
    for topology in [Topology::Torus(vec![4, 4, 4]), Topology::FatTree(vec![8, 8])] {
        let [mapped, greedy] = ["topology", "greedy"].map(|name| bytes(name, &topology));
        assert!(mapped < 0.3 * greedy, "{topology}: {mapped} {greedy}");
    }
}

#[test]
fn a_topology_of_another_size_is_refused() {
    let database = Database::of_equal_pes(4).expect("PEs");
    let strategy = Strategies::parse("topology").expect("a strategy");
    assert!(strategy.assign(&database, &Topology::Torus(vec![5])).is_err());
}

#[test]
fn names_and_options_that_are_unknown_are_errors() {
    let error = |text: &str| Strategies::parse(text).expect_err(text).to_string();
    let unknown = error("gredy");
    assert!(
        unknown.contains("`gredy`") && Strategies::names().all(|name| unknown.contains(name)),
        "{unknown}"
    );
    assert!(error("refine:tolerence=1.1").contains("tolerance"), "{}", error("refine:tolerence=1.1"));
    assert!(error("refine:tolerance=0.5").contains("from 1 to 100"));
    assert!(error("refine:tolerance=nan").contains("from 1 to 100"));
    assert!(error("refine:tolerance").contains("NAME=VALUE"));
    assert!(error("refine:tolerance=1.1:tolerance=1.2").contains("twice"));
    assert!(error("hybrid:domain=0").contains("65536"));
    assert!(error("gossip:fanout=-1").contains("gossip") && error("").contains("known are"));
    assert!(Strategies::parse("hybrid:domain=256:communication=false").is_ok());
}
