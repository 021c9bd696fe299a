// SPDX-License-Identifier: MIT OR Apache-2.0
//! SC06 paper, Table 2: what the operating system costs one node.

use super::{Cited, Context, Document, Experiment, Method, Ours, settings};
use crate::StudyError;
use crate::compute_node::{self, Pair};
use crate::results::{Basis, Published};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "cnk",
        what: "serial NAS kernels on the compute node kernel and on Linux, on one node: time counted in instructions, \
               and page faults; small classes",
        run: |e, c| run(e, c, compute_node::SMALL, 60.0),
        ..TABLE_2
    },
    Experiment {
        name: "cnk-a",
        what: "the same in the published class A, and in class W",
        run: |e, c| run(e, c, compute_node::LARGE, 900.0),
        ..TABLE_2
    },
];

const TABLE_2: Experiment = Experiment {
    name: "",
    document: Document::BlueGene2006,
    place: "Table 2",
    what: "",
    published: &[
        "It is clear that the performance benefit of CNK can be substantial, with the execution time increasing up to \
         300% for the IS benchmark.",
        "is A: CNK 5.7 s, Linux 23.0 s (+303.0 %)",
        "ep.A: CNK 172.6 s, Linux 177.2 s (+2.7 %)",
        "cg A: CNK 27.1 s, Linux 32.3 s (+19.2 %)",
        "lu A: CNK 380.3 s, Linux 504.0 s (+32.5 %)",
        "sp.A: CNK 375.0 s, Linux 517.4 s (+38.0 %)",
        "bt A: CNK 522.6 s, Linux 613.0 s (+17.3 %)",
    ],
    method: Method::Compute,
    settings: settings::NONE,
    run: |_, _| Ok(Vec::new()),
};

fn run(
    e: &Experiment,
    c: &mut Context<'_>,
    kernels: &[(&str, &str)],
    seconds: f64,
) -> Result<Vec<Published>, StudyError> {
    const WHAT: &str = "running the NAS kernels on a compute node and on Linux";
    let Some(node) = c.node.as_deref_mut() else { return Ok(Vec::new()) };
    let pairs = c.progress.during(WHAT, seconds, || node.compute_node(kernels))?;
    Ok(pairs.iter().flat_map(|pair| rows(e, pair)).collect())
}

/// Time more on Linux, as published; `None` of other kernels and classes.
fn published(kernel: &str, class: &str) -> Option<Cited> {
    let (text, share) = match (kernel, class) {
        ("is", "A") => ("+303.0 %", 3.03),
        ("ep", "A") => ("+2.7 %", 0.027),
        ("cg", "A") => ("+19.2 %", 0.192),
        ("lu", "A") => ("+32.5 %", 0.325),
        ("sp", "A") => ("+38.0 %", 0.38),
        ("bt", "A") => ("+17.3 %", 0.173),
        _ => return None,
    };
    Some(Cited::value(text, share, Basis::Measured))
}

fn rows(e: &Experiment, pair: &Pair) -> Vec<Published> {
    const EMULATED: &str = "the emulator has no cost for misses of TLB and cache, which made the published \
         difference: what is left is what the systems themselves do";
    let name = format!("{}.{}", pair.kernel, pair.class);
    let measured = format!(
        "one static program, one CPU, QEMU with time counted in instructions; Linux {}; again: colony study {}",
        pair.release, e.name
    );
    let more = pair.linux.seconds / pair.node.seconds - 1.0;
    let count = |what: &str, n: u64| e.row(format!("{name}: {what}"), Ours::Count(n), &measured);
    let time = |what: &str, s: f64| e.row(format!("{name}: {what}"), Ours::Ns(s * 1e9), &measured);
    vec![
        time("time on the compute node", pair.node.seconds),
        time("time on Linux", pair.linux.seconds),
        e.beside(
            format!("{name}: more time on Linux"),
            published(&pair.kernel, &pair.class),
            Ours::Share(more),
            &format!("{measured}; {EMULATED}"),
        ),
        count("instructions on the compute node", pair.node.instructions()),
        count("instructions on Linux", pair.linux.instructions()),
        count("page faults on the compute node, whole run", pair.node.faults_whole.all()),
        count("page faults on Linux, whole run", pair.linux.faults_whole.all()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute_node::{Faults, Run};
    use crate::format;

    #[test]
    fn a_pair_is_a_row_of_the_table() {
        let run = |seconds, minor| Run {
            verified: true,
            seconds,
            mops: 1.0,
            faults: Faults::default(),
            faults_whole: Faults { minor, major: 0 },
        };
        let pair = Pair {
            kernel: "is".into(),
            class: "S".into(),
            node: run(2.0, 0),
            linux: run(2.5, 213),
            release: "7.3".into(),
        };
        let rows = rows(&EXPERIMENTS[0], &pair);
        let value = |what: &str| rows.iter().find(|r| r.what == what).and_then(|r| r.value).expect(what);
        assert!((value("is.S: more time on Linux") - 0.25).abs() < 1e-12);
        assert_eq!(value("is.S: instructions on Linux"), 1.25e9);
        assert_eq!(value("is.S: page faults on Linux, whole run"), 213.0);
        assert_eq!((rows[2].published.as_str(), rows[2].error()), ("–", None), "published of class A");
        let of_a = super::rows(&EXPERIMENTS[0], &Pair { class: "A".into(), ..pair });
        assert_eq!((of_a[2].published.as_str(), of_a[2].basis), ("+303.0 %", Some(Basis::Measured)));
        assert_eq!(format::count(213), rows[6].ours);
    }
}
