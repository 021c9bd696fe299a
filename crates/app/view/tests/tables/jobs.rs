// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of jobs: runs, spare cores, pages.

use colony_client::{AgentStats, Backend, CpuTimes, ExtStats, Waited};
use colony_pages::{
    Counted, Faults, How, Mode, Moved, PagePolicy, PagesReport, Sample, Segment, SegmentBytes, Support,
};
use colony_sched::proof::{Deferred, Proof, ProofSource, WindowTimes};
use colony_sched::run::{Ending, RunReport};
use colony_sched::spare::{Arrivals, Partition, SettingChange, SpareReport, Staying};
use colony_stats::{Bucket, Distribution};

use crate::{HOSTILE, LONG_NS, MANY, WARNING, all_cpus, check, windows};

#[test]
fn a_run() {
    let times = WindowTimes {
        observed_ns: LONG_NS,
        job_ns: LONG_NS - 1,
        stolen_ns: 123_456_789,
        contended_ns: LONG_NS - 2,
        waking_ns: 999_999,
        filled_ns: 0,
        idle_ns: 0,
        interrupts_ns: 123_456_789_012,
    };
    let thread = |i: u64| Deferred {
        comm: format!("{i}{HOSTILE}"),
        favored_ns: LONG_NS,
        regular_ns: LONG_NS,
        times: MANY,
    };
    let buckets = (4..40).map(|i| Bucket { up_to_ns: 1 << i, count: MANY >> (i % 30) }).collect();
    let lateness = Distribution {
        count: MANY,
        p50_ns: 123_456,
        p99_ns: LONG_NS,
        max_ns: LONG_NS,
        buckets,
        ..Default::default()
    };
    let agent = AgentStats {
        edges: MANY,
        missed: MANY,
        lateness,
        switches: MANY,
        tasks: MANY,
        cpu_ns: LONG_NS,
        wall_ns: LONG_NS,
        ..AgentStats::default()
    };
    let waited =
        |i: u64| Waited { comm: format!("{i}{HOSTILE}"), times: MANY, total_ns: LONG_NS, max_ns: LONG_NS };
    let times_of_cpu =
        CpuTimes { job_ns: LONG_NS, filled_ns: LONG_NS, exempt_ns: LONG_NS, ..CpuTimes::default() };
    let sched_ext = ExtStats {
        favored: times_of_cpu,
        edges: MANY,
        missed: MANY,
        lateness: agent.lateness.clone(),
        favored_windows: MANY,
        windows_hit: MANY,
        worst_window_ns: LONG_NS,
        ticks_favored: MANY,
        ticks_regular: MANY,
        deferred: (0..30).map(waited).collect(),
        ..ExtStats::default()
    };
    let report = |source, agent| RunReport {
        schema: "colony.run/1".into(),
        command: vec!["true".into()],
        windows: windows(),
        backend: Backend::Agent,
        cpus: all_cpus(),
        ending: Ending::Exited(0),
        wall_ns: LONG_NS,
        job_cpu_ns: LONG_NS,
        proof: Proof {
            source,
            favored: times,
            regular: times,
            threads: (0..30).map(thread).collect(),
            notes: vec![WARNING.into()],
        },
        agent,
        sched_ext: Some(sched_ext.clone()),
        spare: Some(spare()),
        pages: Some(pages()),
        left_running: (4_000_000..4_000_030).collect(),
        warnings: vec![WARNING.into(), HOSTILE.into()],
    };
    check(&colony_view::run::render(&report(ProofSource::Bpf, Some(agent))));
    let text = colony_view::run::render(&report(ProofSource::Schedstat, None));
    check(&text);
    assert!(text.contains("schedstat"));
}

fn spare() -> SpareReport {
    let row = |i: usize| Arrivals {
        name: format!("{i} {HOSTILE}"),
        before_per_s: 123_456_789.0,
        count: MANY,
        per_s: 123_456_789.0,
    };
    let setting = |refused: Option<&str>| SettingChange {
        rule: "irq-movable".into(),
        setting: HOSTILE.into(),
        refused: refused.map(str::to_owned),
    };
    SpareReport {
        spare: all_cpus(),
        partition: Partition::Balanced,
        fallbacks: vec![WARNING.into(), HOSTILE.into()],
        settings: vec![setting(None), setting(Some(HOSTILE))],
        left: vec![("nohz-full".into(), HOSTILE.into())],
        moved: usize::MAX,
        brought_back: MANY,
        staying: (0..30)
            .map(|i| Staying { name: format!("{i}{HOSTILE}"), count: i, reason: HOSTILE.into() })
            .collect(),
        interrupts: (0..30).map(row).collect(),
        not_undone: vec![HOSTILE.into()],
    }
}

/// The largest values, and every text that is printed.
fn pages() -> PagesReport {
    let segment = |segment| SegmentBytes { segment, resident: MANY, huge: MANY / 2, medium: Some(MANY / 4) };
    PagesReport {
        policy: PagePolicy::Huge,
        node: Support {
            huge_bytes: 2 << 20,
            all: Some(Mode::Madvise),
            huge: Some(Mode::Inherit),
            medium: None,
        },
        moved: vec![Moved { segment: Segment::Text, start: 1 << 46, bytes: MANY, how: How::Copied }],
        sample: Some(Sample {
            at_ns: LONG_NS,
            processes: 4096,
            segments: Segment::ALL.map(segment).to_vec(),
        }),
        faults: Faults { minor: MANY, major: MANY },
        dtlb_misses: Counted::NotCounted(WARNING.into()),
        dtlb_event: None,
        shortage: None,
        perf_map: Some("/tmp/perf-4194304.map".into()),
        warnings: vec![WARNING.into()],
    }
}
