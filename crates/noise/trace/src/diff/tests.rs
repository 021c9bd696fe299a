// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::trace::synthetic::{any_trace, poisson};
use proptest::prelude::*;

const COMMON: [Figure; 5] =
    [Figure::StolenShare, Figure::DetoursPerS, Figure::P50Ns, Figure::P99Ns, Figure::MaxNs];

#[test]
fn the_same_noise_shows_no_difference() {
    let mut held: BTreeMap<Figure, u32> = BTreeMap::new();
    for seed in 0..100 {
        let before = poisson(2 * seed, 2, 10.0, 100.0, 1.0);
        let after = poisson(2 * seed + 1, 2, 10.0, 100.0, 1.0);
        let diff = Diff::of(&before, &after).expect("timed");
        assert!(diff.warnings.is_empty(), "{:?}", diff.warnings);
        for c in diff.changes {
            let holds = c.verdict == Verdict::NoDifferenceShown;
            *held.entry(c.figure).or_default() += u32::from(holds);
        }
    }
    assert!(held.len() == 8 && held.values().all(|n| *n >= 90), "of 100 each: {held:?}");
}

#[test]
fn halved_noise_is_an_improvement_and_doubled_is_worse() {
    for seed in 0..5 {
        let loud = poisson(2 * seed, 2, 10.0, 200.0, 1.0);
        let quiet = poisson(2 * seed + 1, 2, 10.0, 200.0, 0.5);
        let diff = Diff::of(&loud, &quiet).expect("timed");
        let longest = diff.get(&Figure::MaxNs).expect("compared");
        assert_eq!((longest.verdict, longest.interval), (Verdict::Improved, None));
        for figure in [Figure::StolenShare, Figure::P50Ns, Figure::P99Ns] {
            let c = diff.get(&figure).expect("compared");
            assert_eq!(c.verdict, Verdict::Improved, "{c:?}");
            assert!((c.difference.expect("both") / c.before.expect("detours") + 0.5).abs() < 0.15, "{c:?}");
            let (low, high) = c.interval.expect("many detours");
            let difference = c.difference.expect("both have detours");
            assert!(low <= difference && difference <= high, "{c:?}");
        }
        assert_eq!(diff.get(&Figure::DetoursPerS).expect("compared").verdict, Verdict::NoDifferenceShown);
        assert_eq!(diff.changes.iter().filter(|c| matches!(c.figure, Figure::Source(_))).count(), 3);
        let back = Diff::of(&quiet, &loud).expect("timed");
        assert_eq!(back.get(&Figure::StolenShare).expect("compared").verdict, Verdict::Worse);
    }
}

#[test]
fn figures_are_those_of_the_summary() {
    let (a, b) = (poisson(1, 3, 10.0, 300.0, 1.0), poisson(2, 3, 10.0, 300.0, 1.0));
    let diff = Diff::of(&a, &b).expect("timed");
    let sum = crate::summary::Summary::of(&a, None);
    let figures: Vec<f64> =
        COMMON.iter().map(|f| diff.get(f).expect("compared").before.expect("detours")).collect();
    let expected = [
        sum.total.stolen_share,
        sum.total.per_s,
        sum.total.p50_ns.map(|ns| ns as f64),
        sum.total.p99_ns.map(|ns| ns as f64),
        sum.total.max_ns.map(|ns| ns as f64),
    ]
    .map(|figure| figure.expect("detours in a known time"));
    for (figure, expected) in figures.iter().zip(expected) {
        assert!((figure / expected - 1.0).abs() < 0.02, "{figures:?} {expected:?}");
    }
}

#[test]
fn different_thresholds_are_brought_together_with_a_warning() {
    let a = poisson(1, 2, 5.0, 200.0, 1.0);
    let mut b = a.clone();
    b.meta.threshold_ns = 1000;
    b.detours.retain(|d| d.duration_ns >= 1000);
    let diff = Diff::of(&a, &b).expect("timed");
    assert!(diff.warnings.iter().any(|w| w.contains("100 ns and 1.00 µs")), "{:?}", diff.warnings);
    assert_eq!(diff.threshold_ns, 1000);
    for c in &diff.changes {
        assert!(
            c.difference.expect("both").abs() <= 1e-12 * c.before.expect("detours").abs()
                && c.verdict == Verdict::NoDifferenceShown,
            "{c:?}"
        );
    }
}

#[test]
fn traces_made_differently_are_warned_of() {
    let a = poisson(1, 2, 5.0, 50.0, 1.0);
    let mut b = poisson(2, 1, 1.0, 50.0, 1.0);
    b.meta.observer = None;
    b.meta.dropped = 7;
    let text = Diff::of(&a, &b).expect("timed").warnings.join("\n");
    for part in ["scheduling class", "number of CPUs", "much shorter", "ring: 7"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    b.meta.observed_s = 0.0;
    let error = Diff::of(&a, &b).expect_err("no time").to_string();
    assert!(error.contains("second trace"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_two_traces_compare(a in any_trace(50), b in any_trace(50)) {
        if let Ok(diff) = Diff::of(&a, &b) {
            prop_assert!(diff.changes.iter().filter_map(|c| c.interval).all(|(low, high)| low <= high));
            let json = serde_json::to_string(&diff).expect("finite");
            prop_assert_eq!(serde_json::from_str::<Diff>(&json).expect("own JSON"), diff);
        }
    }
}

#[test]
fn traces_of_other_cpus_have_a_warning() {
    let (a, mut b) = (poisson(1, 2, 10.0, 300.0, 1.0), poisson(2, 2, 10.0, 300.0, 1.0));
    b.meta.cpus = "2-3".parse().expect("CPUs");
    b.detours.iter_mut().for_each(|d| d.cpu += 2);
    let warnings = Diff::of(&a, &b).expect("timed").warnings.join("\n");
    assert!(warnings.contains("the set of CPUs differs: 0-1 and 2-3"), "{warnings}");
}
