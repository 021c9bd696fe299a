// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of noise: injected, recorded, compared.

use colony_inject::leibniz::{Amount, CpuNoise, LeibnizPlan, LeibnizReport};
use colony_inject::noise_table::{NoiseRow, NoiseTable, TablePlan};
use colony_inject::report::{CpuInjection, VictimView};
use colony_inject::{
    CpuMap, DetourPlan, DetourReport, Injection, Intervals, Phase, Quantiles, ReplayPlan, ReplayReport,
    Target,
};
use colony_node::class::Class;
use colony_trace::diff::Diff;
use colony_trace::summary::Summary;
use colony_trace::{Detour, Source, Trace, TraceMeta, periodic};

use crate::{HOSTILE, LONG_NS, MANY, WARNING, check, node, windows};

fn injection() -> Injection {
    let cpu = |cpu| CpuInjection {
        cpu,
        made: MANY,
        missed: MANY,
        cut: MANY,
        duty_asked: 0.123_456,
        duty: 0.123_456,
        cpu_share: 0.123_456,
        spin_error_ns: quantiles(),
        late_ns: quantiles(),
    };
    let victim = |cpu| VictimView {
        cpu,
        observed_s: 3600.0,
        had_cpu: 0.5,
        made: MANY,
        seen: MANY,
        buried: MANY,
        asked_per_s: 49_999.9,
        seen_per_s: 49_999.9,
        length_ns: quantiles(),
        interval_ns: quantiles(),
        foreign: MANY,
    };
    Injection {
        class: Class::Fifo(98),
        not_real_time: Some(WARNING.into()),
        start_ns: 0,
        elapsed_s: 86_400.0,
        stopped: false,
        cpus: vec![cpu(0), cpu(4095)],
        check: vec![victim(0), victim(4095)],
        warnings: vec![WARNING.into()],
        node: node(),
    }
}

#[test]
fn injected_detours_and_a_replayed_trace() {
    let plan = DetourPlan {
        length_ns: 123_456_789,
        interval_ns: LONG_NS,
        intervals: Intervals::Exponential,
        phase: Phase::Aligned,
        seed: u64::MAX,
        node: u32::MAX,
        on: Target::default(),
        duration_ns: LONG_NS,
        check_ns: 0,
    };
    let schema = String::new();
    let text = colony_view::injection::detours(&DetourReport {
        schema: schema.clone(),
        plan,
        injection: injection(),
    });
    check(&text);
    assert!(text.contains("asked for: 123 ms every 3600 s, phase aligned"), "{text}");
    let plan = ReplayPlan {
        node: 0,
        map: CpuMap::Same,
        speed: 1.0,
        again: false,
        on: Target::default(),
        duration_ns: None,
        check_ns: 0,
    };
    check(&colony_view::injection::replay(&ReplayReport {
        schema,
        plan,
        trace_s: 86_400.0,
        cpus: (0..64).map(|c| (c, usize::from(c) + 1000)).collect(),
        left_out: Vec::new(),
        injection: injection(),
    }));
}

#[test]
fn the_noise_daemon_and_its_table() {
    let cpu = CpuNoise {
        cpu: 4095,
        calculations: MANY,
        terms: u64::MAX,
        mean_calculation_ns: 1e12,
        mean_elapsed_ns: 1e12,
        noise: 0.951_234,
        noise_long_run: 0.951_234,
        cpu_time_ns: LONG_NS,
        cpu_share: 0.951_234,
    };
    check(&colony_view::injection::leibniz(&LeibnizReport {
        schema: String::new(),
        plan: LeibnizPlan { amount: Amount::Noise(0.95), ..LeibnizPlan::default() },
        terms_per_s: 1.234e9,
        max_terms: 1 << 48,
        noise_asked: 0.95,
        elapsed_s: 86_400.0,
        stopped: false,
        cpus: vec![cpu],
        warnings: vec![WARNING.into()],
        node: node(),
    }));
    let row = NoiseRow {
        max_terms: 1 << 48,
        bgl_max_terms: 1 << 48,
        predicted: 0.351_234,
        measured: 0.351_234,
        long_run: 0.351_234,
        calculations: MANY,
        published: Some("approximately 21%".into()),
    };
    check(&colony_view::injection::noise_table(&NoiseTable {
        schema: String::new(),
        plan: TablePlan::default(),
        cpu: 4095,
        terms_per_s: 1.234e9,
        rows: vec![row],
        node: node(),
    }));
}

/// Ten seconds of two CPUs: a tick, and a thread with a hostile name.
fn trace(detour_ns: u64) -> Trace {
    let detours = (0..20_000u64).map(|i| Detour {
        node: 0,
        cpu: (i % 2) as u16,
        start_ns: (i / 2 * 1_000_000) as i64,
        duration_ns: detour_ns + i % 7 * 100,
        source: (i % 5 == 0).into(),
    });
    Trace {
        meta: TraceMeta {
            observed_s: 10.0,
            threshold_ns: 100,
            cpus: (0..2).collect(),
            node: Some(node()),
            ..TraceMeta::default()
        },
        sources: vec![Source::Irq("local_timer".into()), Source::Thread(HOSTILE.into())],
        detours: detours.collect(),
    }
}

#[test]
fn a_trace_and_two_of_them_compared() {
    let t = trace(1500);
    let findings = periodic::of_trace(&t);
    let text = colony_view::trace::summary(&t.meta, &Summary::of(&t, Some(windows())), Some(&findings));
    check(&text);
    assert!(text.contains("favored windows:") && text.contains("periodic: "), "{text}");
    let mut other = trace(900_000);
    other.meta.threshold_ns = 5000;
    let diff = Diff::of(&t, &other).expect("comparable");
    check(&colony_view::trace::diff(&diff));
}

fn quantiles() -> Quantiles {
    Quantiles { count: MANY, min: 1, p50: 123_456, p99: 987_654_321, max: LONG_NS, mean: 1e9 }
}
