// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table: for each rule, files that make a finding, files that do not, and files that leave it undecided.

use std::collections::BTreeSet;

use colony_doctor::remedy::Effort;
use colony_doctor::{ClockState, Probes, RULES, ThreadSeen};

use crate::node::{Made, Ruled};

type Files = &'static [(&'static str, &'static str)];

/// A rule with the files of each outcome; `undecided` has a part of the reason.
struct Case {
    rule: &'static str,
    found: Files,
    passed: Files,
    undecided: (Files, &'static str),
}

const NOHZ: &str = "/sys/devices/system/cpu/nohz_full";
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const CMDLINE: &str = "/proc/cmdline";
const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const STAT_FIFO: &str = "77 (rt daemon) S 1 77 77 0 -1 4194560 1 0 0 0 1 1 0 0 -51 0 1 0 100 1000 10 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 50 1 0 0 0 1 1 1 1 1 1 1 0\n";
const STAT_OTHER: &str = "77 (irqbalance) S 1 77 77 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 100 1000 10 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 0\n";
const STAT_KDAMOND: &str = "77 (kdamond.0) S 2 0 0 0 -1 2129984 0 0 0 0 0 5 0 0 20 0 1 0 100 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
const INTERRUPTS: &str = "           CPU0       CPU1       CPU2       CPU3\n 24:          1          2          3          0   IO-APIC   5-edge      eth0\n";

const CASES: &[Case] = &[
    Case {
        rule: "nohz-full",
        found: &[(NOHZ, "(null)\n"), (CMDLINE, "quiet")],
        passed: &[(NOHZ, "1-3\n")],
        undecided: (&[(CMDLINE, "quiet")], "CONFIG_NO_HZ_FULL"),
    },
    Case {
        rule: "rcu-nocbs",
        found: &[(CMDLINE, "quiet rcu_nocbs=1")],
        passed: &[(CMDLINE, "rcu-nocbs=1-N quiet")],
        undecided: (&[], "/proc/cmdline is not there"),
    },
    Case {
        rule: "isolation",
        found: &[(ISOLATED, "\n"), (CMDLINE, "")],
        passed: &[(ISOLATED, "1-2"), ("/sys/fs/cgroup/cpuset.cpus.isolated", "3\n")],
        undecided: (&[], "isolated is not there"),
    },
    Case {
        rule: "preemption",
        found: &[("/sys/kernel/debug/sched/preempt", "none voluntary (full) lazy \n")],
        passed: &[("/sys/kernel/debug/sched/preempt", "full (lazy) \n")],
        undecided: (&[], "/proc/sys/kernel/version is not there"),
    },
    Case {
        rule: "unequal-cpus",
        found: &[
            ("/sys/devices/system/cpu/cpu1/cpu_capacity", "1024\n"),
            ("/sys/devices/system/cpu/cpu2/cpu_capacity", "1024\n"),
            ("/sys/devices/system/cpu/cpu3/cpu_capacity", "400\n"),
        ],
        passed: &[
            ("/sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "3000000\n"),
            ("/sys/devices/system/cpu/cpu2/cpufreq/cpuinfo_max_freq", "3000000\n"),
            ("/sys/devices/system/cpu/cpu3/cpufreq/cpuinfo_max_freq", "3000000\n"),
        ],
        undecided: (&[], "it was not collected, or the kernel knows neither"),
    },
    Case {
        rule: "irq-movable",
        found: &[
            ("/proc/irq/24/smp_affinity_list", "0-3\n"),
            ("/proc/irq/24/effective_affinity_list", "2\n"),
            ("/proc/irq/24/eth0/x", ""),
            ("/proc/interrupts", INTERRUPTS),
        ],
        passed: &[
            ("/proc/irq/24/smp_affinity_list", "0\n"),
            ("/proc/irq/24/effective_affinity_list", "2\n"),
            ("/proc/irq/24/eth0/x", ""),
        ],
        undecided: (&[], "/proc/irq is not there"),
    },
    Case {
        rule: "irq-managed",
        found: &[
            ("/proc/irq/24/smp_affinity_list", "2\n"),
            ("/proc/irq/24/effective_affinity_list", "2\n"),
            ("/proc/irq/24/nvme0q3/x", ""),
        ],
        // the queue for administration is movable
        passed: &[("/proc/irq/24/smp_affinity_list", "2\n"), ("/proc/irq/24/nvme0q0/x", "")],
        undecided: (&[], "/proc/irq is not there"),
    },
    Case {
        rule: "irq-default",
        found: &[("/proc/irq/default_smp_affinity", "f\n")],
        passed: &[("/proc/irq/default_smp_affinity", "00000000,00000001\n")],
        undecided: (&[("/proc/irq/default_smp_affinity", "x")], "unknown value"),
    },
    Case {
        rule: "irqbalance",
        found: &[("/proc/77/stat", STAT_OTHER), (ISOLATED, "1"), ("/etc/default/irqbalance", "#x\n")],
        passed: &[
            ("/proc/77/stat", STAT_OTHER),
            ("/etc/default/irqbalance", "#x\nIRQBALANCE_BANNED_CPULIST=\"1-3\"\n"),
        ],
        undecided: (&[], "/proc is not there"),
    },
    Case {
        rule: "receive-steering",
        found: &[("/sys/class/net/eth0/queues/rx-0/rps_cpus", "6")],
        passed: &[("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00000001")],
        undecided: (&[], "/sys/class/net is not there"),
    },
    Case {
        rule: "workqueue-unbound",
        found: &[("/sys/devices/virtual/workqueue/cpumask", "f\n")],
        passed: &[("/sys/devices/virtual/workqueue/cpumask", "1\n")],
        undecided: (&[("/sys/devices/virtual/workqueue/cpumask", "")], "unknown value"),
    },
    Case {
        rule: "workqueue-writeback",
        found: &[
            ("/sys/devices/virtual/workqueue/cpumask", "f\n"),
            ("/sys/devices/virtual/workqueue/writeback/cpumask", "e\n"),
        ],
        // the mask of all queues bounds it
        passed: &[
            ("/sys/devices/virtual/workqueue/cpumask", "1\n"),
            ("/sys/devices/virtual/workqueue/writeback/cpumask", "e\n"),
        ],
        undecided: (&[], "writeback/cpumask is not there"),
    },
    Case {
        rule: "workqueue-power-efficient",
        found: &[("/sys/module/workqueue/parameters/power_efficient", "N\n"), (CMDLINE, "")],
        passed: &[("/sys/module/workqueue/parameters/power_efficient", "Y\n")],
        undecided: (&[], "power_efficient is not there"),
    },
    Case {
        rule: "timer-migration",
        found: &[("/proc/sys/kernel/timer_migration", "1\n"), (CMDLINE, "quiet")],
        passed: &[("/proc/sys/kernel/timer_migration", "1\n"), (NOHZ, "1-3")],
        undecided: (&[("/proc/sys/kernel/timer_migration", "many")], "unknown value"),
    },
    Case {
        rule: "rt-throttling",
        found: &[
            ("/proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("/proc/sys/kernel/sched_rt_period_us", "1000000\n"),
        ],
        passed: &[("/proc/sys/kernel/sched_rt_runtime_us", "-1\n")],
        undecided: (&[], "sched_rt_runtime_us is not there"),
    },
    Case {
        rule: "fair-server",
        found: &[
            ("/sys/kernel/debug/sched/fair_server/cpu1/runtime", "50000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu2/runtime", "0"),
            ("/sys/kernel/debug/sched/fair_server/cpu3/runtime", "0"),
        ],
        passed: &[("/proc/sys/kernel/osrelease", "6.1.0-44-amd64\n")],
        undecided: (&[("/proc/sys/kernel/osrelease", "6.12.1\n")], "debugfs"),
    },
    Case {
        rule: "rt-tasks",
        found: &[
            ("/proc/77/stat", STAT_FIFO),
            ("/proc/77/status", "Name:\trt daemon\nCpus_allowed_list:\t0-3\n"),
        ],
        passed: &[
            ("/proc/77/stat", STAT_FIFO),
            ("/proc/77/status", "Name:\trt daemon\nCpus_allowed_list:\t0\n"),
        ],
        undecided: (&[], "/proc is not there"),
    },
    Case {
        rule: "nmi-watchdog",
        found: &[("/proc/sys/kernel/nmi_watchdog", "1\n"), ("/proc/sys/kernel/watchdog_cpumask", "0-3\n")],
        passed: &[("/proc/sys/kernel/nmi_watchdog", "1\n"), ("/proc/sys/kernel/watchdog_cpumask", "0\n")],
        undecided: (&[], "nmi_watchdog is not there"),
    },
    Case {
        rule: "soft-watchdog",
        found: &[("/proc/sys/kernel/soft_watchdog", "1\n"), ("/proc/sys/kernel/watchdog_cpumask", "0-3\n")],
        passed: &[("/proc/sys/kernel/soft_watchdog", "1\n"), ("/proc/sys/kernel/watchdog", "0\n")],
        undecided: (&[("/proc/sys/kernel/soft_watchdog", "1\n")], "watchdog_cpumask is not there"),
    },
    Case {
        rule: "machine-check-poll",
        found: &[
            ("/sys/devices/system/machinecheck/machinecheck1/check_interval", "12c\n"),
            ("/sys/devices/system/machinecheck/machinecheck2/check_interval", "12c\n"),
            ("/sys/devices/system/machinecheck/machinecheck3/check_interval", "12c\n"),
        ],
        passed: &[
            ("/sys/devices/system/machinecheck/machinecheck1/check_interval", "0\n"),
            ("/sys/devices/system/machinecheck/machinecheck2/check_interval", "0\n"),
            ("/sys/devices/system/machinecheck/machinecheck3/check_interval", "0\n"),
        ],
        undecided: (&[], "check_interval is not there"),
    },
    Case {
        rule: "tracing",
        found: &[("/sys/kernel/debug/tracing/current_tracer", "function\n")],
        passed: &[("/sys/kernel/tracing/current_tracer", "nop\n")],
        undecided: (&[], "current_tracer is not there"),
    },
    Case {
        rule: "kdamond",
        found: &[("/proc/77/stat", STAT_KDAMOND), ("/sys/module/damon_reclaim/parameters/enabled", "Y\n")],
        passed: &[("/proc/77/stat", STAT_OTHER)],
        undecided: (&[], "/proc is not there"),
    },
    Case {
        rule: "khugepaged",
        found: &[
            (THP, "[always] madvise never\n"),
            ("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "1\n"),
        ],
        passed: &[(THP, "always madvise [never]\n")],
        undecided: (&[], "enabled is not there"),
    },
    Case {
        rule: "ksm",
        found: &[("/sys/kernel/mm/ksm/run", "1\n")],
        passed: &[("/sys/kernel/mm/ksm/run", "0\n")],
        undecided: (&[], "ksm/run is not there"),
    },
    Case {
        rule: "stat-interval",
        found: &[("/proc/sys/vm/stat_interval", "1\n")],
        passed: &[("/proc/sys/vm/stat_interval", "120\n")],
        undecided: (&[], "stat_interval is not there"),
    },
    Case {
        rule: "writeback-interval",
        found: &[("/proc/sys/vm/dirty_writeback_centisecs", "500\n")],
        passed: &[("/proc/sys/vm/dirty_writeback_centisecs", "0\n")],
        undecided: (&[], "dirty_writeback_centisecs is not there"),
    },
    Case {
        rule: "compaction",
        found: &[("/proc/sys/vm/compaction_proactiveness", "20\n")],
        passed: &[("/proc/sys/vm/compaction_proactiveness", "0\n")],
        undecided: (&[], "compaction_proactiveness is not there"),
    },
    Case {
        rule: "numa-balancing",
        found: &[
            ("/proc/sys/kernel/numa_balancing", "1\n"),
            ("/sys/devices/system/node/node0/x", ""),
            ("/sys/devices/system/node/node1/x", ""),
        ],
        passed: &[("/proc/sys/kernel/numa_balancing", "1\n"), ("/sys/devices/system/node/node0/x", "")],
        undecided: (&[], "numa_balancing is not there"),
    },
    Case {
        rule: "zone-reclaim",
        found: &[("/proc/sys/vm/zone_reclaim_mode", "1\n")],
        passed: &[("/proc/sys/vm/zone_reclaim_mode", "0\n")],
        undecided: (&[], "zone_reclaim_mode is not there"),
    },
    Case {
        rule: "swap",
        found: &[("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/a\\040b partition 100 50 -2\n")],
        passed: &[("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")],
        undecided: (&[], "/proc/swaps is not there"),
    },
    Case {
        rule: "thp",
        found: &[(THP, "always madvise [never]\n")],
        passed: &[(THP, "always [madvise] never\n")],
        undecided: (&[(THP, "always\n")], "unknown value"),
    },
    Case {
        rule: "thp-defrag",
        found: &[
            (THP, "[always] madvise never\n"),
            ("/sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never\n"),
        ],
        passed: &[
            (THP, "[always] madvise never\n"),
            ("/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"),
        ],
        undecided: (&[], "enabled is not there"),
    },
    Case {
        rule: "mthp",
        found: &[(
            "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
            "always inherit madvise [never]\n",
        )],
        passed: &[
            (
                "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
                "always [inherit] madvise never\n",
            ),
            (THP, "always [madvise] never\n"),
        ],
        undecided: (&[(THP, "always madvise [never]\n")], "Linux 6.8"),
    },
    Case {
        rule: "huge-pages",
        found: &[("/proc/meminfo", "MemTotal: 1 kB\nHugePages_Total:       4\nHugePages_Free:        0\n")],
        passed: &[("/proc/meminfo", "HugePages_Total:       4\nHugePages_Free:        2\n")],
        undecided: (&[("/proc/meminfo", "MemTotal: 1 kB\n")], "CONFIG_HUGETLBFS"),
    },
    Case {
        rule: "memory-reclaim",
        found: &[
            ("/sys/fs/cgroup/cgroup.controllers", ""),
            ("/sys/fs/cgroup/a/b/cgroup.procs", ""),
            ("/sys/fs/cgroup/a/cgroup.procs", ""),
            ("/sys/fs/cgroup/a/b/memory.events", "low 0\nhigh 3\nmax 0\n"),
            ("/sys/fs/cgroup/a/b/memory.high", "1000\n"),
        ],
        passed: &[
            ("/sys/fs/cgroup/cgroup.controllers", ""),
            ("/sys/fs/cgroup/a/cgroup.procs", ""),
            ("/sys/fs/cgroup/a/memory.events", "low 0\nhigh 3\n"),
            ("/sys/fs/cgroup/a/memory.high", "max\n"),
        ],
        undecided: (&[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1")], "version 1"),
    },
    Case {
        rule: "cpu-quota",
        found: &[
            ("/sys/fs/cgroup/cgroup.controllers", ""),
            ("/sys/fs/cgroup/a/cgroup.procs", ""),
            ("/sys/fs/cgroup/a/cpu.stat", "usage_usec 1\nnr_throttled 7\n"),
            ("/sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
        ],
        passed: &[
            ("/sys/fs/cgroup/cgroup.controllers", ""),
            ("/sys/fs/cgroup/a/cgroup.procs", ""),
            ("/sys/fs/cgroup/a/cpu.stat", "nr_throttled 7\n"),
            ("/sys/fs/cgroup/a/cpu.max", "max 100000\n"),
        ],
        undecided: (&[], "no version 2"),
    },
    Case {
        rule: "governor",
        found: &[
            ("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n"),
            ("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "schedutil\n"),
        ],
        // CPU 0 is not the job's
        passed: &[
            ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
            ("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n"),
            ("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance\n"),
        ],
        undecided: (&[], "scaling_governor is not there"),
    },
    Case {
        rule: "turbo",
        found: &[("/sys/devices/system/cpu/cpufreq/boost", "1\n")],
        passed: &[("/sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")],
        undecided: (&[], "virtual machine"),
    },
    Case {
        rule: "energy-bias",
        found: &[
            ("/sys/devices/system/cpu/cpu1/power/energy_perf_bias", "6\n"),
            ("/sys/devices/system/cpu/cpu2/power/energy_perf_bias", "6\n"),
            ("/sys/devices/system/cpu/cpu3/power/energy_perf_bias", "6\n"),
        ],
        passed: &[
            ("/sys/devices/system/cpu/cpu1/power/energy_perf_bias", "0\n"),
            ("/sys/devices/system/cpu/cpu2/power/energy_perf_bias", "0\n"),
            ("/sys/devices/system/cpu/cpu3/power/energy_perf_bias", "0\n"),
        ],
        undecided: (&[], "energy_perf_bias is not there"),
    },
    Case {
        rule: "idle-states",
        found: IDLE_DEEP,
        passed: IDLE_OFF,
        undecided: (&[], "cpuidle is not there"),
    },
    Case {
        rule: "smt",
        found: &[
            ("/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3"),
            ("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2"),
            ("/sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3"),
        ],
        passed: &[
            ("/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1"),
            ("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2"),
            ("/sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "3"),
        ],
        undecided: (&[], "thread_siblings_list is not there"),
    },
    Case {
        rule: "thermal-throttling",
        found: &[
            ("/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "5"),
            ("/sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "0"),
            ("/sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "0"),
        ],
        passed: &[
            ("/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "0"),
            ("/sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "0"),
            ("/sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "0"),
        ],
        undecided: (&[], "core_throttle_count is not there"),
    },
    Case {
        rule: "steal",
        found: &[("/proc/stat", "cpu 1 1 1 1 1 1 1 50\ncpu0 0 0 0 0 0 0 0 0\ncpu1 9 0 0 9 0 0 0 9 0 0\n")],
        // CPU 0 is not the job's
        passed: &[("/proc/stat", "cpu 1 1 1 1 1 1 1 50\ncpu0 0 0 0 0 0 0 0 50\ncpu1 9 0 0 9 0 0 0 0 0 0\n")],
        undecided: (&[("/proc/stat", "cpu 1 1\n")], "no line"),
    },
    Case {
        rule: "clocksource",
        found: &[
            ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "hpet acpi_pm tsc\n"),
        ],
        passed: &[("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")],
        undecided: (&[], "current_clocksource is not there"),
    },
    Case {
        rule: "sched-ext",
        found: &[("/sys/kernel/sched_ext/state", "enabled\n"), ("/sys/kernel/sched_ext/root/ops", "lavd\n")],
        passed: &[("/sys/kernel/sched_ext/state", "disabled\n")],
        undecided: (&[("/sys/kernel/sched_ext/state", "enabled\n")], "root/ops is not there"),
    },
    Case {
        rule: "slices",
        found: &[
            ("/proc/1/comm", "systemd\n"),
            ("/sys/fs/cgroup/init.scope/cpuset.cpus.effective", "0"),
            ("/sys/fs/cgroup/system.slice/cgroup.procs", ""),
            ("/sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0-3"),
        ],
        passed: &[
            ("/proc/1/comm", "systemd\n"),
            ("/sys/fs/cgroup/init.scope/cpuset.cpus.effective", "0"),
            ("/sys/fs/cgroup/system.slice/cpuset.cpus.effective", "0"),
            ("/sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0"),
        ],
        undecided: (&[("/proc/1/comm", "sh\n")], "systemd"),
    },
];

const IDLE_DEEP: Files = &[
    ("/sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "133\n"),
    ("/sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0\n"),
    ("/sys/devices/system/cpu/cpu1/cpuidle/state1/name", "C6\n"),
    ("/sys/devices/system/cpu/cpu2/cpuidle/state0/latency", "0\n"),
    ("/sys/devices/system/cpu/cpu3/cpuidle/state0/latency", "2\n"),
];
const IDLE_OFF: Files = &[
    ("/sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "133\n"),
    ("/sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "1\n"),
    ("/sys/devices/system/cpu/cpu2/cpuidle/state0/latency", "0\n"),
    ("/sys/devices/system/cpu/cpu3/cpuidle/state0/latency", "2\n"),
];

#[test]
fn every_rule_finds_passes_and_says_why_it_cannot_tell() {
    for case in CASES {
        let rule = case.rule;
        let Ruled::Found(found) = Made::new(case.found).rule(rule) else {
            panic!("{rule}: {:?}", Made::new(case.found).rule(rule));
        };
        for finding in &found {
            assert!(finding.title.ends_with('.') && !finding.evidence.is_empty(), "{finding:?}");
            assert!(!finding.remedies.is_empty() || finding.advice.is_some(), "{finding:?}");
            for remedy in &finding.remedies {
                assert!(!remedy.risk.is_empty() && !remedy.commands().is_empty(), "{finding:?}");
                // nothing stays of a job's start
                let has_undo = !remedy.undo_commands().is_empty();
                assert!(has_undo || remedy.effort == Effort::JobStart, "{finding:?}");
            }
        }
        let passed = Made::new(case.passed).rule(rule);
        assert!(matches!(passed, Ruled::Passed), "{rule}: {passed:?}");
        let (files, reason) = case.undecided;
        let undecided = Made::new(files).rule(rule);
        assert!(matches!(&undecided, Ruled::Undecided(why) if why.contains(reason)), "{rule}: {undecided:?}");
    }
}

#[test]
fn every_rule_has_a_case() {
    let cases: BTreeSet<&str> =
        CASES.iter().map(|c| c.rule).chain(["smi", "clock-discipline", "tai-offset", "daemon"]).collect();
    let rules: BTreeSet<&str> = RULES.iter().map(|r| r.id).collect();
    assert_eq!(cases, rules);
    assert_eq!(rules.len(), RULES.len(), "a name is used once");
}

#[test]
fn clocks_and_firmware_are_asked_of_the_running_node() {
    let collected = Made::new(&[]);
    for rule in ["clock-discipline", "tai-offset", "smi"] {
        assert!(
            matches!(collected.rule(rule), Ruled::Undecided(why) if why.contains("running node")),
            "{rule}"
        );
    }
    let probed = |disciplined, tai_offset_s, smis| {
        let clock = Some(ClockState { disciplined, max_error_us: 500, tai_offset_s });
        Made::new(&[("/proc/uptime", "3600.0 1.0\n")]).probes(Probes {
            clock,
            dma_latency_us: None,
            smis: Some(smis),
        })
    };
    let bad = probed(false, 0, Ok(900));
    let good = probed(true, 37, Ok(0));
    for rule in ["clock-discipline", "tai-offset", "smi"] {
        assert!(matches!(bad.rule(rule), Ruled::Found(_)), "{rule}");
        assert!(matches!(good.rule(rule), Ruled::Passed), "{rule}");
    }
    let denied = probed(true, 37, Err("/dev/cpu/0/msr may not be read".into()));
    assert!(matches!(denied.rule("smi"), Ruled::Undecided(why) if why.contains("hwlatdetect")));
}

#[test]
fn a_request_for_low_latency_makes_deep_states_harmless() {
    let latency = |us| Probes { dma_latency_us: Some(Ok(us)), ..Probes::default() };
    assert!(matches!(Made::new(IDLE_DEEP).probes(latency(0)).rule("idle-states"), Ruled::Passed));
    assert!(matches!(
        Made::new(IDLE_DEEP).probes(latency(2_000_000_000)).rule("idle-states"),
        Ruled::Found(_)
    ));
}

#[test]
fn daemons_of_a_trace_are_named_with_their_unit() {
    assert!(matches!(Made::new(&[]).rule("daemon"), Ruled::Undecided(why) if why.contains("colony measure")));
    let thread = |name: &str, share| ThreadSeen { source: format!("thread:{name}"), per_second: 2.0, share };
    let threads = vec![
        thread("kworker/1:0", 0.5),
        thread("kdamond.0", 0.2),
        thread("irqbalance", 0.02),
        thread("gone", 0.0),
    ];
    let made =
        Made::new(&[("/proc/77/stat", STAT_OTHER), ("/proc/78/stat", &STAT_KDAMOND.replace("77", "78"))]);
    made.put("/proc/77/cgroup", "0::/system.slice/irqbalance.service\n");
    let Ruled::Found(found) = made.threads(threads).rule("daemon") else { panic!("nothing") };
    let ids: Vec<&str> = found.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["daemon:irqbalance", "daemon:gone"], "the kernel's own threads have rules of their own");
    let remedy = &found[0].remedies[0];
    assert_eq!(remedy.commands(), ["systemctl set-property --runtime irqbalance.service AllowedCPUs=0"]);
    assert_eq!(remedy.undo_commands(), ["systemctl set-property --runtime irqbalance.service AllowedCPUs="]);
    assert!(found[1].remedies.is_empty() && found[1].advice.is_some());
}
