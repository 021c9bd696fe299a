// SPDX-License-Identifier: MIT OR Apache-2.0
//! First fit and fragmentation.

use colony_model::{Block, FreeMap, Machine, ModelError, Request, Shape};
use proptest::prelude::*;

fn shape(text: &str) -> Shape {
    text.parse().expect("a shape")
}

fn map(text: &str) -> FreeMap {
    FreeMap::new(Machine::new(shape(text)).expect("a machine"))
}

/// Allocates, and says where.
fn take(map: &mut FreeMap, request: Request) -> Option<String> {
    let block = map.first_fit(request)?;
    map.take(&block);
    Some(block.name(map.machine()))
}

#[test]
fn the_first_free_midplane_is_taken_and_a_small_job_shares_one() {
    let mut map = map("16x16x8");
    let midplane = Request::Shape(Shape::MIDPLANE);
    assert_eq!(take(&mut map, midplane).as_deref(), Some("R00-M0"));
    assert_eq!(take(&mut map, Request::Nodes(20)).as_deref(), Some("R00-M1-N00-J00-4x4x2"));
    assert_eq!(take(&mut map, Request::Nodes(32)).as_deref(), Some("R00-M1-N01-J00-4x4x2"));
    assert_eq!(take(&mut map, midplane).as_deref(), Some("R01-M0"));
    assert_eq!(take(&mut map, midplane).as_deref(), Some("R01-M1"));
    assert_eq!(take(&mut map, midplane), None);
    assert_eq!(map.free(), 448);
    map.release(&Block::new(map.machine(), [0; 3], Shape::MIDPLANE).expect("a block"));
    assert_eq!(take(&mut map, midplane).as_deref(), Some("R00-M0"));
}

#[test]
fn a_shape_is_turned_if_it_does_not_fit_as_given() {
    let mut map = map("16x32x8");
    assert_eq!(take(&mut map, Request::Shape(shape("32x16x8"))).as_deref(), Some("R00-M0-16x32x8"));
    assert_eq!(map.fragmentation().largest, None);
    let mut small = self::map("4x4x8");
    assert_eq!(take(&mut small, Request::Shape(shape("8x4x2"))).as_deref(), Some("R00-M0-N00-J00-4x2x8"));
    assert_eq!(take(&mut small, Request::Shape(shape("8x4x2"))).as_deref(), Some("R00-M0-N00-J08-4x2x8"));
}

#[test]
fn a_number_of_nodes_wastes_as_few_as_possible_and_prefers_compact_blocks() {
    let sizes = |nodes| map("32x16x16").first_fit(Request::Nodes(nodes)).map(|b| b.shape().to_string());
    let all = [1, 9, 64, 300, 513, 2048, 3000, 8192, 8193].map(sizes);
    let expected = [
        Some("2x2x2"),
        Some("4x2x2"),
        Some("4x4x4"),
        Some("8x8x8"),
        Some("16x8x8"),
        Some("16x16x8"),
        Some("24x16x8"),
        Some("32x16x16"),
        None,
    ];
    assert_eq!(all.each_ref().map(|s| s.as_deref()), expected);
}

#[test]
fn requests_that_even_an_empty_machine_refuses_are_told_from_those_that_wait() {
    let mut map = map("16x8x8");
    map.take(&Block::whole(map.machine()));
    assert_eq!(map.check(Request::Nodes(1024)), Ok(()));
    assert_eq!(map.check(Request::Nodes(0)), Err(ModelError::Nodes { found: 0, most: 1024 }));
    assert_eq!(map.check(Request::Nodes(1025)), Err(ModelError::Nodes { found: 1025, most: 1024 }));
    assert_eq!(map.check(Request::Shape(shape("8x16x8"))), Ok(()), "turned");
    assert!(matches!(map.check(Request::Shape(shape("16x16x8"))), Err(ModelError::Outside { .. })));
    assert!(matches!(map.check(Request::Shape(shape("3x3x3"))), Err(ModelError::Block { .. })));
}

#[test]
fn fragmentation_is_the_share_of_free_nodes_outside_the_largest_block() {
    let mut map = map("32x8x8");
    assert_eq!(map.fragmentation().fragmentation, 0.0);
    let at = |x| Block::new(map.machine(), [x, 0, 0], Shape::MIDPLANE).expect("a block");
    let (second, third) = (at(8), at(16));
    map.take(&second);
    let now = map.fragmentation();
    assert_eq!((now.free, now.largest), (1536, Some(shape("16x8x8"))));
    assert!((now.fragmentation - 1.0 / 3.0).abs() < 1e-9);
    map.take(&third);
    let now = map.fragmentation();
    assert_eq!((now.free, now.largest, now.fragmentation), (1024, Some(Shape::MIDPLANE), 0.5));
    map.take(&Block::whole(map.machine()));
    let now = map.fragmentation();
    assert_eq!((now.free, now.largest, now.fragmentation), (0, None, 0.0));
}

#[test]
fn the_largest_machine_is_searched_too() {
    let mut map = map("64x64x64");
    assert_eq!(take(&mut map, Request::Nodes(262_144)).as_deref(), Some("R00-M0-64x64x64"));
    let row = self::map("4096x8x8");
    assert_eq!(row.fragmentation().largest, Some(shape("4096x8x8")));
    assert_eq!(row.first_fit(Request::Nodes(2049 * 8)).map(|b| b.shape()), Some(shape("264x8x8")));
}

fn request() -> impl Strategy<Value = Request> {
    let small = prop::sample::select(&[2u32, 4, 8][..]);
    let large = prop::sample::select(&[8u32, 16, 24][..]);
    prop_oneof![
        (1u32..2500).prop_map(Request::Nodes),
        [small.clone(), small.clone(), small].prop_map(|s| Request::Shape(Shape::new(s).expect("a shape"))),
        [large.clone(), large.clone(), large].prop_map(|s| Request::Shape(Shape::new(s).expect("a shape"))),
    ]
}

proptest! {
    /// Against a search that tries every origin and counts every node.
    #[test]
    fn first_fit_finds_a_free_block_whenever_there_is_one(
        requests in prop::collection::vec((request(), any::<bool>()), 1..12),
    ) {
        let machine = Machine::new(shape("24x16x8")).expect("a machine");
        let mut map = FreeMap::new(machine);
        let mut blocks: Vec<Block> = Vec::new();
        for (request, release) in requests {
            match map.first_fit(request) {
                Some(block) => {
                    prop_assert!(blocks.iter().all(|other| other.overlap(block).is_none()));
                    match request {
                        Request::Nodes(nodes) => prop_assert!(block.shape().nodes() >= nodes),
                        Request::Shape(shape) => prop_assert!(shape.orientations().contains(&block.shape())),
                    }
                    map.take(&block);
                    blocks.push(block);
                }
                None => prop_assert!(!is_possible(machine, &blocks, request)),
            }
            if release && let Some(block) = blocks.pop() {
                map.release(&block);
            }
            prop_assert_eq!(map.clone(), FreeMap::without(machine, &blocks));
            let used: u32 = blocks.iter().map(|b| b.shape().nodes()).sum();
            prop_assert_eq!(map.free(), machine.nodes() - used);
            let largest = map.fragmentation().largest;
            prop_assert_eq!(largest.is_none(), map.free() == 0);
            if let Some(shape) = largest {
                prop_assert!(map.first_fit(Request::Shape(shape)).is_some());
                prop_assert!(map.first_fit(Request::Nodes(shape.nodes() + 1)).is_none());
            }
        }
    }
}

fn is_possible(machine: Machine, blocks: &[Block], request: Request) -> bool {
    let sides = [2, 4, 8, 16, 24];
    let shapes: Vec<Shape> = match request {
        Request::Shape(shape) => shape.orientations(),
        Request::Nodes(nodes) => {
            let pairs = sides.iter().flat_map(|&x| sides.iter().map(move |&y| (x, y)));
            let all = pairs.flat_map(|(x, y)| sides.iter().map(move |&z| [x, y, z]));
            all.filter_map(|s| Shape::new(s).ok()).filter(|s| s.nodes() >= nodes).collect()
        }
    };
    let origins =
        (0..machine.nodes()).map(|n| machine.shape().coords(n)).filter(|at| at.iter().all(|c| c % 2 == 0));
    let free = |shape: Shape, at| {
        Block::new(machine, at, shape).is_ok_and(|b| blocks.iter().all(|other| other.overlap(b).is_none()))
    };
    origins.flat_map(|at| shapes.iter().map(move |&s| (s, at))).any(|(s, at)| free(s, at))
}
