// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that nobody has collected is not known, one file does not stand for all, and units are those of the processes.

use colony_doctor::ThreadSeen;

use crate::node::{Made, Ruled};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

#[test]
fn what_nobody_has_collected_is_not_known() {
    let kernel = ("/proc/sys/kernel/osrelease", "6.14.0\n");
    let made = Made::new(&[
        kernel,
        ("/proc/cmdline", "nohz_full=1-3"),
        ("/proc/sys/kernel/numa_balancing", "1\n"),
        ("/proc/sys/kernel/timer_migration", "1\n"),
        ("/proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
        ("/sys/kernel/debug/sched/features", "\n"),
        ("/sys/class/net/eth0/address", "\n"),
        ("/sys/fs/cgroup/cgroup.controllers", "\n"),
    ]);
    for rule in [
        "nohz-full",
        "rcu-nocbs",
        "sched-ext",
        "fair-server",
        "rt-throttling",
        "numa-balancing",
        "timer-migration",
        "irqbalance",
        "kdamond",
        "rt-tasks",
        "receive-steering",
        "memory-reclaim",
        "cpu-quota",
    ] {
        let ruled = made.rule(rule);
        assert!(matches!(ruled, Ruled::Undecided(_)), "{rule}: {ruled:?}");
    }
    made.put("/boot/config-6.14.0", "# CONFIG_SCHED_CLASS_EXT is not set\n");
    assert!(matches!(made.rule("sched-ext"), Ruled::Found(_)), "the configuration says it");
}

#[test]
fn figures_that_cannot_be_read_are_not_zero() {
    let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/a partition 100 many -2\n";
    let made = Made::new(&[("/proc/swaps", swaps), ("/proc/stat", "cpu1 9 0 0 9 0 0 0 many\n")]);
    for rule in ["swap", "steal"] {
        assert!(matches!(made.rule(rule), Ruled::Undecided(why) if why.contains("many")), "{rule}");
    }
}

#[test]
fn a_size_of_pages_overrides_the_file_for_all_sizes() {
    let made = |all: &str, huge: &str, small: &str| {
        let made = Made::new(&[]);
        let choose = |chosen: &str, words: &[&str]| {
            let marked = |w: &&str| if *w == chosen { format!("[{w}]") } else { (*w).to_owned() };
            words.iter().map(marked).collect::<Vec<_>>().join(" ")
        };
        let own = ["always", "inherit", "madvise", "never"];
        made.put(&format!("{THP}/enabled"), choose(all, &["always", "madvise", "never"]));
        made.put(&format!("{THP}/hugepages-2048kB/enabled"), choose(huge, &own));
        made.put(&format!("{THP}/hugepages-64kB/enabled"), choose(small, &own));
        made.put(&format!("{THP}/defrag"), "[always] defer defer+madvise madvise never");
        made
    };
    let found = |made: &Made, rule| matches!(made.rule(rule), Ruled::Found(_));
    let off = made("madvise", "never", "inherit");
    assert_eq!(
        off.finding("thp").remedies[0].commands(),
        [format!("echo inherit > {THP}/hugepages-2048kB/enabled")]
    );
    assert!(!found(&off, "mthp") && found(&off, "thp-defrag"));
    let all_off = made("never", "inherit", "inherit");
    assert!(found(&all_off, "thp") && found(&all_off, "mthp") && !found(&all_off, "thp-defrag"));
    let on = made("never", "madvise", "never");
    assert!(!found(&on, "thp") && found(&on, "mthp") && found(&on, "thp-defrag"));
    // Arm with base pages of 64 KiB has other sizes
    let arm = made("madvise", "never", "never");
    arm.put(&format!("{THP}/hpage_pmd_size"), "536870912\n");
    arm.put(&format!("{THP}/hugepages-524288kB/enabled"), "always [inherit] madvise never\n");
    assert!(!found(&arm, "thp") && found(&arm, "mthp"));
}

#[test]
fn huge_pages_of_every_size_count_and_promised_ones_are_not_free() {
    let pool = |made: &Made, kib: u32, total: u32, free: u32, promised: u32| {
        let dir = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB");
        made.put(&format!("{dir}/nr_hugepages"), format!("{total}\n"));
        made.put(&format!("{dir}/free_hugepages"), format!("{free}\n"));
        made.put(&format!("{dir}/resv_hugepages"), format!("{promised}\n"));
    };
    let made = Made::new(&[("/proc/meminfo", "HugePages_Total: 0\nHugePages_Free: 0\n")]);
    pool(&made, 2048, 8, 4, 4);
    assert!(matches!(made.rule("huge-pages"), Ruled::Found(_)), "all free ones are promised");
    pool(&made, 1_048_576, 16, 12, 0);
    assert!(matches!(made.rule("huge-pages"), Ruled::Passed));
    // the default size alone, with pages of another size that are in use or not
    let other = "HugePages_Total: 0\nHugePages_Free: 0\nHugePages_Rsvd: 0\nHugepagesize: 2048 kB\nHugetlb: 16777216 kB\n";
    assert!(matches!(Made::new(&[("/proc/meminfo", other)]).rule("huge-pages"), Ruled::Undecided(_)));
}

#[test]
fn the_unit_of_a_scheduler_is_that_of_its_process() {
    let stat = |name: &str| {
        format!(
            "611 ({name}) S 1 611 611 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 100 1000 10 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 0\n"
        )
    };
    let made = |group: &str| {
        let made = Made::new(&[("/sys/kernel/sched_ext/state", "enabled\n")]);
        made.put("/sys/kernel/sched_ext/root/ops", "flatcg_1.0.9_x86_64_unknown_linux_gnu\n");
        made.put("/proc/611/stat", stat("scx_flatcg"));
        made.put("/proc/611/cgroup", format!("0::{group}\n"));
        made.finding("sched-ext")
    };
    for unit in ["scx.service", "scx_loader.service", "site.service"] {
        let remedy = &made(&format!("/system.slice/{unit}")).remedies[0];
        assert_eq!(remedy.commands(), [format!("systemctl stop {unit}")]);
        assert_eq!(remedy.undo_commands(), [format!("systemctl start {unit}")]);
    }
    let by_hand = made("/user.slice/user-1000.slice/session-1.scope");
    assert!(by_hand.remedies.is_empty() && by_hand.advice.is_some_and(|a| a.contains("611 (scx_flatcg)")));
}

#[test]
fn threads_in_a_trace_win_over_the_setting() {
    let made = || {
        Made::new(&[
            ("/sys/kernel/mm/ksm/run", "0\n"),
            ("/sys/devices/virtual/workqueue/cpumask", "1\n"),
            ("/proc/sys/vm/compaction_proactiveness", "0\n"),
        ])
    };
    let seen =
        |name: &str, per_second| ThreadSeen { source: format!("thread:{name}"), per_second, share: 0.01 };
    let made_with = |per_second| {
        made().threads(vec![
            seen("ksmd", per_second),
            seen("kworker/u8:1", per_second),
            seen("kcompactd0", 0.001),
        ])
    };
    for rule in ["ksm", "workqueue-unbound"] {
        let finding = made_with(2.0).finding(rule);
        assert!(
            finding.evidence[0].file.starts_with("/sys") && finding.evidence[1].file == "trace",
            "{finding:?}"
        );
        assert!(matches!(made_with(0.001).rule(rule), Ruled::Passed), "{rule}");
    }
    assert!(matches!(made_with(2.0).rule("compaction"), Ruled::Passed));
}
