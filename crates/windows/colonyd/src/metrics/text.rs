// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as OpenMetrics text.

use std::fmt;

use colony_client::Backend;
use colony_client::Mode;
use colony_client::StatsReport;
use colony_client::{CpuStats, CpuTimes};
use colony_stats::Distribution;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::totals::{Edges, Totals};

/// Threads named in `colony_deferred_thread_seconds`; the rest is one sum.
const NAMED: usize = 20;
/// The label of that rest: longer than any thread's name, so that it can be none.
const REST: &str = "all other threads";
/// Bounds of the histograms: 1 µs and its doubles up to a second. They never change, so that nodes can be added up.
const BOUNDS: u32 = 21;

/// Writes the daemon's report as OpenMetrics 1.0.
pub(crate) fn open_metrics(report: StatsReport, totals: Totals) -> String {
    let mut registry = Registry::with_prefix("colony");
    registry.register_collector(Box::new(Figures { report, totals }));
    let mut text = String::new();
    // writing to a String cannot fail
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Figures {
    report: StatsReport,
    totals: Totals,
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        self.daemon(&mut out)?;
        self.windows(&mut out)?;
        self.clock(&mut out)?;
        self.job(&mut out)?;
        self.cpus(&mut out)?;
        self.favored(&mut out)?;
        self.edges(&mut out)?;
        self.deferred(&mut out)?;
        self.agent(&mut out)
    }
}

/// Labels with their values.
type Labels<const N: usize> = [(&'static str, String); N];

/// A label less: figures of the whole node.
fn node<V>(value: V) -> [(Labels<0>, V); 1] {
    [([], value)]
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Figures {
    fn daemon(&self, out: &mut Out<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        out.0.encode_descriptor("build", "The daemon", None, MetricType::Info)?.encode_info(&version)?;
        out.seconds("uptime", "Time since the daemon started", node(seconds(self.report.uptime_ns)))
    }

    fn windows(&self, out: &mut Out<'_>) -> fmt::Result {
        let w = &self.report.windows;
        out.seconds("period", "A favored and a regular window", node(seconds(w.period_ns())))?;
        let lengths = [("favored", w.favored_ns()), ("regular", w.regular_ns())];
        let rows = lengths.map(|(window, ns)| ([("window", window.to_owned())], seconds(ns)));
        out.seconds("window", "Length of the windows", rows)?;
        let by = [("sched_ext", Backend::SchedExt), ("agent", Backend::Agent), ("nothing", Backend::None)];
        // after a job the report says what kept its windows: nothing does so now
        let now = if self.report.job.active { self.report.kept_by } else { Backend::None };
        let rows = by.map(|(name, kept)| ([("by", name.to_owned())], u64::from(now == kept)));
        out.gauge("keeper", "Backend that enforces the windows of the job: 1", rows)
    }

    fn clock(&self, out: &mut Out<'_>) -> fmt::Result {
        let c = &self.report.coordination;
        let modes = [("coordinated", Mode::Coordinated), ("own-phase", Mode::OwnPhase), ("off", Mode::Off)];
        let rows = modes.map(|(name, mode)| ([("mode", name.to_owned())], u64::from(c.mode == mode)));
        out.gauge(
            "mode",
            "How windows are timed: by the cluster's clock, by the node's own clock, or not at all: 1",
            rows,
        )?;
        let known = |ns: Option<u64>| ns.map(|ns| ([], seconds(ns)));
        out.seconds(
            "clock_error_bound",
            "What the clock may be off by, if anybody knows",
            known(c.error_bound_ns),
        )?;
        let help = "What it may be off by at most for windows to be coordinated";
        out.seconds("clock_error_limit", help, node(seconds(c.max_error_ns)))?;
        out.seconds("guard", "Guards on both sides of a favored window", node(seconds(c.guard_ns)))?;
        out.counter("clock_steps", "Times the clock was set since the daemon started", node(c.steps))?;
        let synchronised = u64::from(c.kernel.synchronised);
        out.gauge(
            "clock_synchronised",
            "Whether a clock daemon disciplines the clock and reports no error",
            node(synchronised),
        )?;
        let help = "TAI less UTC as the kernel was told; 0: nobody told it";
        out.seconds("tai_offset", help, node(c.kernel.tai_offset_s))?;
        let cluster = c.cluster.as_ref();
        let offset = cluster.map(|c| ([], c.offset_ns as f64 / 1e9));
        out.seconds(
            "cluster_offset",
            "The cluster's clock less this node's TAI, where it was estimated",
            offset,
        )?;
        out.seconds("cluster_age", "Time since that estimate", known(cluster.map(|c| c.age_ns)))
    }

    fn job(&self, out: &mut Out<'_>) -> fmt::Result {
        let job = &self.report.job;
        out.gauge(
            "job_active",
            "Whether there is a job, and a backend enforces its windows",
            node(u64::from(job.active)),
        )?;
        out.gauge("job_processes", "Processes of the job", node(job.processes.len()))?;
        out.gauge("job_tasks", "Threads of the job", node(job.tasks))?;
        out.counter("jobs", "Jobs since the daemon started", node(job.jobs))?;
        out.gauge("warnings", "Warnings in the file stats", node(self.report.warnings.len()))?;
        let real_time = self.report.sched_ext.as_ref().map_or(0, |e| e.real_time.len());
        let help =
            "Real-time tasks that may use the job's CPUs; they have priority over the sched_ext backend";
        out.gauge("real_time_tasks", help, node(real_time))
    }

    fn cpus(&self, out: &mut Out<'_>) -> fmt::Result {
        let times = self.totals.by_cpu.values().flat_map(|c| {
            let windows = [("favored", c.favored), ("regular", c.regular)];
            windows.into_iter().flat_map(|(window, times)| states(c.cpu, window, &times))
        });
        let help = "Time of the job's CPUs by what ran there: the job, other tasks, other tasks while the job slept \
                    (filled), exempt tasks, none of the scheduler's tasks (away)";
        out.counter_seconds("cpu", help, times)?;
        let ticks = self.totals.by_cpu.values().flat_map(|c| {
            let windows = [("favored", c.ticks_favored), ("regular", c.ticks_regular)];
            windows.map(|(window, n)| ([("cpu", c.cpu.to_string()), ("window", window.to_owned())], n))
        });
        out.counter("ticks", "Scheduler ticks that interrupted the job", ticks)
    }

    fn favored(&self, out: &mut Out<'_>) -> fmt::Result {
        let by_cpu = |value: fn(&CpuStats) -> u64| {
            self.totals.by_cpu.values().map(move |c| ([("cpu", c.cpu.to_string())], value(c)))
        };
        out.counter("favored_windows", "Favored windows that have ended", by_cpu(|c| c.favored_windows))?;
        let help =
            "Favored windows in which a task outside the job ran, idle time and exempt tasks not counted";
        out.counter("favored_windows_hit", help, by_cpu(|c| c.windows_hit))?;
        let worst = by_cpu(|c| c.worst_window_ns).map(|(labels, ns)| (labels, seconds(ns)));
        out.seconds(
            "worst_window",
            "Longest time that tasks outside the job ran in one favored window",
            worst,
        )?;
        let t = &self.totals;
        out.counter(
            "filled",
            "Tasks outside the job that ran in favored windows while the whole job slept",
            node(t.filled),
        )?;
        let help = "Times an exempt task took the CPU from the job in a favored window";
        out.counter("preempted", help, node(t.preempted))?;
        let help = "Times the sched_ext backend was loaded again after CPUs went online or offline";
        out.counter("restarts", help, node(t.restarts))
    }

    fn edges(&self, out: &mut Out<'_>) -> fmt::Result {
        let t = &self.totals;
        let both = || [("sched_ext", &t.sched_ext), ("agent", &t.agent)];
        let by = |value: fn(&Edges) -> u64| both().map(|(by, e)| ([("by", by.to_owned())], value(e)));
        out.counter("edges", "Window edges handled, counted on each CPU", by(|e| e.handled))?;
        let help = "Window edges that the backend handled after the whole window had passed";
        out.counter("edges_missed", help, by(|e| e.missed))?;
        let rows = both().map(|(by, e)| ([("by", by.to_owned())], &e.lateness));
        out.histogram(
            "edge_lateness",
            "Lateness of edges; bucket bounds are an eighth of an octave apart",
            rows,
        )
    }

    fn deferred(&self, out: &mut Out<'_>) -> fmt::Result {
        let t = &self.totals;
        out.counter(
            "deferrals",
            "Times a favored window delayed a thread outside the job",
            node(t.deferred),
        )?;
        out.counter_seconds(
            "deferred",
            "Time threads were held back by favored windows",
            node(seconds(t.deferred_ns)),
        )?;
        let mut threads: Vec<_> = self
            .report
            .sched_ext
            .iter()
            .flat_map(|e| &e.deferred)
            .map(|w| (w.comm.clone(), w.total_ns))
            .collect();
        // the scheduler names a thread once; what it cannot name is named alike
        threads.sort();
        threads.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        threads.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let rest = threads.split_off(threads.len().min(NAMED));
        if !rest.is_empty() {
            threads.push((REST.into(), rest.iter().map(|(_, ns)| ns).sum()));
        }
        let rows = threads.into_iter().map(|(comm, ns)| ([("thread", comm)], seconds(ns)));
        let help = "The same by thread, for this job or the last one: those held back the longest";
        out.seconds("deferred_thread", help, rows)
    }

    fn agent(&self, out: &mut Out<'_>) -> fmt::Result {
        let s = &self.totals.switching;
        out.counter("agent_switches", "Tasks the agent switched, counted at each edge", node(s.switches))?;
        out.counter("agent_joined", "Tasks that joined the job", node(s.joined))?;
        out.counter(
            "agent_settled",
            "Tasks whose scheduling policy was corrected between edges",
            node(s.settled),
        )?;
        out.counter("agent_errors", "Tasks whose scheduling policy could not be switched", node(s.errors))?;
        let help = "Times the guardian died and was restarted";
        out.counter("agent_guardian_restarts", help, node(s.guardian_restarts))?;
        out.counter_seconds("agent_cpu", "CPU time of the agent", node(seconds(s.cpu_ns)))?;
        out.histogram(
            "agent_switching",
            "Time that the agent took to switch all tasks at an edge",
            node(&s.took),
        )
    }
}

/// A CPU's time in one kind of window, by what ran.
fn states(cpu: usize, window: &'static str, t: &CpuTimes) -> [(Labels<3>, f64); 5] {
    let states = [
        ("job", t.job_ns),
        ("other", t.other_ns),
        ("filled", t.filled_ns),
        ("exempt", t.exempt_ns),
        ("away", t.away_ns),
    ];
    states.map(|(state, ns)| {
        ([("cpu", cpu.to_string()), ("window", window.to_owned()), ("state", state.to_owned())], seconds(ns))
    })
}

/// The durations in buckets that never change, the last one without a bound. What may be above a bound counts as
/// above it.
fn buckets(d: &Distribution) -> Vec<(f64, u64)> {
    let bounds_ns: Vec<u64> = (0..BOUNDS).map(|i| 1_000 << i).collect();
    let bounds = bounds_ns.iter().map(|&ns| seconds(ns)).chain([f64::INFINITY]);
    bounds.zip(d.counts_up_to(&bounds_ns)).collect()
}

/// Writes families of figures.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge<const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<N>, V)>,
    ) -> fmt::Result {
        self.family(name, help, None, MetricType::Gauge, rows, |mut e, v| e.encode_gauge(&v))
    }

    fn seconds<const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<N>, V)>,
    ) -> fmt::Result {
        self.family(name, help, Some(Unit::Seconds), MetricType::Gauge, rows, |mut e, v| e.encode_gauge(&v))
    }

    fn counter<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<N>, u64)>,
    ) -> fmt::Result {
        self.family(name, help, None, MetricType::Counter, rows, count)
    }

    fn counter_seconds<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<N>, f64)>,
    ) -> fmt::Result {
        self.family(name, help, Some(Unit::Seconds), MetricType::Counter, rows, count)
    }

    fn histogram<'d, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<N>, &'d Distribution)>,
    ) -> fmt::Result {
        self.family(name, help, Some(Unit::Seconds), MetricType::Histogram, rows, |mut e, d| {
            let buckets = buckets(d);
            // counted again: a reader takes the last bucket for the count, and would see them differ
            let count = buckets.iter().map(|(_, n)| n).sum();
            e.encode_histogram::<NoLabelSet>(seconds(d.sum_ns), count, &buckets, None)
        })
    }

    fn family<const N: usize, V>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        kind: MetricType,
        rows: impl IntoIterator<Item = (Labels<N>, V)>,
        write: impl Fn(MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in rows {
            // without labels there are no braces either
            if N == 0 {
                return write(family, value);
            }
            write(family.encode_family(&labels)?, value)?;
        }
        Ok(())
    }
}

fn count<V: EncodeCounterValue>(mut e: MetricEncoder<'_>, value: V) -> fmt::Result {
    e.encode_counter::<NoLabelSet, V, f64>(&value, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ClockJudge, ClockRules};
    use crate::metrics::check::{Samples, read};
    use colony_client::AgentStats;
    use colony_client::Coordination;
    use colony_client::JobReport;
    use colony_client::KeeperStats;
    use colony_client::{ExtStats, Waited};
    use colony_stats::histogram;
    use colony_time::{DutyCycle, Windows};
    use proptest::prelude::*;

    fn report(did: KeeperStats) -> StatsReport {
        let windows = Windows::new(100_000_000, DutyCycle::Ppm(950_000), 0).expect("possible");
        StatsReport {
            schema: StatsReport::SCHEMA.into(),
            pid: 1,
            uptime_ns: 1_500_000_000,
            windows,
            coordination: Coordination {
                error_bound_ns: Some(20_000),
                ..ClockJudge::new(ClockRules::default(), windows, Err(Vec::new())).state().clone()
            },
            duty_cycle: "95%".into(),
            cpus: "1".parse().expect("a CPU"),
            job: JobReport { active: true, processes: vec![7], tasks: 3, jobs: 2 },
            agent: did.agent,
            kept_by: did.backend,
            sched_ext: did.sched_ext,
            warnings: did.warnings,
        }
    }

    fn lateness(values: &[u64]) -> Distribution {
        let mut h = histogram();
        values.iter().for_each(|&v| h.saturating_record(v));
        Distribution::from(&h)
    }

    /// A scheduler in the kernel that held back these threads.
    fn ext(threads: &[(String, u64)], late: &[u64]) -> ExtStats {
        let times = CpuTimes { job_ns: 900_000_000, other_ns: 1_000, ..CpuTimes::default() };
        ExtStats {
            edges: late.len() as u64,
            missed: 1,
            lateness: lateness(late),
            deferred: threads
                .iter()
                .map(|(comm, ns)| Waited { comm: comm.clone(), times: 1, total_ns: *ns, max_ns: *ns })
                .collect(),
            by_cpu: vec![CpuStats { cpu: 1, favored: times, ticks_favored: 9, ..CpuStats::default() }],
            ..ExtStats::default()
        }
    }

    fn written(did: KeeperStats, before: &[KeeperStats]) -> Samples {
        let mut totals = Totals::default();
        before.iter().chain([&did]).for_each(|d| totals.add(d));
        let text = open_metrics(report(did), totals);
        read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    fn value(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        samples.get(&(name.to_owned(), labels)).copied()
    }

    #[test]
    fn figures_of_a_job_kept_by_the_kernel() {
        let threads = [("kworker/1:0".into(), 5_000_000), ("a\"b\\\n".into(), 2_000_000)];
        let did = KeeperStats {
            backend: Backend::SchedExt,
            sched_ext: Some(ext(&threads, &[2_500, 3_000, 70_000])),
            ..KeeperStats::default()
        };
        let s = written(did, &[]);
        for (name, labels, expected) in [
            ("colony_uptime_seconds", &[][..], 1.5),
            ("colony_window_seconds", &[("window", "regular")], 0.005),
            ("colony_keeper", &[("by", "sched_ext")], 1.0),
            ("colony_keeper", &[("by", "agent")], 0.0),
            ("colony_clock_error_bound_seconds", &[], 0.00002),
            ("colony_jobs_total", &[], 2.0),
            ("colony_cpu_seconds_total", &[("cpu", "1"), ("window", "favored"), ("state", "job")], 0.9),
            ("colony_ticks_total", &[("cpu", "1"), ("window", "favored")], 9.0),
            ("colony_edges_total", &[("by", "sched_ext")], 3.0),
            ("colony_edge_lateness_seconds_bucket", &[("le", "0.000004"), ("by", "sched_ext")], 2.0),
            ("colony_edge_lateness_seconds_bucket", &[("le", "0.000128"), ("by", "sched_ext")], 3.0),
            ("colony_edge_lateness_seconds_count", &[("by", "agent")], 0.0),
            ("colony_deferred_seconds_total", &[], 0.007),
            ("colony_deferred_thread_seconds", &[("thread", "a\"b\\\n")], 0.002),
        ] {
            assert_eq!(value(&s, name, labels), Some(expected), "{name} {labels:?} in {s:?}");
        }
    }

    #[test]
    fn counters_go_on_where_the_last_job_left_them() {
        let did = |backend, ext: Option<ExtStats>, agent| KeeperStats {
            backend,
            sched_ext: ext,
            agent,
            warnings: vec![],
        };
        let agent =
            AgentStats { edges: 5, switches: 50, lateness: lateness(&[9_000; 5]), ..AgentStats::default() };
        // the scheduler was ended by the kernel, and the agent went on
        let first =
            did(Backend::Agent, Some(ext(&[("x".into(), 1_000_000_000)], &[1_000; 4])), Some(agent.clone()));
        let s = written(did(Backend::Agent, None, Some(agent)), &[first]);
        assert_eq!(value(&s, "colony_edges_total", &[("by", "sched_ext")]), Some(4.0));
        assert_eq!(value(&s, "colony_edges_total", &[("by", "agent")]), Some(10.0));
        assert_eq!(value(&s, "colony_agent_switches_total", &[]), Some(100.0));
        assert_eq!(value(&s, "colony_deferred_seconds_total", &[]), Some(1.0));
        let named = s.keys().any(|(name, _)| name == "colony_deferred_thread_seconds");
        assert!(!named, "threads are those of this job");
    }

    proptest! {
        #[test]
        fn whatever_threads_are_called_the_text_can_be_read(
            threads in prop::collection::vec((".{0,15}|[\"\\\\\n{}=, #]{0,15}", 0u64..1 << 40), 0..60),
            late in prop::collection::vec(0u64..20_000_000_000, 0..50),
        ) {
            let did = KeeperStats { sched_ext: Some(ext(&threads, &late)), ..KeeperStats::default() };
            let s = written(did, &[]);
            let named: Vec<_> = s.iter().filter(|((n, _), _)| n == "colony_deferred_thread_seconds").collect();
            prop_assert!(named.len() <= NAMED + 1, "bounded");
            let rest = |l: &[(String, String)]| l[0].1 == REST;
            for ((_, labels), _) in &named {
                prop_assert!(rest(labels) || threads.iter().any(|(comm, _)| *comm == labels[0].1));
            }
            let all = threads.iter().map(|(_, ns)| ns).sum::<u64>();
            let sum = named.iter().map(|(_, ns)| **ns).sum::<f64>();
            prop_assert!((sum - seconds(all)).abs() <= 1e-6 * (1.0 + sum), "nobody is lost");
            let of_histogram = value(&s, "colony_edge_lateness_seconds_count", &[("by", "sched_ext")]);
            prop_assert_eq!(of_histogram, Some(late.len() as f64));
        }
    }
}
