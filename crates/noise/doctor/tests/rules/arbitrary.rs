// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever is in the files, no rule panics and no report grows without bound.

use proptest::prelude::*;

use crate::node::Made;

/// Files that rules parse.
const FILES: [&str; 36] = [
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/irq/24/smp_affinity_list",
    "/proc/irq/24/effective_affinity_list",
    "/proc/irq/24/eth0/x",
    "/proc/irq/default_smp_affinity",
    "/proc/77/stat",
    "/proc/77/task/78/stat",
    "/proc/77/status",
    "/proc/77/cgroup",
    "/proc/1/comm",
    "/proc/stat",
    "/proc/swaps",
    "/proc/meminfo",
    "/proc/uptime",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/watchdog_cpumask",
    "/proc/sys/kernel/soft_watchdog",
    "/proc/sys/vm/stat_interval",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu1/cpuidle/state1/latency",
    "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
    "/sys/devices/virtual/workqueue/cpumask",
    "/sys/devices/virtual/workqueue/writeback/cpumask",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/sched_ext/state",
    "/sys/kernel/sched_ext/root/ops",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/a/cgroup.procs",
    "/sys/fs/cgroup/a/memory.events",
    "/etc/default/irqbalance",
];

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[0-9,a-f\\-() \n:]{0,60}".prop_map(String::into_bytes),
        "[\\[\\]a-z =\"%/_0-9-]{0,80}".prop_map(String::into_bytes),
        Just(b"77 (a) b) S 1 2 3".to_vec()),
        Just(b"99999999999999999999999".to_vec()),
        Just(b"0-1023".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_contents_panic(contents in prop::collection::vec(text(), FILES.len()), left_out in any::<u64>()) {
        let made = Made::new(&[]);
        for (n, (file, text)) in FILES.iter().zip(contents).enumerate() {
            if left_out >> n & 1 == 0 {
                made.put(file, text);
            }
        }
        let all = made.examine();
        let json = serde_json::to_string(&all).expect("JSON");
        prop_assert!(json.len() < 1 << 20, "{} bytes", json.len());
        let back: colony_doctor::Examination = serde_json::from_str(&json).expect("reads back");
        prop_assert_eq!(back, all);
    }
}
