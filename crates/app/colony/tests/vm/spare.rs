// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony run --spare-cores` on nodes of four CPUs: cpuset partitions, their fallbacks, and the node as before.

use colony_sched::spare::Partition;
use colony_vm::{Accel, Vm};

use crate::common::{collecting, node_with, report, sh, study};

/// `state` prints what a reservation changes: groups, CPUs of every task that lives on, settings.
const STATE: &str = r#"
G=/sys/fs/cgroup
state() {
    echo "groups $(ls -d $G/colony* $G/*/*/colony* 2>/dev/null | wc -l)"
    for f in $G/cpuset.cpus.effective $G/cgroup.subtree_control $G/slurm/cgroup.subtree_control \
        $G/slurm/step/cgroup.subtree_control $G/slurm/cpuset.cpus.exclusive /proc/sys/vm/stat_interval \
        /sys/devices/virtual/workqueue/cpumask /proc/irq/default_smp_affinity /proc/irq/*/smp_affinity
    do [ ! -e $f ] || echo "$f $(cat $f 2>/dev/null)"; done
    for pid in 1 2 $KEPT; do echo "$pid $(grep Cpus_allowed_list /proc/$pid/status)"; done
    ls /run/colony-undo 2>/dev/null | grep spare$ || true
    ls /run/colony-tune 2>/dev/null | grep json || true
}
uptime_s() { cut -d. -f1 /proc/uptime; }
settled() {
    until=$(($(uptime_s) + 30))
    while state > /tmp/now; ! cmp -s /tmp/before /tmp/now; do test $(uptime_s) -lt $until || { diff /tmp/before /tmp/now; return; }; sleep 0.1; done
    echo "as before at $(uptime_s) s"  # a node that says nothing for two minutes is given up
}
spare="colony run --spare-cores 1 --backend none"
"#;

fn four() -> Option<Vm> {
    Some(node_with(&[])?.cpus(4).accel(Accel::SingleThread))
}

#[test]
fn a_job_cannot_leave_its_cpus_and_others_cannot_enter() {
    let Some(vm) = four() else { return };
    let names = ["alone", "nested", "agent", "ext", "unbound", "affinity"];
    let out = sh(
        &collecting(vm, &names),
        &format!(
            r#"{STATE}
        sleep 1000 & A=$!
        sh -c 'taskset -p 4 $$ > /dev/null; exec sleep 1000' & B=$!
        KEPT="$A $B"
        for i in $(seq 100); do grep -q 'list:.2$' /proc/$B/status && break; sleep 0.1; done
        state > /tmp/before
        # the job asks for the spare CPU and for all of them, and gets its own; the others are off them
        $spare --out /tmp/alone.json -- sh -c 'taskset -p 1 $$ && exit 3; taskset -p f $$ > /dev/null
            grep Cpus_allowed_list /proc/$$/status > /tmp/job; cat /sys/fs/cgroup/colony-spare.*/cpuset.cpus.partition >> /tmp/job
            grep Cpus_allowed_list /proc/'$A'/status /proc/'$B'/status > /tmp/others' 2> /tmp/err || {{ cat /tmp/err; false; }}
        test "$(tr -d '\t' < /tmp/job)" = "Cpus_allowed_list:1-3
isolated"
        test "$(grep -c 'list:.0$' /tmp/others)" = 2 || {{ cat /tmp/others; false; }}
        settled
        # below the groups of a batch system, with the agent and with the scheduler in the kernel
        mkdir -p $G/slurm/step; echo $$ > $G/slurm/step/cgroup.procs; state > /tmp/before
        $spare --out /tmp/nested.json -- sh -c 'grep -q /slurm/step/colony-spare /proc/self/cgroup' 2> /tmp/err || {{ cat /tmp/err; false; }}
        settled
        echo $$ > $G/cgroup.procs; state > /tmp/before
        colony run --spare-cores 1 --backend agent --out /tmp/agent.json -- sleep 1 2> /dev/null
        settled
        colony run --spare-cores 1 --backend sched-ext --out /tmp/ext.json -- sleep 1 2> /dev/null
        settled
        # threads that are not bound to a CPU are spread
        $spare --out /tmp/unbound.json -- sh -c '
            for i in 1 2; do (while [ ! -e /tmp/spread ]; do :; done) & done
            for i in $(seq 600); do grep -q root /sys/fs/cgroup/colony-spare.*/cpuset.cpus.partition && break; sleep 0.1; done
            : > /tmp/spread; wait' 2> /dev/null
        settled
        # a second run while the first one has the cores
        (: > /tmp/first; exec $spare -- sh -c ': > /tmp/started; while [ -e /tmp/first ]; do sleep 0.1; done') 2> /dev/null & R=$!
        while [ ! -e /tmp/started ]; do sleep 0.1; done
        $spare -- true 2> /tmp/err && false || test $? = 2
        grep -q 'no core is left to the job' /tmp/err
        rm /tmp/first; wait $R; settled
        # many at once: none of them shares a core with another
        for round in 1 2 3; do
            for n in 1 2 3; do $spare -- sh -c 'mkdir /tmp/alone && sleep 1 && rmdir /tmp/alone' 2> /tmp/err$n & eval R$n=$!; done
            won=0
            for n in 1 2 3; do eval "wait \$R$n" && won=$((won+1)) || grep -q 'no core is left to the job' /tmp/err$n || {{ cat /tmp/err$n; false; }}; done
            test $won -ge 1; settled
        done
        # what the job leaves running gets all CPUs back
        $spare -- sh -c 'sleep 1000 > /dev/null 2>&1 & echo $! > /tmp/left' 2> /dev/null
        grep -q 'list:.0-3' /proc/$(cat /tmp/left)/status
        # without control groups: affinities, and members that leave are brought back
        umount $G; state > /tmp/before
        $spare --out /tmp/affinity.json -- sh -c 'taskset -p 1 $$ > /dev/null
            for i in $(seq 600); do grep -q "list:.1-3" /proc/$$/status && exit 0; sleep 0.1; done; exit 4' 2> /dev/null
        settled
        "#
        ),
    );
    let spare = |name: &str| report(&out, name).spare.expect("a reservation");
    for (name, partition) in [
        ("alone", Partition::Isolated),
        ("nested", Partition::Isolated),
        ("agent", Partition::Isolated),
        ("ext", Partition::Isolated),
        ("unbound", Partition::Balanced),
        ("affinity", Partition::Affinity),
    ] {
        let spare = spare(name);
        assert_eq!(spare.partition, partition, "{name}: {:?}", spare.fallbacks);
        assert_eq!(spare.not_undone, Vec::<String>::new(), "{name}");
        assert!(spare.settings.iter().all(|s| s.refused.is_none()), "{name}: {:?}", spare.settings);
        assert!(!spare.settings.is_empty() && !spare.interrupts.is_empty(), "{name}");
        // kernel threads of their CPUs, and nothing else
        let strange = |s: &&colony_sched::spare::Staying| s.reason != "kernel thread of its CPU";
        assert_eq!(spare.staying.iter().find(strange), None, "{name}");
    }
    assert!(spare("affinity").brought_back > 0);
}

#[test]
fn one_core_of_each_socket_or_numa_node_is_spare() {
    let Some(vm) = four() else { return };
    let out = sh(
        &collecting(vm.cpus(8).sockets(4).numa_nodes(2), &["sockets", "numa"]),
        r#"
        run() { colony run --backend none --spare-cores "$@"; }
        run 1/socket --out /tmp/sockets.json -- grep 'list:.1,3,5,7$' /proc/self/status 2> /tmp/err || { cat /tmp/err; false; }
        run 1/numa --out /tmp/numa.json -- grep 'list:.1-3,5-7$' /proc/self/status 2> /tmp/err || { cat /tmp/err; false; }
        run 2/socket -- true 2> /tmp/err && false || test $? = 2
        grep 'no core of socket 0 is left to the job: 2 of its cores' /tmp/err
        # the job has CPUs of one socket, and the others are spare
        run 1/socket --cpus 2-3 -- grep 'list:.3$' /proc/self/status 2> /tmp/err || { cat /tmp/err; false; }
        colony doctor --no-trace --explain isolation > /tmp/out || test $? = 1
        grep -e '--cpus 1-3,5-7 --spare-cores 1/numa' /tmp/out || { cat /tmp/out; false; }
        "#,
    );
    let spare = |name: &str| report(&out, name).spare.expect("a reservation");
    for (name, cpus) in [("sockets", "0,2,4,6"), ("numa", "0,4")] {
        let spare = spare(name);
        assert_eq!((spare.partition, &*spare.spare.to_string()), (Partition::Isolated, cpus), "{name}");
        assert_eq!(spare.not_undone, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_node_that_refuses_is_told_and_left_as_before() {
    let Some(vm) = four() else { return };
    let out = sh(
        &collecting(vm, &["container", "unjournalled", "gone", "moved", "v1"]),
        &format!(
            r#"{STATE}
        sleep 1000 & KEPT=$!
        state > /tmp/before
        fails() {{ code=$1; shift; "$@" 2> /tmp/err && false || test $? = $code || {{ cat /tmp/err; false; }}; }}
        # read-only files of the kernel, as in a container
        mount -o remount,ro /sys; mount -o remount,ro $G; mount -o bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys
        $spare --out /tmp/container.json -- sh -c 'grep -q "list:.1-3" /proc/$$/status' 2> /tmp/err || {{ cat /tmp/err; false; }}
        umount /proc/sys; mount -o remount,rw /sys; mount -o remount,rw $G
        settled; echo container
        # a full disk for what has to be undone: the job does not start
        full() {{ mkdir -p -m 700 $1; mount -t tmpfs -o size=4k,mode=700 none $1; : > $1/spare; : > $1/lock; head -c 8192 /dev/zero > $1/full || true; }}
        # what has refused may be about to end
        away() {{ i=0; until umount $1 2> /tmp/err; do i=$((i+1)); test $i -lt 100 || {{ cat /tmp/err; false; }}; usleep 100000; done; }}
        full /run/colony-undo
        fails 1 $spare -- touch /tmp/ran
        grep -q 'undo file' /tmp/err && grep -q 'No space left' /tmp/err || {{ cat /tmp/err; false; }}
        test ! -e /tmp/ran
        away /run/colony-undo; settled; echo full
        # for the journal of settings alone: the job runs without changed settings
        full /run/colony-tune
        $spare --out /tmp/unjournalled.json -- true 2> /dev/null
        away /run/colony-tune; settled
        # CPUs that vanish while the job runs: one of the job's, then the spare one
        C=/sys/devices/system/cpu/cpu3/online
        $spare --out /tmp/gone.json -- sh -c "echo 0 > $C; sleep 1; grep -q 'list:.1-[23]' /proc/\$\$/status" 2> /tmp/err || {{ cat /tmp/err; false; }}
        echo 1 > $C; settled; echo gone
        colony run --spare-cores 3-3 --backend none --out /tmp/moved.json -- sh -c "echo 0 > $C; sleep 1" 2> /tmp/err || {{ cat /tmp/err; false; }}
        echo 1 > $C; settled; echo moved
        # a CPU that is not there any more when the run begins
        echo 0 > $C
        fails 2 colony run --spare-cores 3-3 --backend none -- true
        grep -q 'CPU 3' /tmp/err || {{ cat /tmp/err; false; }}
        fails 2 colony run --cpus 3 --spare-cores 1 --backend none -- true
        echo 1 > $C; settled; echo missing
        # control groups of version 1, with the other version beside it or without
        umount $G; mkdir -p /tmp/v1
        if mount -t cgroup -o cpuset none /tmp/v1; then
            state > /tmp/before
            $spare --out /tmp/v1.json -- sh -c 'taskset -p f $$ > /dev/null; grep -q "list:.1-3" /proc/$$/status' 2> /tmp/err || {{ cat /tmp/err; false; }}
            settled; rmdir /tmp/v1/colony* 2> /dev/null && {{ echo a group is left; false; }}
        else
            echo null > /tmp/v1.json
        fi
        "#
        ),
    );
    let spare = |name: &str| report(&out, name).spare.expect("a reservation");
    let container = spare("container");
    assert_eq!(container.partition, Partition::Affinity, "{:?}", container.fallbacks);
    let read_only = |text: &str| text.contains("Read-only file system");
    assert!(container.settings.iter().any(|s| s.refused.as_deref().is_some_and(read_only)), "{container:?}");
    assert!(container.fallbacks.iter().any(|why| read_only(why)), "{:?}", container.fallbacks);
    let unjournalled = spare("unjournalled");
    assert!(unjournalled.settings.is_empty(), "{unjournalled:?}");
    let told =
        |why: &String| why.contains("settings of the node are unchanged") && why.contains("No space left");
    assert!(unjournalled.fallbacks.iter().any(told), "{:?}", unjournalled.fallbacks);
    for name in ["container", "unjournalled", "gone", "moved"] {
        assert_eq!(spare(name).not_undone, Vec::<String>::new(), "{name}");
    }
    let v1 = &out.files[std::path::Path::new("/tmp/v1.json")];
    if v1.as_ref().is_ok_and(|json| json.starts_with(b"null")) {
        return eprintln!("{} has no cpuset of control groups of version 1", out.kernel);
    }
    assert_eq!(spare("v1").partition, Partition::CpusetV1, "{:?}", spare("v1").fallbacks);
}

#[test]
fn everything_is_as_before_whoever_is_killed() {
    let Some(vm) = four() else { return };
    sh(
        &vm,
        &format!(
            r#"{STATE}
        sh -c 'taskset -p 6 $$ > /dev/null; exec sleep 1000' & KEPT=$!
        for i in $(seq 100); do grep -q 'list:.1-2' /proc/$KEPT/status && break; sleep 0.1; done
        state > /tmp/before
        guard() {{ for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = colony-spare ] && tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q spare-guard && echo ${{p#/proc/}}; done; true; }}
        begin() {{ rm -f /tmp/pid; $spare -- sh -c 'echo $$ > /tmp/pid; exec sleep 1000' 2> /dev/null & R=$!
            while [ ! -s /tmp/pid ]; do sleep 0.1; done; J=$(cat /tmp/pid); }}
        ended() {{ settled; grep -q 'list:.0-3' /proc/$J/status; kill -9 $J 2> /dev/null; wait $R 2> /dev/null || true; }}
        # the command alone
        begin; kill -9 $R; ended; echo the command
        # the command and its guard at once
        begin; X=$(guard); test -n "$X"; kill -9 $R $X; ended; echo both
        # the guard first: the command itself undoes, and nothing is left when it is killed after
        begin; kill -9 $(guard); kill $R; wait $R || true; settled
        begin; kill -9 $(guard); kill -9 $R; ended
        # in the middle of the reservation
        for round in 1 2 3 4 5 6; do
            $spare -- sleep 1000 2> /dev/null & R=$!
            i=0; while [ ! -e /run/colony-undo/$R.*.spare ]; do i=$((i+1)); [ $i -lt 100000 ] || break; done
            i=0; while [ $i -lt $((round * 200)) ]; do i=$((i+1)); done
            kill -9 $R; wait $R 2> /dev/null || true; settled; echo round $round
        done
        # a job that forks without end is let go, too
        $spare -- sh -c ': > /tmp/forks; while [ -e /tmp/forks ]; do sh -c : & wait; done' 2> /dev/null & R=$!
        while [ ! -e /tmp/forks ]; do sleep 0.1; done
        kill -9 $R; settled; rm /tmp/forks
        "#
        ),
    );
}

#[test]
fn a_spare_core_takes_the_daemons_off_the_job() {
    let Some(rows) = study("spare-core") else { return };
    let value = |what: &str| {
        let row = rows.iter().find(|r| r["what"].as_str().is_some_and(|w| w.starts_with(what)));
        row.unwrap_or_else(|| panic!("no row {what}: {rows:?}"))["value"].as_f64().expect("a value")
    };
    assert!(value("nothing: stolen") > 0.1, "the daemons are there");
    for case in ["a spare core", "a spare core and windows of 80 %"] {
        let less = value(&format!("{case}: less stolen"));
        assert!(less > 100.0, "{case}: {less} times: {rows:?}");
    }
    // the detours left are few, and a host under load makes them longer
    assert!(value("1024 nodes: allreduce") > 10.0, "{rows:?}");
}
