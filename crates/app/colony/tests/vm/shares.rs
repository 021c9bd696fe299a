// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that share a CPU: none starves, and work moves to CPUs with room.

use colony_client::ExtStats;
use colony_client::StatsReport;
use colony_vm::{Accel, Outcome, Vm};

use crate::common::{collecting, colonyd, counted, node_with, report, sh};

/// A program that never sleeps, as shell functions: unbound, and on CPU 1.
const HOGS: &str = r#"
hog='while :; do :; done'
cpu_time() { set -- $(cat /proc/$1/stat); echo ${14}; }
"#;

#[test]
fn who_never_sleeps_starves_nobody() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &collecting(counted(vm, 2), &["later", "exempt"]),
        &format!(
            r#"{HOGS}
        # one was alone for longer than the watchdog waits, and then has to share with another
        sh -c "$hog" & A=$!
        (run later --backend sched-ext --watchdog 1s -- sleep 4) & R=$!
        sleep 2; sh -c "$hog" & B=$!; before=$(cpu_time $A)
        wait $R; echo alone $before both $(cpu_time $A) $(cpu_time $B)
        kill $A $B
        # one that is exempt takes turns with another in regular windows, while the job sleeps
        (run exempt --backend sched-ext --watchdog 1s --exempt mmfsd -- sleep 5) & R=$!
        until test $(state) = enabled; do sleep 0.1; done; sleep 0.5
        cp /bin/busybox /tmp/ash; /tmp/ash -c "printf mmfsd > /proc/self/comm; $hog" & A=$!
        sh -c "$hog" & B=$!; sleep 2; kill $A $B; wait $R
        "#
        ),
    );
    let [later, exempt] = ["later", "exempt"].map(|name| report(&out, name).sched_ext.expect("it ran"));
    assert_eq!((&later.stopped, &exempt.stopped), (&None, &None));
    let [alone, first, second] = numbers(&out, "alone")[..] else { panic!("{}", out.text()) };
    let (first, ratio) = (first - alone, (first - alone) / second);
    assert!((0.7..1.4).contains(&ratio), "{first} ticks beside {second}");
    let (favored, regular) = (exempt.favored, exempt.regular);
    assert!(favored.exempt_ns > 20 * (favored.other_ns + favored.filled_ns), "{favored:?}");
    assert!(regular.other_ns > regular.exempt_ns / 2, "{regular:?}");
    assert!(regular.exempt_ns > regular.other_ns / 2, "{regular:?}");
}

#[test]
fn what_joins_the_job_while_it_runs_is_the_jobs_and_the_rest_goes_where_there_is_room() {
    let Some(daemon) = colonyd() else { return };
    let Some(vm) = node_with(&[daemon.to_str().expect("a path")]) else { return };
    let vm = collecting(vm.cpus(2).accel(Accel::SingleThread), &["before", "joined", "after", "unbound"]);
    // two emulated CPUs in ordinary time: a bad minute of this host says nothing of Colony
    assert!((0..3).any(|_| joins_and_moves(vm.clone())), "not in any of three runs");
}

fn joins_and_moves(vm: Vm) -> bool {
    let out = sh(
        &vm,
        &format!(
            r#"{HOGS}
        mkdir /sys/fs/cgroup/batch
        cat > /tmp/colonyd.toml <<'T'
period = "200ms"
duty_cycle = "80%"
cpus = "1"
[sched_ext]
job_cgroups = ["/batch"]
T
        stats() {{ dd if=/run/colony/stats of=/tmp/$1.json bs=64k 2> /dev/null; }}
        colonyd --config /tmp/colonyd.toml 2> /tmp/colonyd.err & D=$!
        until test -e /run/colony/stats; do sleep 0.1; done
        sleep 100 & echo $! > /run/colony/job; until test $(state) = enabled; do sleep 0.1; done
        # it fills favored windows, joins the job, and is the job
        taskset 2 sh -c "$hog" & J=$!
        sleep 1; echo $J > /sys/fs/cgroup/batch/cgroup.procs; sleep 0.3
        stats before; sleep 1; stats joined
        # bound work has the regular windows; what may run on the other CPU goes there
        taskset 2 sh -c "$hog" & B=$!
        taskset 2 sh -c "$hog" & U=$!
        sleep 0.5; taskset -p 3 $U > /dev/null; sleep 0.5; job=$(cpu_time $J); free=$(cpu_time $U)
        sleep 2; echo job $job $free $(cpu_time $J) $(cpu_time $U)
        stats after
        kill $J $B $U $D; wait $D; killall sleep
        # of two unbound tasks of the job on one CPU, one goes to the idle one
        colony run --cpus 0-1 --period 200ms --duty 80% --out /tmp/unbound.json --backend sched-ext -- sh -c "
            taskset 2 sh -c '$hog' & A=\$!; taskset 2 sh -c '$hog' & B=\$!
            sleep 1; taskset -p 3 \$A; taskset -p 3 \$B; sleep 3; kill \$A \$B" > /dev/null 2> /tmp/unbound.err
        "#
        ),
    );
    let [before, joined, after] = ["before", "joined", "after"].map(|name| stats(&out, name));
    let unbound = report(&out, "unbound").sched_ext.expect("it ran");
    assert_eq!((&after.stopped, &unbound.stopped), (&None, &None));
    let favored = joined.favored.total_ns() - before.favored.total_ns();
    let as_job = (joined.favored.job_ns - before.favored.job_ns) as f64 / favored as f64;
    let regular = after.regular.total_ns() - joined.regular.total_ns();
    let as_other = (after.regular.other_ns - joined.regular.other_ns) as f64 / regular as f64;
    let [job, free, job_later, free_later] = numbers(&out, "job")[..] else { panic!("{}", out.text()) };
    let free = (free_later - free) / (job_later - job);
    let on: Vec<f64> =
        unbound.by_cpu.iter().map(|c| c.favored.job_ns as f64 / c.favored.total_ns() as f64).collect();
    eprintln!(
        "job {as_job:.3} of favored, other {as_other:.3} of regular windows; unbound work {free:.2} times the job; \
         two of the job: {on:.2?} of the CPUs"
    );
    as_job > 0.9 && as_other > 0.5 && free > 0.5 && on.iter().all(|share| *share > 0.55)
}

fn stats(out: &Outcome, name: &str) -> ExtStats {
    let file = out.files[std::path::Path::new(&format!("/tmp/{name}.json"))].as_ref().expect("it is there");
    serde_json::from_slice::<StatsReport>(file).expect("stats").sched_ext.expect("it runs")
}

/// The numbers in the line of the output that begins with `word`.
fn numbers(out: &Outcome, word: &str) -> Vec<f64> {
    let text = out.text();
    let line = text.lines().find(|line| line.split(' ').next() == Some(word)).unwrap_or_default();
    line.split(' ').filter_map(|n| n.parse().ok()).collect()
}
