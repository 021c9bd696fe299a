// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colonyd` keeps its windows by the scheduler in the kernel, with the privileges it has left.

use colony_client::Backend;
use colony_client::StatsReport;
use colony_sched::run::RunReport;

use crate::common::{colonyd, counted, node_with, sh};

#[test]
fn colonyd_schedules_its_job_in_the_kernel_until_it_ends_or_is_killed() {
    let Some(daemon) = colonyd() else { return };
    let Some(vm) = node_with(&[daemon.to_str().expect("a path")]) else { return };
    let vm = counted(vm, 2).collect("/tmp/stats.json").collect("/tmp/run.json").collect("/tmp/metrics");
    let out = sh(
        &vm,
        r#"
        mkdir /sys/fs/cgroup/batch
        cat > /tmp/colonyd.toml <<'T'
period = "200ms"
duty_cycle = "80%"
cpus = "all"
[sched_ext]
kthreads = "hold"
exempt = ["mmfsd*"]
job_cgroups = ["/batch"]
[metrics]
listen = "127.0.0.1:9464"
T
        ifconfig lo up
        start() { colonyd --config /tmp/colonyd.toml 2>> /tmp/colonyd.err & D=$!; until test -e /run/colony/stats; do sleep 0.1; done; }
        until_is() { for n in $(seq 75); do test "$(state)" = $1 && return; sleep 0.2; done; cat /tmp/colonyd.err; false; }
        start
        noise & N=$!
        # a process that writes its number, and one in the job's cgroup, are the job
        sh -c "$job; $job; $job" & J=$!; echo $J > /run/colony/job
        until_is enabled; sleep 1; dd if=/run/colony/stats of=/tmp/stats.json bs=64k 2> /dev/null
        wget -q -O /tmp/metrics http://127.0.0.1:9464/metrics
        wait $J; until_is disabled
        colony run --out /tmp/run.json -- sh -c "$job" 2> /tmp/run.err
        until_is disabled
        # killed: the kernel's own scheduler is back
        sleep 30 & echo $! > /run/colony/job; until_is enabled
        kill -9 $D; until_is disabled; killall sleep
        # ended: the same
        for n in $(seq 25); do test -e /run/colony/stats || break; sleep 0.3; done
        start; sleep 30 & echo $! > /run/colony/job; until_is enabled; kill $D; wait $D; test $(state) = disabled
        "#,
    );
    let file = |name: &str| {
        let file = out.files.iter().find(|(path, _)| path.ends_with(name)).map(|(_, f)| f.as_ref());
        file.and_then(Result::ok).unwrap_or_else(|| panic!("{name}: {}", out.error_text()))
    };
    let stats: StatsReport = serde_json::from_slice(file("stats.json")).expect("stats");
    let ext = stats.sched_ext.expect("the scheduler ran");
    assert_eq!(stats.kept_by, Backend::SchedExt, "{:?}", stats.warnings);
    assert!(ext.favored.job_ns > ext.favored.total_ns() * 9 / 10, "{:?}", ext.favored);
    assert!(ext.edges > 2 && ext.stopped.is_none());
    let metrics = String::from_utf8_lossy(file("metrics"));
    let figure = |series: &str| -> f64 {
        let found = metrics.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        found.unwrap_or_else(|| panic!("{series} is not in\n{metrics}"))
    };
    assert_eq!(figure("colony_keeper{by=\"sched_ext\"}"), 1.0);
    assert!(figure("colony_edge_lateness_seconds_count{by=\"sched_ext\"}") > 2.0);
    let of_cpu = |state: &str| {
        figure(&format!("colony_cpu_seconds_total{{cpu=\"0\",window=\"favored\",state=\"{state}\"}}"))
    };
    assert!(of_cpu("job") > 9.0 * of_cpu("other"), "{metrics}");
    let run: RunReport = serde_json::from_slice(file("run.json")).expect("a report");
    assert_eq!(run.backend, Backend::Daemon);
    assert!(run.sched_ext.is_some_and(|s| s.edges > 0), "the daemon's figures are in the run's report");
    assert!(run.proof.favored.stolen_ns * 1000 < run.proof.favored.observed_ns, "{:?}", run.proof.favored);
}
