// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony run --pages` under settings that tests must not give to this machine.

use std::path::Path;
use std::process::Command;

use colony_pages::{PagePolicy, PagesReport, Segment};
use colony_vm::{Accel, Outcome};

use crate::common::{collecting, node_with, report, sh};

/// Runs: setting for all sizes, setting for 64 KiB, page size that is asked for.
const RUNS: [(&str, &str, PagePolicy); 5] = [
    ("madvise", "always", PagePolicy::Base),
    ("madvise", "always", PagePolicy::Medium),
    ("madvise", "always", PagePolicy::Huge),
    ("never", "never", PagePolicy::Medium),
    ("never", "never", PagePolicy::Huge),
];

fn name(run: &(&str, &str, PagePolicy)) -> String {
    format!("{}-{}-{}", run.0, run.1, run.2.name())
}

fn pages(out: &Outcome, run: usize) -> PagesReport {
    report(out, &name(&RUNS[run])).pages.expect("pages were asked for")
}

/// Bytes of a segment on huge pages, and on pages of 64 KiB.
fn large(report: &PagesReport, segment: Segment) -> (u64, u64) {
    let sample = report.sample.as_ref().expect("a sample");
    let s = sample.of(segment).expect("every segment is there");
    (s.huge, s.medium.expect("root sees it"))
}

#[test]
fn the_nodes_settings_decide_what_a_program_gets_and_the_report_says_it() {
    let folder = tempfile::tempdir().expect("temp dir");
    let fixture = folder.path().join("segments");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fixtures/segments.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-static-pie", "-fno-toplevel-reorder", "-o"]).arg(&fixture).arg(source);
    assert!(cc.status().expect("cc is there").success());
    let Some(vm) = node_with(&[fixture.to_str().expect("a path")]) else { return };
    let names = RUNS.each_ref().map(name);
    let vm = collecting(vm.cpus(2).accel(Accel::SingleThread), &names.each_ref().map(String::as_str));
    let mut script = String::from(
        r#"
        # longer and longer, until the report has seen the memory that is touched last
        pages() {
            echo $1 > /sys/kernel/mm/transparent_hugepage/enabled
            echo $2 > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled
            for us in 8000000 30000000 60000000; do
                colony run --backend none --pages $3 --json -- segments $us sleep > /tmp/out 2> /tmp/err
                head -n 1 /tmp/out
                tail -n 1 /tmp/out > /tmp/$1-$2-$3.json
                grep -q '"heap","resident":[7-9]......,' /tmp/$1-$2-$3.json && return
            done
            cat /tmp/err; false
        }
        "#,
    );
    for (all, medium, policy) in RUNS {
        script.push_str(&format!("pages {all} {medium} {}\n", policy.name()));
    }
    let out = sh(&vm, &script);
    // the program's results do not depend on its pages
    let text = out.text();
    let mut sums = text.lines().filter(|l| l.parse::<u64>().is_ok());
    let first = sums.next().expect("a sum");
    assert!(sums.clone().count() >= RUNS.len() - 1 && sums.all(|sum| sum == first), "{text}");

    let moved = [Segment::Text, Segment::Data];
    let base = pages(&out, 0);
    for segment in [Segment::Data, Segment::Bss, Segment::Heap, Segment::Stack] {
        assert_eq!(large(&base, segment), (0, 0), "{segment:?}: {base:?}");
    }
    let medium = pages(&out, 1);
    for segment in moved.into_iter().chain([Segment::Bss]) {
        let (huge, medium_bytes) = large(&medium, segment);
        assert!(huge == 0 && medium_bytes >= 5 << 20, "{segment:?}: {medium:?}");
    }
    let huge = pages(&out, 2);
    for segment in moved.into_iter().chain([Segment::Bss]) {
        assert!(large(&huge, segment).0 >= 4 << 20, "{segment:?}: {huge:?}");
    }
    assert!([&base, &medium, &huge].iter().all(|r| r.warnings.is_empty()), "{medium:?} {huge:?}");

    let no_medium = pages(&out, 3);
    assert_eq!(large(&no_medium, Segment::Bss), (0, 0));
    assert!(no_medium.warnings[0].contains("hugepages-64kB/enabled"), "{no_medium:?}");
    let collapsed = pages(&out, 4);
    for segment in moved {
        assert!(large(&collapsed, segment).0 >= 4 << 20, "{segment:?}: {collapsed:?}");
    }
    assert_eq!(large(&collapsed, Segment::Bss).0, 0);
    assert!(collapsed.warnings[0].contains("echo madvise >"), "{collapsed:?}");
}
