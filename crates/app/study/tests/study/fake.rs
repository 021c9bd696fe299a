// SPDX-License-Identifier: MIT OR Apache-2.0
//! A made-up machine: what a node with a noise daemon would say, always the same.

use colony_doctor::{Examination, ThreadSeen};
use colony_node::cpu::CpuSet;
use colony_node::privilege::Privileges;
use colony_node::record::NodeRecord;
use colony_pages::PagePolicy;
use colony_project::{Steal, node_noise};
use colony_sched::spare::Partition;
use colony_sim::noise::Detour as Stolen;
use colony_sim::{CpuNoise, NodeNoise};
use colony_study::neighbours::Usage;
use colony_study::node::{BenchRun, Injection, OwnNoise};
use colony_study::pages::{PageRun, PageRuns, measure};
use colony_study::results::{Bucket, Cell, Edges, Explained, SchedulerKind, SourceRow, Split};
use colony_study::spare_here::SpareHere;
use colony_study::{Node, StudyError, noise};
use colony_time::Windows;
use colony_trace::{Detour, Source, Trace, TraceMeta};

/// A name that a thread could give itself.
pub(crate) const HOSTILE: &str = "</script><img src=http://evil.example/x onerror=alert(1)>";

pub(crate) struct Fake {
    pub(crate) privileges: Privileges,
    /// Steps that fail, by a part of their name.
    pub(crate) broken: &'static [&'static str],
    /// Share of the CPUs that others take at each look, in turn; the last one stays.
    pub(crate) others: &'static [f64],
    /// More noise takes less time.
    pub(crate) falls: bool,
    pub(crate) looks: std::cell::RefCell<Usage>,
    pub(crate) turn: std::cell::Cell<usize>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            privileges: Privileges { real_time: true, bpf: true, mount: true },
            broken: &[],
            others: &[],
            falls: false,
            looks: std::cell::RefCell::default(),
            turn: std::cell::Cell::default(),
        }
    }
}

impl Fake {
    fn check(&self, what: &str) -> Result<(), StudyError> {
        match self.broken.contains(&what) {
            true => Err(StudyError::Step { what: what.into(), reason: "broken on purpose".into() }),
            false => Ok(()),
        }
    }
}

/// A small generator, so that the tests need no more crates.
pub(crate) struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.next().ln()
    }
}

fn trace() -> Trace {
    let mut dice = Dice(7);
    let names = [
        "irq:local_timer",
        "thread:kworker/0:1",
        "softirq:TIMER",
        "hypervisor",
        "unexplained",
        "softirq:RCU",
        "irq:reschedule",
        &format!("thread:{HOSTILE}"),
        "thread:chronyd",
        "thread:sshd",
        "nmi",
    ]
    .map(Source::from);
    let mut detours = Vec::new();
    let mut put = |cpu, source, at: f64, length: f64| {
        detours.push(Detour { node: 0, cpu, start_ns: at as i64, duration_ns: length as u64, source });
    };
    for cpu in 0..2u16 {
        for tick in 0..15_000 {
            let at = f64::from(tick) * 1e6 + 2e5 * f64::from(cpu);
            put(cpu, 0, at, 1_400.0 + dice.exponential(150.0));
            if tick % 4 == 0 {
                put(cpu, 2, at + 2_000.0, 900.0 + dice.exponential(400.0));
            }
        }
        for (source, every, least, mean) in [
            (1u16, 2.5e7, 4e3, 9e3),
            (3, 6e7, 3e4, 9e5),
            (4, 3e6, 80.0, 250.0),
            (5, 4e7, 1e3, 3e3),
            (6, 5e7, 2e3, 1e3),
            (7, 9e8, 5e4, 4e5),
            (8, 1e9, 9e4, 1e5),
            (9, 2e9, 6e4, 2e5),
            (10, 4e9, 5e3, 5e3),
        ] {
            let mut at = dice.exponential(every);
            while at < 15e9 {
                put(cpu, source, at, least + dice.exponential(mean));
                at += dice.exponential(every);
            }
        }
    }
    detours.sort_by_key(|d| d.start_ns);
    let meta = TraceMeta {
        schema: TraceMeta::SCHEMA.into(),
        tsc_hz: 2.1e9,
        threshold_ns: 50,
        smallest_loop_ns: 10.2,
        cpus: "0-1".parse().expect("a list"),
        observed_s: 15.0,
        start_ns: 0,
        lost_events: 0,
        dropped: 0,
        observer: None,
        node: None,
        classes: Default::default(),
        notes: Vec::new(),
        has_random_instants: false,
    };
    Trace { meta, sources: names.to_vec(), detours }
}

/// Values with logarithmic buckets.
fn histogram(values: impl Iterator<Item = f64>) -> Vec<Bucket> {
    let mut counts = std::collections::BTreeMap::new();
    for v in values {
        *counts.entry((v.max(1.0).log2() * 8.0) as i32).or_insert(0u64) += 1;
    }
    let edge = |k: i32| (f64::from(k) / 8.0).exp2();
    counts
        .into_iter()
        .map(|(k, count)| Bucket {
            low_ns: edge(k) as u64,
            high_ns: (edge(k + 1) as u64).max(edge(k) as u64 + 1),
            count,
        })
        .collect()
}

fn quantile(buckets: &[Bucket], q: f64) -> u64 {
    let total: u64 = buckets.iter().map(|b| b.count).sum();
    let mut seen = 0;
    buckets
        .iter()
        .find(|b| {
            seen += b.count;
            seen as f64 >= q * total as f64
        })
        .map_or(0, |b| b.high_ns)
}

impl Node for Fake {
    fn compute_node(
        &mut self,
        _: &[(&str, &str)],
    ) -> Result<Vec<colony_study::compute_node::Pair>, StudyError> {
        Err(StudyError::Step { what: "compute node".into(), reason: "a made-up machine has none".into() })
    }

    fn tlb(&mut self, _: &[(&str, &str)]) -> Result<Vec<colony_study::tlb::TlbRun>, StudyError> {
        Err(StudyError::Step { what: "compute node".into(), reason: "a made-up machine has none".into() })
    }

    fn spare_node(&mut self) -> Result<colony_study::spare_node::SpareRuns, StudyError> {
        Err(StudyError::Step { what: "virtual node".into(), reason: "there is none here".into() })
    }

    fn spare_core(&mut self, seconds: f64) -> Result<SpareHere, StudyError> {
        self.check("spare core")?;
        assert!(seconds <= 4.0, "both runs together take 8 s at most");
        Ok(SpareHere {
            commands: ["--cpus 1", "--spare-cores 1"].map(|o| format!("colony run {o} --backend none")),
            job: "1".parse().expect("a list"),
            spare: "0".parse().expect("a list"),
            partition: Partition::Isolated,
            stolen_without: 0.0425,
            stolen_with: 0.00125,
        })
    }

    fn pages(&mut self, _: &str, _: &str, rounds: usize) -> Result<Vec<PageRuns>, StudyError> {
        self.check("pages")?;
        let mut turn = 0.0;
        measure(
            rounds,
            |_| None,
            |policy| {
                turn += 1.0;
                let large = if policy == PagePolicy::Base { 0.0 } else { 0.9 };
                let seconds = 1.0 - large / 2.0 + turn / 1e3;
                Ok(PageRun { seconds, faults: 1000, large: Some(large), misses: Ok(100_000), event: None })
            },
        )
    }

    fn three_kernels(&mut self) -> Result<colony_study::three_kernels::Runs, StudyError> {
        Err(StudyError::Step { what: "virtual node".into(), reason: "there is none here".into() })
    }

    fn virtual_node(&mut self) -> Result<colony_study::virtual_node::Runs, StudyError> {
        Err(StudyError::Step { what: "virtual node".into(), reason: "there is none here".into() })
    }

    fn record(&self) -> NodeRecord {
        NodeRecord {
            host: "node <1>".into(),
            kernel: "6.1.0-37-amd64".into(),
            cpu_model: "A processor of 2.1 GHz".into(),
            online: "0-1".parse().expect("a list"),
            isolation: vec![],
            governor: None,
            virtual_machine: true,
            load: [0.9, 0.6, 0.4],
            runnable: 2,
            rt_share: Some(0.95),
        }
    }

    fn privileges(&self) -> Privileges {
        self.privileges
    }

    /// Two looks make one observation: 200 ticks pass in each.
    fn usage(&self) -> Option<Usage> {
        let turn = self.turn.replace(self.turn.get() + 1) / 2;
        let share = self.others.get(turn).or(self.others.last())?;
        let mut u = self.looks.borrow_mut();
        u.at_us += 1_000_000;
        u.total += 200;
        u.busy += (200.0 * share) as u64;
        u.others.entry((7, 1)).or_insert(("rustc".into(), 0)).1 += (200.0 * share) as u64;
        Some(u.clone())
    }

    fn job(&self) -> Result<CpuSet, StudyError> {
        self.check("examine")?;
        Ok("1".parse().expect("a list"))
    }

    fn examine(&self, job: &CpuSet, threads: Vec<ThreadSeen>) -> Result<Examination, StudyError> {
        self.check("examine")?;
        let root = tempfile::tempdir().expect("temp dir");
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            std::fs::write(path, text).expect("writable");
        };
        file("sys/devices/system/cpu/online", "0-1\n");
        file("sys/devices/system/cpu/isolated", "\n");
        file("proc/cmdline", "quiet\n");
        file("proc/sys/kernel/osrelease", "6.12.0\n");
        file("proc/sys/kernel/nmi_watchdog", "1\n");
        let node = colony_doctor::Node::open(root.path(), Some(job)).expect("files");
        Ok(colony_doctor::examine(&node.with_threads(threads)))
    }

    fn noise(&mut self, _: f64) -> Result<OwnNoise, StudyError> {
        self.check("noise")?;
        let trace = trace();
        let mut n = noise::summarise(&trace, "colony measure --seconds 15 --out trace.parquet");
        // all of its events were below the threshold
        n.sources.push(SourceRow {
            source: "softirq:NET_RX".into(),
            events: Some(900),
            count: 0,
            stolen_ns: 0,
            max_ns: 0,
        });
        n.periodic = vec!["irq:local_timer is periodic: 1000 Hz, 1.5 µs each, phase-locked".into()];
        n.explained = self.privileges.bpf.then_some(Explained {
            of_stolen: 0.983,
            of_detours: 0.834,
            of_stolen_without_throttle: 0.983,
            of_detours_without_throttle: 0.834,
        });
        let merged = node_noise(&trace, Steal::Excluded)?;
        Ok(OwnNoise { summary: n, merged, trace, started: ["sshd".into()].into() })
    }

    fn detours(
        &mut self,
        _: f64,
        injection: &Injection,
        windows: Option<&Windows>,
    ) -> Result<NodeNoise, StudyError> {
        self.check("detours")?;
        let own = node_noise(&trace(), Steal::Excluded)?;
        if windows.is_some() {
            return Ok(NodeNoise::new(vec![CpuNoise::periodic(4_000_000, 1_500)?])?);
        }
        let Injection::Leibniz { percent } = injection else { return Ok(own) };
        let percent = if self.falls { &(42.0 / percent) } else { percent };
        let span_ns = own.span_ns();
        let daemon = CpuNoise::new(span_ns, daemon(*percent, span_ns))?;
        let both = |cpu: &CpuNoise| CpuNoise::new(span_ns, [cpu.detours(), daemon.detours()].concat());
        Ok(NodeNoise::new(own.cpus().iter().map(both).collect::<Result<_, _>>()?)?)
    }

    fn bench(&mut self, run: &BenchRun) -> Result<Cell, StudyError> {
        self.check("bench")?;
        let mut dice =
            Dice(run.seed ^ run.injection.percent() as u64 ^ u64::from(run.windows.is_some()) << 9);
        let percent = run.injection.percent();
        let noise = if self.falls && percent > 0.0 { 0.42 / percent } else { percent / 100.0 };
        let ops = 300_000;
        let times: Vec<f64> = (0..ops)
            .map(|_| {
                let base = 270.0 + dice.exponential(25.0);
                match dice.next() {
                    u if u < 2e-4 => base + 1_400.0 + dice.exponential(900.0),
                    u if u < 2e-4 + noise * 5e-4 && run.windows.is_none() => base + dice.next() * 4e6,
                    u if u < 2e-4 + noise * 2e-5 => base + dice.next() * 2e7,
                    _ => base,
                }
            })
            .collect();
        let h = histogram(times.iter().copied());
        let coordinated = run.windows.is_some();
        let lateness = histogram((0..320).map(|_| 4_000.0 + dice.exponential(7_000.0)));
        Ok(Cell {
            command: format!(
                "colony run --period 100ms --duty 80% --backend {} -- colony bench {} -n {}",
                if coordinated { "agent" } else { "none" },
                run.program,
                run.ranks
            ),
            noise_percent: run.injection.percent(),
            achieved_percent: None,
            scheduler: if coordinated { SchedulerKind::Coordinated } else { SchedulerKind::Unmodified },
            ops,
            mean_ns: times.iter().sum::<f64>() / ops as f64,
            mean_ci95_ns: Some(0.01 * times.iter().sum::<f64>() / ops as f64),
            load: None,
            p50_ns: quantile(&h, 0.5),
            p99_ns: quantile(&h, 0.99),
            p99_9_ns: quantile(&h, 0.999),
            max_ns: times.iter().copied().fold(0.0, f64::max) as u64,
            split: Some(Split {
                stolen_favored_ns: ((0.004 + noise) * if coordinated { 0.01 } else { 0.8 } * 16e9) as u64,
                stolen_regular_ns: ((0.004 + noise) * if coordinated { 0.95 } else { 0.2 } * 16e9) as u64,
                favored_ns: 12_800_000_000,
                regular_ns: 3_200_000_000,
            }),
            edges: coordinated.then(|| Edges {
                p50_ns: quantile(&lateness, 0.5),
                p99_ns: quantile(&lateness, 0.99),
                max_ns: quantile(&lateness, 1.0),
                histogram: lateness,
            }),
            histogram: h,
        })
    }

    fn leibniz_levels(&mut self, max_terms: &[u64]) -> Result<Vec<f64>, StudyError> {
        self.check("leibniz")?;
        Ok(max_terms.iter().map(|&n| n as f64 * 0.5 * 2e-9 / 0.5).collect())
    }
}

/// The detours of a noise daemon that calculates for up to twice `percent` of its sleep, in turns of 3 ms.
fn daemon(percent: f64, span_ns: u64) -> Vec<Stolen> {
    const TURN_NS: u64 = 3_000_000;
    let (mut dice, mut at, mut detours) = (Dice(4), 0, Vec::new());
    while at < span_ns {
        let mut left = (dice.next() * percent * 1e7) as u64;
        while left > 0 {
            let duration_ns = left.min(TURN_NS);
            detours.push(Stolen { start_ns: at, duration_ns });
            left -= duration_ns;
            at += if left > 0 { 2 * duration_ns } else { duration_ns };
        }
        at += 500_000_000;
    }
    detours
}
