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

/// A static program of the fixtures.
fn fixture(folder: &Path, name: &str) -> String {
    let fixture = folder.join(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fixtures");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-static-pie", "-fno-toplevel-reorder", "-o"]).arg(&fixture);
    assert!(cc.arg(sources.join(format!("{name}.c"))).status().expect("cc is there").success());
    fixture.to_str().expect("a path").to_owned()
}

#[test]
fn a_node_without_a_free_large_page_runs_the_program_and_the_report_says_so() {
    let folder = tempfile::tempdir().expect("temp dir");
    let programs = ["segments", "scatter"].map(|name| fixture(folder.path(), name));
    let Some(vm) = node_with(&programs.each_ref().map(String::as_str)) else { return };
    let vm = collecting(vm.cpus(2).accel(Accel::SingleThread), &["before", "after"]);
    let out = sh(
        &vm,
        r#"
        echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
        echo 0 > /proc/sys/vm/compact_unevictable_allowed
        echo 4096 > /proc/sys/vm/min_free_kbytes
        echo 1000000 > /proc/sys/vm/max_map_count
        pages() {
            colony run --backend none --pages huge --json -- segments 0 > /tmp/out
            head -n 1 /tmp/out
            tail -n 1 /tmp/out > /tmp/$1.json
        }
        pages before
        scatter > /tmp/scatter &
        i=0; until grep -q scattered /tmp/scatter; do sleep 0.1; i=$((i+1)); [ $i -lt 6000 ]; kill -0 $!; done
        pages after
        "#,
    );
    let text = out.text();
    let sums: Vec<&str> = text.lines().filter(|l| l.parse::<u64>().is_ok()).collect();
    assert!(sums.len() == 2 && sums[0] == sums[1], "other results: {text}");
    let [before, after] = ["before", "after"].map(|name| report(&out, name));
    assert!(after.ending == before.ending, "{after:?}");
    let [before, after] = [before, after].map(|r| r.pages.expect("pages were asked for"));
    let no_page_is_free = |r: &PagesReport| {
        let says = |w: &&String| w.contains("no large page is free") || w.contains("gave no large page");
        (r.warnings.iter().filter(says).count(), r.warnings.iter().any(|w| w.contains("huge pages ran out")))
    };
    assert_eq!(no_page_is_free(&before), (0, false), "{before:?}");
    let (segments, faults) = no_page_is_free(&after);
    assert!(segments > 0 && faults, "{after:?}");
}

#[test]
fn the_nodes_settings_decide_what_a_program_gets_and_the_report_says_it() {
    let folder = tempfile::tempdir().expect("temp dir");
    let Some(vm) = node_with(&[&fixture(folder.path(), "segments")]) else { return };
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
