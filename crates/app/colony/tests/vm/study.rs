// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study vm`: what the scheduler in the kernel is worth, from a virtual node to thousands.

use crate::common::study;

#[test]
fn windows_kept_in_the_kernel_are_worth_more_with_every_node() {
    let Some(rows) = study("vm") else { return };
    let value = |what: &str| {
        let row =
            rows.iter().find(|r| r["what"] == what).unwrap_or_else(|| panic!("no row {what}: {rows:?}"));
        assert!(row["note"].as_str().is_some_and(|n| !n.is_empty()));
        row["value"].as_f64().expect("a value")
    };
    let overhead = value("without noise, in the kernel: CPU time more than unmodified");
    assert!(overhead < 0.005, "very low: {overhead}");
    let unmodified = |what: &str| value(&format!("unmodified{what}"));
    assert!(unmodified(": stolen in favored windows") > 0.1, "the noise is there");
    assert!(unmodified(", 16,384 nodes: slowdown") > 1.5 * unmodified(", 1 node: slowdown"));
    for duty in [80, 90, 95] {
        let kernel = |what: &str| value(&format!("in the kernel, {duty} % favored{what}"));
        assert!(kernel(": stolen in favored windows") < 0.001);
        let [alone, many] = [", 1 node: slowdown", ", 16,384 nodes: slowdown"].map(kernel);
        assert!(many < 1.3 && many < 0.7 * unmodified(", 16,384 nodes: slowdown"), "{duty} %: {many}");
        // the projection of the node alone is what was measured there
        let measured = kernel(": run on the node, over the one without noise");
        assert!((alone / measured - 1.0).abs() < 0.05, "{duty} %: {alone} for {measured}");
    }
}
