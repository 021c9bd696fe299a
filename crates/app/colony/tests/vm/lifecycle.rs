// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler in the kernel ends well, however it ends.

use colony_client::Backend;
use colony_vm::{Accel, Vm};

use crate::common::{collecting, colonyd, counted, node_with, report, sh};

#[test]
fn whatever_ends_the_scheduler_ordinary_scheduling_goes_on() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &collecting(counted(vm, 1), &["beside", "stalled"]),
        r#"
        # there can be one: a second is refused, or takes the agent
        (run first --backend sched-ext -- sleep 100) & until test $(state) = enabled; do sleep 0.2; done
        test $(cat /sys/kernel/sched_ext/root/ops) = colony
        ! run second --backend sched-ext -- true
        grep -q 'another sched_ext scheduler is loaded (colony)' /tmp/second.err
        run beside -- true
        # killed: the kernel's scheduler is back at once, and the job lives
        killall -9 colony; sleep 0.3; test $(state) = disabled; killall sleep
        # starved tasks: the kernel ends the scheduler, its report names one, and the agent goes on. They begin when the
        # scheduler runs, and the job works for a second more when the kernel has ended the scheduler.
        mkfifo /tmp/go
        for n in $(seq 24); do sh -c 'printf starved > /proc/self/comm; read -r go < /tmp/go; while :; do :; done' & done
        until_is='until read -r state < /sys/kernel/sched_ext/state && test $state ='
        colony run --cpus 0 --period 200ms --duty 98% --watchdog 2s --exempt 'kworker*' --exempt 'colony*' \
            --out /tmp/stalled.json \
            -- sh -c "$until_is enabled; do :; done; : > /tmp/go; $until_is disabled; do :; done
                i=0; while [ \$i -lt $LOOPS_A_SECOND ]; do i=\$((i+1)); done" 2> /tmp/stalled.err
        test $(state) = disabled
        "#,
    );
    let (beside, stalled) = (report(&out, "beside"), report(&out, "stalled"));
    assert_eq!(beside.backend, Backend::Agent);
    assert!(
        beside.warnings.iter().any(|w| w.contains("another sched_ext scheduler")),
        "{:?}",
        beside.warnings
    );
    assert_eq!(stalled.backend, Backend::Agent, "{:?}", stalled.warnings);
    let why = stalled.warnings.iter().find(|w| w.contains("the kernel ended the scheduler"));
    assert!(why.is_some_and(|w| w.contains("starved[")), "{:?}", stalled.warnings);
    assert!(stalled.agent.is_some_and(|a| a.edges > 0) && stalled.sched_ext.is_some_and(|s| s.edges > 0));
}

/// `COLONY_VM_KILLS` sets how often.
#[test]
fn whatever_is_killed_beside_the_scheduler_demoted_tasks_are_real_time_again() {
    let Some(vm) = node_with(&["/usr/bin/chrt"]) else { return };
    let times = std::env::var("COLONY_VM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let script = r#"
        cp /bin/busybox /tmp/ash; chrt -f 10 /tmp/ash -c 'printf rtnoise > /proc/self/comm
            while :; do sleep 0.08; done' & R=$!
        is() { chrt -p $R | grep -q "$1"; }
        soon() { for n in $(seq 100); do "$@" && return; sleep 0.1; done; echo "kill $k: never $*" >&2; chrt -p $R >&2; state >&2; false; }
        named() { for p in /proc/[0-9]*; do read -r c 2> /dev/null < $p/comm && test "$c" = $1 && echo ${p#/proc/}; done; true; }
        off() { test $(state) = disabled; }
        for k in $(seq TIMES); do
            (run storm --backend sched-ext --demote rtnoise -- sleep 1000) &
            soon is SCHED_OTHER; sleep 0.0$k
            main=$(named colony); guardian=$(named colony-guardian)
            case $((k % 4)) in
                0) kill -9 $main ;;
                1) kill -9 $guardian $main ;;
                2) kill -9 $main $guardian ;;
                3) kill -9 $guardian; sleep 0.1; kill -9 $main ;;
            esac
            soon is SCHED_FIFO; soon off; killall sleep; wait $! || true
        done
        kill $R
        "#;
    sh(&counted(vm, 1), &script.replace("TIMES", &u32::to_string(&times)));
}

#[test]
fn cpus_may_come_and_go_and_clocks_be_set() {
    let Some(vm) = node_with(&[]) else { return };
    let vm = collecting(vm.cpus(2).accel(Accel::SingleThread).append("nohz_full=1"), &["hotplug", "step"]);
    // the first run in the node: after another one, a CPU that goes can wait ten seconds for the worker that frees it
    let out = sh(
        &vm,
        r#"
        noise & N=$!
        # one of the job's CPUs goes and comes back, long before the job ends
        colony run --cpus 0-1 --period 200ms --duty 80% --out /tmp/hotplug.json --backend sched-ext -- sh -c "$job; $job; $job; $job" 2>/tmp/hotplug.err & J=$!
        until test $(state) = enabled; do sleep 0.2; done; sleep 0.5
        echo 0 > /sys/devices/system/cpu/cpu1/online; sleep 1; echo 1 > /sys/devices/system/cpu/cpu1/online
        wait $J; cat /tmp/hotplug.err
        (run step --backend sched-ext -- sh -c "$job; $job; $job; $job") & J=$!
        until test $(state) = enabled; do sleep 0.2; done; sleep 0.5
        date -s @$(($(date +%s) + 3600)) > /dev/null; wait $J
        "#,
    );
    let step = report(&out, "step");
    assert!(step.sched_ext.is_some_and(|s| s.clock_steps >= 1 && s.stopped.is_none()), "{:?}", step.warnings);
    let hotplug = report(&out, "hotplug").sched_ext.expect("ran");
    assert!(hotplug.restarts >= 1 && hotplug.stopped.is_none(), "{hotplug:?}");
}

#[test]
fn windows_go_on_after_the_jobs_only_cpu_was_offline_and_under_the_next_daemon() {
    let Some(daemon) = colonyd() else { return };
    let Some(vm) = node_with(&[daemon.to_str().expect("a path")]) else { return };
    sh(
        &vm.cpus(2),
        r#"
        start() { colonyd --period 200ms --duty 80% --cpus 1 2>> /tmp/colonyd.err & D=$!; until test -e /run/colony/stats; do sleep 0.1; done; }
        soon() { for n in $(seq 150); do "$@" && return; sleep 0.2; done; echo "never: $*" >&2; says '.' >&2; cat /tmp/colonyd.err >&2; false; }
        says() { sed '' /run/colony/stats | grep "$1"; }
        enabled() { test $(state) = enabled; }
        start; sleep 1000 & J=$!; echo $J > /run/colony/job; soon enabled; soon says '"kept_by": "sched_ext"'
        # offline for longer than CPUs that come and go are waited for
        echo 0 > /sys/devices/system/cpu/cpu1/online; soon says '"kept_by": "nothing"'; soon says 'are offline; they are kept again'
        sleep 12; says '"kept_by": "nothing"'; ! enabled
        echo 1 > /sys/devices/system/cpu/cpu1/online; soon enabled; soon says '"kept_by": "sched_ext"'
        ! says 'are offline; they are kept again'
        # killed, and started again: the job is still the job
        kill -9 $D; for n in $(seq 100); do test -e /run/colony || break; sleep 0.1; done
        ! enabled; start; soon enabled; test "$(sed '' /run/colony/job)" = $J; soon says '"kept_by": "sched_ext"'
        kill $J; for n in $(seq 100); do enabled || break; sleep 0.1; done; ! enabled; ! test -e /run/colony-state
        kill $D; wait $D
        "#,
    );
}

#[test]
fn ticks_stop_where_one_task_of_the_job_has_a_cpu() {
    let Some(vm) = node_with(&[]) else { return };
    let vm = collecting(vm.cpus(2).accel(Accel::SingleThread).append("nohz_full=1"), &["ticks", "tickless"]);
    // two emulated CPUs in ordinary time: a bad minute of this host says nothing of Colony
    assert!((0..3).any(|_| ticks_stop(&vm)), "the tick goes on, in each of three runs");
}

/// Returns `true` if at least 20 of 21 ticks stop.
fn ticks_stop(vm: &Vm) -> bool {
    let out = sh(
        vm,
        r#"
        on1() { name=$1; shift; colony run --cpus 1 --period 200ms --duty 80% --out /tmp/$name.json "$@" 2>/tmp/$name.err; }
        noise & N=$!
        on1 tickless --backend sched-ext -- sh -c "$job"
        # two tasks of the job take turns, which needs the tick
        on1 ticks --backend sched-ext -- sh -c "($job) & ($job) & wait"
        "#,
    );
    let ticks = |name: &str| {
        let report = report(&out, name);
        let ext = report.sched_ext.expect("ran");
        ext.ticks_favored as f64 / ext.favored.job_ns as f64
    };
    let (with, without) = (ticks("ticks"), ticks("tickless"));
    eprintln!("ticks a favored ns: {with:e} with, {without:e} without an end of the slice");
    without * 20.0 <= with
}
