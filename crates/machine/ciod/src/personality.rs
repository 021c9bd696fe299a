// SPDX-License-Identifier: MIT OR Apache-2.0
//! Personalities: the supervisor computes each node's place in the machine, and the worker only passes it on.

use colony_fship::layout::Personality;

use crate::JobSpec;

/// Personalities of the job's nodes, in the order of the nodes. Coordinates count along x first, then y, then z.
pub(crate) fn personalities(spec: &JobSpec, nodes: u32) -> impl Iterator<Item = Personality> {
    let dims = spec.torus.unwrap_or([nodes, 1, 1]);
    let [x, y, _] = dims.map(|d| d.max(1));
    let pset = spec.pset.unwrap_or(nodes).max(1);
    (0..nodes).map(move |node| Personality {
        node,
        nodes,
        dims,
        coords: [node % x, node / x % y, node / x / y],
        pset: node / pset,
        in_pset: node % pset,
        host: host_name(node),
    })
}

/// `nodeN`, with at least one zero behind it.
fn host_name(node: u32) -> [u8; 32] {
    let mut host = [0; 32];
    for (to, from) in host.iter_mut().take(31).zip(format!("node{node}").bytes()) {
        *to = from;
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_in_the_torus_are_distinct() {
        let spec = JobSpec { torus: Some([2, 3, 4]), pset: Some(8), ..JobSpec::new("/bin/a") };
        let all: Vec<_> = personalities(&spec, 24).collect();
        let mut coords: Vec<_> = all.iter().map(|p| p.coords).collect();
        assert_eq!(coords[1], [1, 0, 0], "x first");
        assert_eq!(coords[23], [1, 2, 3]);
        coords.sort_unstable();
        coords.dedup();
        assert_eq!(coords.len(), 24);
        assert_eq!((all[17].pset, all[17].in_pset), (2, 1));
        assert_eq!((all[17].node, all[17].nodes, &all[17].host[..7]), (17, 24, &b"node17\0"[..]));
    }

    #[test]
    fn without_a_torus_all_nodes_are_in_a_row_and_in_one_pset() {
        let all: Vec<_> = personalities(&JobSpec::new("/bin/a"), 3).collect();
        assert_eq!((all[2].dims, all[2].coords), ([3, 1, 1], [2, 0, 0]));
        assert_eq!((all[2].pset, all[2].in_pset), (0, 2));
    }
}
