// SPDX-License-Identifier: MIT OR Apache-2.0
//! Triggers of load balancing, and the cost model that compares the gain of a placement with its migrations.

use serde::{Deserialize, Serialize};

use crate::quality::Quality;

/// Condition under which a strategy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// At every point where the program says that its objects can move.
    AtSync,
    /// At every so many of those points.
    Periodic,
    /// At every such point; objects move only if the cost model says that it pays.
    WhenItPays,
}

/// The cost of migrations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostModel {
    /// Bytes a second that one PE sends and receives of objects' states.
    pub bandwidth_bytes_per_s: f64,
    /// Seconds that one migrated object costs beside its bytes: packing, allocating, telling its new place.
    pub per_object_s: f64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self { bandwidth_bytes_per_s: 1e9, per_object_s: 20e-6 }
    }
}

/// Gain and cost of a new placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Seconds that the steps until the next decision become shorter by.
    pub gain_s: f64,
    /// Seconds that the strategy takes, and the migrations of the PE that has most of them.
    pub cost_s: f64,
    /// True if the gain exceeds the cost.
    pub pays: bool,
}

impl CostModel {
    /// Compares the gain and the cost of the migrations from the placement `before` to the placement `after`, if `steps`
    /// follow until the next decision and the strategy took `strategy_s` seconds. PEs migrate at the same time, so the
    /// cost is that of the PE with most bytes. The objects are counted as if evenly divided among `pes` PEs.
    #[must_use]
    pub fn verdict(
        &self,
        before: &Quality,
        after: &Quality,
        steps: f64,
        strategy_s: f64,
        pes: u32,
    ) -> Verdict {
        let gain_s = (before.max_s - after.max_s) * steps;
        let objects_one_pe = (2.0 * after.moved_objects as f64 / f64::from(pes.max(1))).ceil();
        // moves of unknown cost never pay
        let bytes_s =
            after.moved_bytes_one_pe.map_or(f64::INFINITY, |bytes| bytes as f64 / self.bandwidth_bytes_per_s);
        let cost_s = strategy_s + bytes_s + objects_one_pe * self.per_object_s;
        Verdict { gain_s, cost_s, pays: gain_s > cost_s && after.moved_objects > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quality(max_s: f64, moved_objects: u64, moved_bytes_one_pe: u64) -> Quality {
        let moved_bytes_one_pe = Some(moved_bytes_one_pe);
        let moved_bytes = moved_bytes_one_pe;
        Quality {
            max_s,
            ideal_s: 1.0,
            imbalance: max_s,
            moved_objects,
            moved_bytes,
            moved_bytes_one_pe,
            hop_bytes: 0.0,
        }
    }

    #[test]
    fn objects_move_only_if_the_gain_exceeds_the_cost() {
        let model = CostModel { bandwidth_bytes_per_s: 1e9, per_object_s: 0.0 };
        let (before, after) = (quality(1.5, 0, 0), quality(1.0, 10, 2_000_000_000));
        // 2 s of bytes and 0.5 s of strategy against 0.5 s a step
        assert!(!model.verdict(&before, &after, 5.0, 0.5, 4).pays);
        assert!(model.verdict(&before, &after, 6.0, 0.5, 4).pays);
        assert_eq!(model.verdict(&before, &after, 6.0, 0.5, 4).cost_s, 2.5);
    }

    #[test]
    fn a_placement_that_gains_nothing_never_pays() {
        let model = CostModel::default();
        assert!(!model.verdict(&quality(1.0, 0, 0), &quality(1.0, 0, 0), 1e9, 0.0, 1).pays);
        assert!(!model.verdict(&quality(1.0, 0, 0), &quality(1.1, 5, 0), 1e9, 0.0, 1).pays);
    }

    proptest! {
        #[test]
        fn more_steps_and_fewer_bytes_never_turn_a_yes_into_a_no(
            before in 1.0f64..10.0, after in 1.0f64..10.0, bytes in 0u64..1 << 40, steps in 1.0f64..1e4, time in 0.0f64..10.0,
        ) {
            let (model, from) = (CostModel::default(), quality(before, 0, 0));
            let verdict = model.verdict(&from, &quality(after, 10, bytes), steps, time, 64);
            let longer = model.verdict(&from, &quality(after, 10, bytes), steps * 2.0, time, 64);
            let lighter = model.verdict(&from, &quality(after, 10, bytes / 2), steps, time, 64);
            prop_assert!(!verdict.pays || (longer.pays && lighter.pays));
            prop_assert!(verdict.cost_s >= time);
        }
    }
}
