// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of boots.

use std::num::NonZeroU32;

use colony_model::plan::{Boot, Plan, Sizes, Transport, plan};
use colony_model::{Machine, ModelError, PsetSize};
use proptest::prelude::*;

fn boot(shape: &str, pset: u32, fanout: u32) -> Boot {
    Boot {
        machine: Machine::new(shape.parse().expect("a shape")).expect("a machine"),
        pset: PsetSize::new(pset).expect("a size"),
        fanout: NonZeroU32::new(fanout).expect("not 0"),
        sizes: Sizes::default(),
        transport: Transport::default(),
    }
}

fn planned(shape: &str, pset: u32, fanout: u32) -> Plan {
    plan(&boot(shape, pset, fanout)).expect("a plan")
}

#[test]
fn the_largest_machine_of_blue_gene_boots_by_thirty_two_connections_of_the_service_node() {
    let all = planned("64x32x32", 64, 32);
    assert_eq!((all.nodes, all.io_nodes, all.midplanes, all.racks), (65_536, 1024, 128, 64));
    let steps: Vec<_> = all.steps.iter().map(|s| (s.level, s.is_compute, s.senders, s.receivers)).collect();
    assert_eq!(steps, [(1, false, 1, 32), (2, false, 31, 992), (3, true, 1024, 65_536)]);
    assert_eq!((all.messages.service_connections, all.messages.pushes), (32, 66_560));
    // 256 bytes a personality, and the state of the control daemon
    assert_eq!(all.bytes.personalities, 66_560 * 256);
    assert!(all.state_bytes <= 64 << 20, "{}", all.state_bytes);
    assert!(all.messages.service_heartbeat_bytes_per_s < 25_000.0);
    assert_eq!(all.collective_depth, 17);
}

#[test]
fn a_tree_boots_a_large_machine_sooner_than_the_service_node_alone() {
    let all = planned("64x32x32", 64, 32);
    let alone = all.fanouts.last().expect("some");
    assert_eq!((alone.fanout.get(), alone.levels), (1024, 1));
    assert!(all.reported_s < alone.reported_s / 5.0, "{} {}", all.reported_s, alone.reported_s);
    assert!(all.bytes.service < alone.service_bytes / 20);
    let same = all.fanouts.iter().find(|f| f.fanout == all.boot.fanout).expect("a power of two");
    assert_eq!((same.reported_s, same.service_bytes), (all.reported_s, all.bytes.service));
}

#[test]
fn the_bytes_of_all_steps_are_the_bytes_of_all_connections() {
    for (shape, pset, fanout) in [("2x2x2", 8, 32), ("8x8x8", 8, 3), ("64x64x64", 8, 64), ("16x8x8", 128, 1)]
    {
        let all = planned(shape, pset, fanout);
        assert_eq!(all.steps.iter().map(|s| s.bytes).sum::<u64>(), all.bytes.total, "{shape}");
        assert_eq!(all.steps.iter().map(|s| u64::from(s.receivers)).sum::<u64>(), all.messages.pushes);
        assert!(all.steps.is_sorted_by(|a, b| a.given_s < b.given_s), "{shape}");
        assert!(all.io_nodes_ready_s < all.nodes_ready_s && all.nodes_ready_s < all.reported_s);
    }
}

#[test]
fn impossible_boots_are_refused() {
    assert!(matches!(plan(&boot("2x2x2", 16, 2)), Err(ModelError::PsetTooLarge { .. })));
    let mut slow = boot("2x2x2", 8, 2);
    slow.transport.network.bytes_per_s = f64::NAN;
    assert!(matches!(plan(&slow), Err(ModelError::Transport { .. })));
}

proptest! {
    #[test]
    fn any_sizes_give_a_plan_in_finite_time(
        kernel in any::<u64>(), io_image in any::<u64>(), fanout in 1u32.., pset in 0usize..5,
    ) {
        let mut boot = boot("16x8x8", 8, fanout);
        boot.pset = PsetSize::ALL[pset];
        boot.sizes = Sizes { kernel, io_image, message: kernel, node_state: io_image };
        let all = plan(&boot).expect("a plan");
        prop_assert!(all.reported_s.is_finite() && all.reported_s >= all.nodes_ready_s);
    }
}
