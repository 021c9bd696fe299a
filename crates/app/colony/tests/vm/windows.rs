// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler in the kernel keeps everything but the job out of favored windows.

use colony_client::Backend;
use colony_client::ExtStats;
use colony_sched::run::RunReport;

use crate::common::{collecting, counted, node_with, report, sh};

fn ext(report: &RunReport) -> &ExtStats {
    report.sched_ext.as_ref().expect("the scheduler in the kernel ran")
}

/// Share of favored windows in which something else ran while the job waited.
fn stolen(report: &RunReport) -> f64 {
    report.proof.favored.stolen_ns as f64 / report.proof.favored.observed_ns as f64
}

fn deferred(report: &RunReport, comm: &str) -> u64 {
    ext(report).deferred.iter().find(|d| d.comm.starts_with(comm)).map_or(0, |d| d.times)
}

/// Virtual time is instructions: the same in every run, whatever else this machine does.
#[test]
fn favored_windows_belong_to_the_job_whatever_happens_to_kernel_threads() {
    let names = ["quiet", "quiet_ext", "none", "bypass", "hold", "hold_all", "exempt", "group", "cgroup"];
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &collecting(counted(vm, 2), &names),
        r#"
        run quiet --backend none -- sh -c "$job"
        run quiet_ext --backend sched-ext -- sh -c "$job"
        noise & N=$!
        run none --backend none -- sh -c "$job"
        run bypass --backend sched-ext --kthreads bypass -- sh -c "$job"
        run hold --backend auto -- sh -c "$job"
        run hold_all --backend sched-ext --kthreads hold-all -- sh -c "$job"
        # threads of a parallel file system, by name and by cgroup
        cp /bin/busybox /tmp/ash; (/tmp/ash -c 'printf mmfsd1 > /proc/self/comm
            while :; do i=0; while [ $i -lt $noise_loops ]; do i=$((i+1)); done; sleep 0.08; done') & M=$!
        run exempt --backend sched-ext --exempt 'mmfsd*' --exempt sleep -- sh -c "$job"
        kill $M
        mkdir /sys/fs/cgroup/fs; echo $N > /sys/fs/cgroup/fs/cgroup.procs
        run group --backend sched-ext --exempt cgroup:/fs -- sh -c "$job"
        test $(state) = disabled
        "#,
    );
    let r = |name: &str| report(&out, name);
    let [none, hold] = ["none", "hold"].map(r);
    assert!(stolen(&none) > 0.1, "the noise is there: {:?}", none.proof.favored);
    assert_eq!(hold.backend, Backend::SchedExt, "chosen by itself: {:?}", hold.warnings);
    for name in ["bypass", "hold", "hold_all"] {
        let report = r(name);
        let bound = if name == "bypass" { 0.005 } else { 0.0001 };
        eprintln!("{name}: {:.5} % stolen in favored windows", stolen(&report) * 100.0);
        assert!(stolen(&report) <= bound, "{name}: {:?}, {:?}", report.proof.favored, report.proof.threads);
        assert!(
            report.proof.regular.stolen_ns > report.proof.favored.stolen_ns * 20,
            "{name}: noise is deferred"
        );
        let times: u64 = ["sh", "sleep"].iter().map(|comm| deferred(&report, comm)).sum();
        assert!(times > 5, "{name}: {:?}", ext(&report).deferred);
        assert!(ext(&report).edges > 10 && ext(&report).missed == 0);
        assert!(ext(&report).lateness.p99_ns < 100_000, "virtual time: {:?}", ext(&report).lateness);
    }
    // kernel threads wait where they are held, and only there
    assert!(deferred(&r("hold"), "kworker") > 0 && deferred(&r("bypass"), "kworker/0") == 0);
    // the exempt are not held back
    let (exempt, group) = (r("exempt"), r("group"));
    assert!(
        ext(&exempt).favored.exempt_ns > 20 * ext(&hold).favored.exempt_ns.max(1),
        "{:?}",
        ext(&exempt).favored
    );
    assert_eq!(deferred(&exempt, "mmfsd1"), 0);
    assert!(stolen(&group) > 0.05, "{:?}", group.proof.favored);
    // what the scheduler itself costs where there is nothing to hold back
    let (quiet, with) = (r("quiet"), r("quiet_ext"));
    let cost = with.job_cpu_ns as f64 / quiet.job_cpu_ns as f64;
    eprintln!("the scheduler's own cost without noise: {cost:.5} times the CPU time");
    assert!(cost < 1.005, "CPU time {cost} times that without");
}

#[test]
fn an_idle_favored_window_is_filled_unless_that_is_forbidden() {
    let Some(vm) = node_with(&["/usr/bin/chrt"]) else { return };
    let out = sh(
        &collecting(counted(vm, 1), &["filled", "strict", "real_time", "demoted", "two"]),
        r#"
        while :; do :; done & N=$!
        run filled --backend sched-ext -- sleep 1
        run strict --backend sched-ext --strict -- sleep 1
        kill $N
        # two tasks of the job on one CPU share it
        run two --backend sched-ext -- sh -c "($job) & ($job) & wait"
        cp /bin/busybox /tmp/ash; chrt -f 10 /tmp/ash -c 'printf rtnoise > /proc/self/comm
            while :; do i=0; while [ $i -lt $noise_loops ]; do i=$((i+1)); done; sleep 0.08; done' & R=$!
        run real_time --backend sched-ext -- sh -c "$job"
        run demoted --backend sched-ext --demote rtnoise -- sh -c "$job; $job"
        chrt -p $R | grep -q SCHED_FIFO
        (run killed --backend sched-ext --demote rtnoise -- sh -c "$job") & K=$!
        for i in $(seq 60); do sleep 0.5; chrt -p $R | grep -q SCHED_OTHER && break; done
        chrt -p $R | grep -q SCHED_OTHER
        killall -9 colony
        for i in $(seq 60); do sleep 0.5; chrt -p $R | grep -q SCHED_FIFO && break; done
        chrt -p $R | grep SCHED_FIFO; kill $R
        "#,
    );
    let r = |name: &str| report(&out, name);
    let (filled, strict) = (r("filled"), r("strict"));
    assert!(
        ext(&filled).favored.filled_ns > ext(&filled).favored.total_ns() / 2,
        "{:?}",
        ext(&filled).favored
    );
    assert!(ext(&filled).favored.other_ns < ext(&filled).favored.filled_ns / 20, "accounted apart");
    assert_eq!((ext(&strict).favored.filled_ns, ext(&strict).filled), (0, 0));
    assert!(
        ext(&strict).favored.away_ns > ext(&strict).favored.total_ns() * 9 / 10,
        "{:?}",
        ext(&strict).favored
    );
    assert!(ext(&r("two")).favored.job_ns > ext(&r("two")).favored.total_ns() * 9 / 10);
    // real-time tasks are above the scheduler: seen, named, and held once they are demoted
    let (above, demoted) = (r("real_time"), r("demoted"));
    assert!(
        stolen(&above) > 0.05 && above.warnings.iter().any(|w| w.contains("--demote rtnoise")),
        "{above:?}"
    );
    assert_eq!(ext(&demoted).demoted.len(), 1);
    assert!(stolen(&demoted) < stolen(&above) / 10.0, "{:?}", demoted.proof.favored);
}
