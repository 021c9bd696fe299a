// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs of changes, alone and in sequence.

use std::time::Duration;

use colony_project::Budget;
use colony_project::changes::{Alone, Change, at_scale, costs, most_steps};
use colony_sim::noise::Detour;
use colony_sim::source::MeasuredSource;
use colony_sim::spec::Measured;
use colony_sim::{CpuNoise, NodeNoise};

const SPAN_NS: u64 = 1_000_000_000;

fn every(every_ns: u64, duration_ns: u64) -> NodeNoise {
    let detours = (1..SPAN_NS / every_ns).map(|i| Detour { start_ns: i * every_ns, duration_ns });
    NodeNoise::new(vec![CpuNoise::new(SPAN_NS, detours).expect("time is left")]).expect("a CPU")
}

fn change(sources: &[&str]) -> Change {
    Change { sources: sources.iter().map(|s| (*s).to_owned()).collect(), effort: Some(0) }
}

fn node() -> Measured {
    let noise = [
        ("large", every(10_000_000, 500_000)),
        ("small", every(5_000_000, 100_000)),
        ("tiny", every(4_000_000, 2_000)),
    ];
    Measured { sources: noise.map(|(name, noise)| MeasuredSource::named(name, noise)).into() }
}

#[test]
fn the_largest_goes_first_and_the_next_shows_only_after_it() {
    let changes = [change(&["small"]), change(&["large"]), change(&["no such"]), change(&["large", "small"])];
    let found = costs(&node(), &changes[..3], 256, Budget::UNLIMITED, || {}).expect("simulated");
    let order: Vec<usize> = found.sequence.iter().map(|s| s.change).collect();
    assert_eq!(order, [1, 0], "{found:?}");
    let (large, small) = (found.alone[1].added().expect("seen"), found.alone[0].added().expect("seen"));
    assert!(large.share > 2.0 * small.share && small.share > 0.0, "{found:?}");
    assert!(found.alone[2] == Alone::NotSeen && !found.stopped);
    let left: Vec<f64> = found.sequence.iter().map(|s| s.left.share).collect();
    assert!(found.all.share > left[0] && left[0] > left[1] && left[1] > 0.0, "{found:?}");
    // one change that takes both is the better first step, and the last
    let both = costs(&node(), &changes, 256, Budget::UNLIMITED, || {}).expect("simulated");
    assert_eq!(both.sequence.iter().map(|s| s.change).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_cheap_change_comes_before_one_that_gives_back_more_and_a_dear_one_only_if_it_gives_more() {
    let at = |effort, sources: &[&str]| Change { effort: Some(effort), ..change(sources) };
    let order = |changes: &[Change]| {
        let found = costs(&node(), changes, 256, Budget::UNLIMITED, || {}).expect("simulated");
        found.sequence.iter().map(|s| s.change).collect::<Vec<_>>()
    };
    assert_eq!(order(&[at(4, &["large", "small"]), at(0, &["large"])]), [1, 0]);
    // a boot that takes nothing away but what a move takes away
    assert_eq!(order(&[at(4, &["large"]), at(3, &["large", "small"]), at(0, &["large"])]), [2, 1]);
    // a cheap change whose gain nobody would notice does not come first
    let found = order(&[at(0, &["tiny"]), at(4, &["large", "small"])]);
    assert_eq!(found.first(), Some(&1), "{found:?}");
    // once it is worth a step, it comes before what is dearer
    assert_eq!(order(&[at(2, &["small"]), at(1, &["large"]), at(4, &["tiny"])]), [1, 0, 2]);
}

#[test]
fn a_change_that_is_not_for_the_sequence_has_a_cost_all_the_same() {
    let only = [Change { effort: None, ..change(&["large"]) }];
    let costs = costs(&node(), &only, 64, Budget::UNLIMITED, || {}).expect("simulated");
    assert!(costs.alone[0].added().is_some() && costs.sequence.is_empty());
}

#[test]
fn no_more_simulations_are_made_than_announced() {
    let changes = [change(&["small"]), change(&["large"]), change(&["tiny"])];
    let made = std::cell::Cell::new(0);
    costs(&node(), &changes, 64, Budget::UNLIMITED, || made.set(made.get() + 1)).expect("simulated");
    assert!(made.get() <= most_steps(3) && made.get() > 3, "{}", made.get());
}

#[test]
fn a_budget_that_is_over_stops_and_says_so() {
    let changes = [change(&["small"]), change(&["no such"])];
    let over = Budget::of(Duration::ZERO);
    let found = costs(&node(), &changes, 64, over, || {}).expect("simulated");
    assert!(found.stopped && found.sequence.is_empty() && found.all.share > 0.0, "{found:?}");
    assert_eq!(found.alone, [Alone::NotSimulated, Alone::NotSeen]);
    assert!(at_scale(&node(), &[], &[], &[64], over).expect("nothing").is_empty());
}

#[test]
fn noise_costs_more_on_more_nodes_and_less_after_a_change() {
    let sources = ["large", "small"].map(str::to_owned);
    let found = at_scale(&node(), &sources[..1], &sources, &[1, 256], Budget::UNLIMITED).expect("simulated");
    let share = |n: usize, of: usize| found[n].alone[of].added().expect("seen").share;
    assert_eq!(found.iter().map(|f| f.nodes).collect::<Vec<_>>(), [1, 256]);
    assert!(share(1, 0) > 2.0 * share(0, 0), "{found:?}");
    let changed = found[1].changed.expect("simulated").share;
    assert!(changed < 0.5 * found[1].all.share && changed >= 0.99 * share(1, 1), "{found:?}");
}
