// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes in the torus: dimension order, the shorter way around each ring, two virtual channels.
//!
//! A packet first goes along x, then y, then z. In each ring it takes the shorter way, and the way up if both are equal.
//! The link between the last and the first node of a ring is the dateline. While a packet still has to cross the dateline,
//! it uses virtual channel 0, otherwise virtual channel 1. So no cycle of channels can wait for each other:
//!
//! - Rings of different axes: a packet never returns to an earlier axis.
//! - One ring and direction: channel 1 of the dateline is never used, and a packet that leaves channel 0 never returns to
//!   it in this ring. No packet uses channel 0 just after the dateline. So both chains of channels have an end.
//!
//! The next hop depends on the present node and the destination only, so a kernel needs no state for a route.

use crate::Shape;

/// One of the six links of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Direction {
    /// 0, 1, 2: x, y, z.
    pub axis: u8,
    /// Towards larger coordinates.
    pub up: bool,
}

/// A step of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// The node that sends.
    pub from: u32,
    /// The link that it uses.
    pub direction: Direction,
    /// Virtual channel of that link: 0 if the dateline of the ring is still ahead, otherwise 1.
    pub channel: u8,
    /// The node that receives.
    pub to: u32,
}

/// The next step from `at` to `to`; `None` if the packet has arrived. Numbers are taken modulo the number of nodes.
#[must_use]
pub fn next_hop(torus: Shape, at: u32, to: u32) -> Option<Hop> {
    let (mut here, there) = (torus.coords(at), torus.coords(to));
    let from = torus.number(here);
    let axis = (0..3).find(|&axis| here[axis] != there[axis])?;
    let (side, now, end) = (torus.sides()[axis], here[axis], there[axis]);
    let up_hops = if end > now { end - now } else { side - now + end };
    let up = 2 * up_hops <= side;
    let is_crossed = if up { now < end } else { now > end };
    here[axis] = if up { now + 1 } else { now + side - 1 };
    Some(Hop {
        from,
        direction: Direction { axis: axis as u8, up },
        channel: u8::from(is_crossed),
        to: torus.number(here),
    })
}

/// The route between two nodes: as many steps as [`Shape::hops`] counts.
pub fn route(torus: Shape, from: u32, to: u32) -> impl Iterator<Item = Hop> {
    std::iter::successors(next_hop(torus, from, to), move |hop| next_hop(torus, hop.to, to))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn pairs(torus: Shape) -> impl Iterator<Item = (u32, u32)> {
        (0..torus.nodes()).flat_map(move |from| (0..torus.nodes()).map(move |to| (from, to)))
    }

    fn shapes(most: u32) -> impl Iterator<Item = Shape> {
        let sides = (1..=most).flat_map(move |x| (1..=most).map(move |y| (x, y)));
        sides.flat_map(move |(x, y)| (1..=most).map(move |z| [x, y, z])).filter_map(|s| Shape::new(s).ok())
    }

    #[test]
    fn every_route_is_a_shortest_one_and_arrives() {
        for torus in shapes(5).chain(Shape::new([8, 4, 2])) {
            for (from, to) in pairs(torus) {
                let hops: Vec<Hop> = route(torus, from, to).collect();
                assert_eq!(hops.len() as u32, torus.hops(torus.coords(from), torus.coords(to)));
                assert_eq!(hops.last().map_or(from, |hop| hop.to), to);
                assert!(hops.is_sorted_by_key(|hop| hop.direction.axis));
                assert!(hops.windows(2).all(|two| two[0].to == two[1].from));
            }
        }
    }

    type Channel = (u32, Direction, u8);

    /// Channels that a packet may wait for while it holds another one.
    fn dependencies(torus: Shape, channel: impl Fn(&Hop) -> Channel) -> HashMap<Channel, HashSet<Channel>> {
        let mut graph: HashMap<Channel, HashSet<Channel>> = HashMap::new();
        for (from, to) in pairs(torus) {
            let all: Vec<Channel> = route(torus, from, to).map(|hop| channel(&hop)).collect();
            for two in all.windows(2) {
                graph.entry(two[0]).or_default().insert(two[1]);
            }
        }
        graph
    }

    /// Takes away channels that wait for none, until none is left (or those on cycles are).
    fn has_cycle(mut graph: HashMap<Channel, HashSet<Channel>>) -> bool {
        loop {
            let before = graph.len();
            let waiting: HashSet<Channel> = graph.keys().copied().collect();
            graph.retain(|_, next| next.iter().any(|channel| waiting.contains(channel)));
            if graph.len() == before {
                return before > 0;
            }
        }
    }

    /// Dally and Seitz: a network whose channel dependency graph has no cycle is free of deadlock.
    #[test]
    fn the_channel_dependency_graph_has_no_cycle() {
        let long = [[16, 2, 2], [2, 9, 3], [8, 8, 2], [8, 4, 4], [8, 8, 8]];
        let all = long.into_iter().chain((6..=64).map(|ring| [1, ring, 1]));
        for torus in shapes(5).chain(all.filter_map(|s| Shape::new(s).ok())) {
            let graph = dependencies(torus, |hop| (hop.from, hop.direction, hop.channel));
            assert!(!has_cycle(graph), "{torus}");
        }
    }

    #[test]
    fn one_channel_alone_would_have_a_cycle() {
        let ring = Shape::new([8, 1, 1]).expect("a shape");
        assert!(has_cycle(dependencies(ring, |hop| (hop.from, hop.direction, 0))));
    }
}
