// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other programs on the job's CPUs while a figure is measured: they must not be more than while the node's noise was.

use crate::format;
use crate::neighbours::{Load, QUIET, Usage};

/// Time of further attempts at disturbed measurements, as a share of the time of the first ones.
const AGAIN: f64 = 0.25;

/// Compares the load of measurements with that of the node's own noise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Load while the noise was measured, or before; `None` if the node does not report its load.
    pub(crate) usual: Option<Load>,
    /// Seconds of further attempts.
    again_s: f64,
}

/// A measurement, and the load during it.
#[derive(Clone, Debug)]
pub(crate) struct Watched<T> {
    pub(crate) value: T,
    pub(crate) load: Option<Load>,
    /// The reason not to use it; `None` if the node was as usual.
    pub(crate) disturbed: Option<String>,
}

impl Watch {
    pub(crate) fn new(usual: Option<Load>) -> Self {
        Self { usual, again_s: 0.0 }
    }

    /// The load between two readings, and the reason not to use a measurement between them.
    pub(crate) fn judge(
        &self,
        before: Option<&Usage>,
        after: Option<&Usage>,
    ) -> (Option<Load>, Option<String>) {
        let load = after.zip(before).map(|(after, before)| after.since(before));
        let disturbed = load.as_ref().zip(self.usual.as_ref()).and_then(|(now, usual)| disturbed(now, usual));
        (load, disturbed)
    }

    /// Returns `true` if a disturbed measurement of so many seconds may be repeated.
    pub(crate) fn may_repeat(&mut self, seconds: f64, planned_s: f64) -> bool {
        let may = self.again_s + seconds <= AGAIN * planned_s;
        if may {
            self.again_s += seconds;
        }
        may
    }
}

/// The reason not to use a measurement under the load `now`; `None` if the load is about the usual one.
fn disturbed(now: &Load, usual: &Load) -> Option<String> {
    if now.others > usual.others + QUIET {
        return Some(format!(
            "other programs took {} of the job's CPUs meanwhile, {} while the node's noise was measured",
            now.text(),
            format::percent(usual.others)
        ));
    }
    (now.steal > usual.steal + QUIET).then(|| {
        format!(
            "the hypervisor took {} of the job's CPUs meanwhile, {} while the node's noise was measured",
            format::percent(now.steal),
            format::percent(usual.steal)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_above_the_usual_one_disturbs_and_is_named() {
        let of = |others, steal| Load { others, steal, ..Load::default() };
        assert_eq!(disturbed(&of(0.33, 0.01), &of(0.30, 0.0)), None);
        let programs = disturbed(&of(0.4, 0.0), &of(0.01, 0.0)).expect("disturbed");
        assert!(programs.contains("40 %") && programs.contains("1 % while"), "{programs}");
        assert!(
            disturbed(&of(0.0, 0.2), &of(0.0, 0.02)).expect("disturbed").contains("hypervisor took 20 %")
        );
    }

    #[test]
    fn attempts_end_with_their_time() {
        let mut watch = Watch::default();
        assert!(watch.may_repeat(5.0, 40.0) && watch.may_repeat(5.0, 40.0));
        assert!(!watch.may_repeat(5.0, 40.0));
    }
}
