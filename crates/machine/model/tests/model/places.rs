// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations, blocks and partitions over machines of every kind.

use std::collections::HashSet;

use colony_model::{Block, Kind, Location, Machine, ModelError, Partition, PsetSize, Shape};
use proptest::prelude::*;

fn machine(text: &str) -> Machine {
    Machine::new(text.parse().expect("a shape")).expect("a machine")
}

fn shape(text: &str) -> Shape {
    text.parse().expect("a shape")
}

#[test]
fn every_node_has_its_own_location_and_is_found_there() {
    for text in ["2x2x2", "4x8x2", "8x8x8", "8x8x24", "24x16x8", "64x32x32", "64x64x64", "4096x8x8"] {
        let machine = machine(text);
        let mut seen = HashSet::new();
        for number in 0..machine.nodes() {
            let coords = machine.shape().coords(number);
            let location = machine.compute_location(coords);
            assert!(location.kind() == Kind::Compute && seen.insert(location), "{location}");
            assert_eq!(machine.coords(location), Ok(coords), "{location} of {text}");
            let midplane = machine.midplane_location(machine.midplane_of(coords));
            assert!(midplane.contains(location) && midplane.contains(machine.io_location(coords)));
        }
        let io: HashSet<Location> =
            seen.iter().filter_map(|&l| machine.coords(l).ok()).map(|c| machine.io_location(c)).collect();
        assert_eq!(io.len() as u32, machine.io_nodes());
        let numbers: HashSet<u32> = io.iter().map(|&l| machine.io_number(l).expect("it is there")).collect();
        assert!(
            numbers.len() as u32 == machine.io_nodes() && numbers.iter().all(|&n| n < machine.io_nodes())
        );
    }
}

#[test]
fn the_largest_machine_of_blue_gene_stands_in_racks_00_to_77() {
    let machine = machine("64x32x32");
    assert_eq!((machine.midplanes(), machine.racks(), machine.node_cards()), (128, 64, 2048));
    assert_eq!(machine.compute_location([63, 31, 31]).to_string(), "R77-M1-N15-J31");
    assert_eq!(machine.io_location([63, 31, 31]).to_string(), "R77-M1-N15-I03");
    assert_eq!(machine.midplane_location(3).to_string(), "R01-M1");
    let last = Machine::new(shape("64x64x64")).expect("a machine").compute_location([63, 63, 63]);
    assert_eq!(last.to_string(), "RFF-M1-N15-J31");
}

#[test]
fn locations_that_a_machine_does_not_have_are_refused() {
    let small = machine("4x4x4");
    for text in
        ["SN", "R01", "R01-M0", "R00-M1-N00", "R00-M0-N01-J00", "R00-M0-N08-J00", "R08-M0", "RFF-M1-N15-J31"]
    {
        let location: Location = text.parse().expect("a location");
        assert!(matches!(small.coords(location), Err(ModelError::NoSuchLocation { .. })), "{text}");
    }
    let eight = machine("64x8x8");
    assert!(eight.coords("R03-M1-N15-J31".parse().expect("a location")).is_ok());
    assert!(eight.coords("R04-M0-N00-J00".parse().expect("a location")).is_err());
}

#[test]
fn machines_and_blocks_that_cannot_be_are_refused() {
    for text in ["1x1x1", "16x8x4", "12x8x8", "8x8x9", "2x2x16", "6x4x4"] {
        assert!(matches!(Machine::new(shape(text)), Err(ModelError::Machine { .. })), "{text}");
    }
    let machine = machine("16x8x8");
    let refused =
        |origin, text: &str| Block::new(machine, origin, shape(text)).expect_err("impossible").to_string();
    assert!(refused([0, 0, 0], "4x4x1").contains("4x4x1 cannot be built"));
    assert!(refused([2, 0, 0], "4x4x4").contains("start at node 2,0,0: x must be a multiple of 4"));
    assert!(refused([0, 4, 0], "8x8x8").contains("y must be a multiple of 8"));
    assert!(refused([8, 0, 0], "16x8x8").contains("beyond the machine of 16x8x8"));
    assert!(refused([u32::MAX - 7, 0, 0], "8x8x8").contains("beyond"));
    assert!(Block::new(machine, [12, 4, 4], shape("4x4x4")).is_ok());
}

#[test]
fn partitions_beside_each_other_have_no_node_and_no_name_in_common() {
    let machine = machine("16x8x8");
    let size = PsetSize::new(64).expect("a size");
    let made = |name: &str, origin, text: &str| {
        let block = Block::new(machine, origin, shape(text)).expect("a block");
        Partition::new(machine, name, block, size).expect("a partition")
    };
    let first = made("left", [0, 0, 0], "8x8x8");
    let others = [made("corner", [8, 0, 0], "4x4x4"), first.clone()];
    assert_eq!(made("right", [8, 4, 4], "8x4x4").check_beside(&others), Ok(()));
    assert!(matches!(
        made("left", [8, 4, 4], "8x4x4").check_beside(&others),
        Err(ModelError::NameTaken { .. })
    ));
    let error = made("all", [0, 0, 0], "16x8x8").check_beside(&others).expect_err("overlap");
    assert_eq!(
        error.to_string(),
        r#"partition "all" overlaps partition "corner": both contain R00-M1-N00-J00"#
    );
    let error = made("inner", [4, 4, 4], "4x4x4").check_beside(&others).expect_err("overlap");
    assert_eq!(
        error.to_string(),
        r#"partition "inner" overlaps partition "left": both contain R00-M0-N11-J00"#
    );
}

#[test]
fn names_that_could_be_paths_or_flags_are_refused() {
    let machine = machine("8x8x8");
    let named = |name: &str| Partition::new(machine, name, Block::whole(machine), PsetSize::default_for(512));
    for name in ["", "-a", "_a", "a b", "a/b", "..", "ä", "a\n", &"a".repeat(32)] {
        assert!(matches!(named(name), Err(ModelError::Name { .. })), "{name:?}");
    }
    for name in ["a", "R00-M0", "7_x", &"a".repeat(31)] {
        assert!(named(name).is_ok(), "{name}");
    }
    assert!(Block::whole(Machine::new(shape("64x64x64")).expect("a machine")).name(machine).len() <= 31);
}

#[test]
fn the_usual_names_of_blocks_are_distinct() {
    let machine = machine("16x8x8");
    let name = |origin, text: &str| Block::new(machine, origin, shape(text)).expect("a block").name(machine);
    let names = [
        name([0, 0, 0], "8x8x8"),
        name([8, 0, 0], "8x8x8"),
        name([0, 0, 0], "16x8x8"),
        name([8, 4, 2], "4x4x2"),
        name([2, 2, 0], "2x2x2"),
    ];
    assert_eq!(names, ["R00-M0", "R00-M1", "R00-M0-16x8x8", "R00-M1-N06-J00-4x4x2", "R00-M0-N00-J10-2x2x2"]);
}

/// Two blocks of one machine, and a pset size.
fn two_blocks() -> impl Strategy<Value = (Machine, Block, Block)> {
    let midplanes = (1u32..4, 1u32..4, 1u32..4).prop_map(|(x, y, z)| [8 * x, 8 * y, 8 * z]);
    let small = [
        prop::sample::select(&[2u32, 4, 8][..]),
        prop::sample::select(&[2u32, 4, 8][..]),
        prop::sample::select(&[2u32, 4, 8][..]),
    ];
    let sides = || prop_oneof![midplanes.clone(), small.clone()];
    let machine = machine("32x24x16");
    let block = move || {
        (sides(), [0u32..16, 0..16, 0..16]).prop_filter_map("no block", move |(sides, at)| {
            let origin = [0, 1, 2].map(|a: usize| at[a] * sides[a].min(8));
            Block::new(machine, origin, Shape::new(sides).ok()?).ok()
        })
    };
    (block(), block()).prop_map(move |(a, b)| (machine, a, b))
}

proptest! {
    #[test]
    fn blocks_overlap_if_and_only_if_a_node_is_in_both((machine, a, b) in two_blocks()) {
        let mut nodes = (0..machine.nodes()).map(|n| machine.shape().coords(n));
        let common = nodes.any(|at| a.contains(at) && b.contains(at));
        prop_assert_eq!(a.overlap(b).is_some(), common);
        prop_assert_eq!(b.overlap(a), a.overlap(b));
    }

    #[test]
    fn partitions_that_do_not_overlap_share_no_io_node((machine, a, b) in two_blocks()) {
        prop_assume!(a.overlap(b).is_none());
        let io = |block: Block| -> HashSet<Location> {
            let size = PsetSize::ALL.into_iter().find(|s| s.nodes() <= block.shape().nodes()).expect("a size");
            let partition = Partition::new(machine, "a", block, size).expect("a partition");
            let all: HashSet<_> = (0..partition.psets().count()).map(|p| partition.io_location(p)).collect();
            assert_eq!(all.len() as u32, partition.psets().count());
            all
        };
        prop_assert!(io(a).is_disjoint(&io(b)));
    }

    #[test]
    fn a_node_of_a_partition_is_found_by_its_location((machine, a, b) in two_blocks(), pick in any::<u32>()) {
        let partition = Partition::new(machine, "a", a, PsetSize::ALL[0]).expect("a partition");
        let node = pick % partition.nodes();
        prop_assert_eq!(partition.node_at(partition.location(node)), Ok(node));
        let other = machine.compute_location(b.origin());
        prop_assert_eq!(partition.node_at(other).is_ok(), a.contains(b.origin()));
        prop_assert!(partition.node_at(partition.io_location(0)).is_err());
    }
}
