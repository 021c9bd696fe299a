// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony doctor` on virtual nodes: booted with and without the parameters that it proposes, and after its remedies.

use std::path::Path;

use colony_doctor::remedy::{Effort, Remedy};
use colony_study::advice::Advice;
use colony_vm::{Accel, Outcome};

use crate::common::{node_with, sh};

/// Rules whose remedies a guest without systemd can apply. The job's CPU is 1 of two.
const RULES: &str = "workqueue-unbound workqueue-writeback timer-migration fair-server soft-watchdog stat-interval \
                     writeback-interval compaction khugepaged kdamond machine-check-poll mthp irq-default irq-movable rt-tasks";

const MOUNTS: &str = "mount -t debugfs none /sys/kernel/debug 2> /dev/null || true";

fn advice(out: &Outcome) -> Advice {
    let file = &out.files[Path::new("/tmp/doctor.json")];
    let bytes = file.as_ref().unwrap_or_else(|e| panic!("{e}; {}", out.error_text()));
    serde_json::from_slice(bytes).expect("JSON")
}

/// The commands of a finding's remedy that needs a boot; `None` if it is not found.
fn proposed(advice: &Advice, id: &str) -> Option<Vec<String>> {
    let remedies = &advice.finding(id)?.finding.remedies;
    let boot = remedies.iter().find(|r| r.effort == Effort::Boot);
    Some(boot.map(Remedy::commands).unwrap_or_default())
}

#[test]
fn parameters_are_proposed_exactly_where_they_are_missing() {
    let Some(vm) = node_with(&[]) else { return };
    let vm = vm.cpus(2).accel(Accel::SingleThread).collect("/tmp/doctor.json");
    let ask = format!("{MOUNTS}\ncolony doctor --no-trace --cpus 1 --json > /tmp/doctor.json");
    let parameters = [
        ("nohz-full", "nohz_full=1"),
        ("rcu-nocbs", "rcu_nocbs=1"),
        ("isolation", "isolcpus=managed_irq,domain,1"),
    ];
    for with in [&parameters[..0], &parameters[..1], &parameters[1..2], &parameters[2..]] {
        let words: Vec<&str> = with.iter().map(|(_, p)| *p).collect();
        let out = sh(&vm.clone().append(&words.join(" ")), &ask);
        let advice = advice(&out);
        for (id, parameter) in parameters {
            let there = words.contains(&parameter) || (id == "rcu-nocbs" && words.contains(&"nohz_full=1"));
            let found = proposed(&advice, id);
            let undecided: Vec<_> = advice.undecided.iter().filter(|u| u.id == id).collect();
            assert!(undecided.is_empty(), "{words:?}: {undecided:?}");
            assert_eq!(found.is_none(), there, "{words:?}, {id}: {found:?}");
            assert!(found.as_ref().is_none_or(|c| c[0].ends_with(parameter)), "{words:?}: {found:?}");
        }
    }
}

#[test]
fn each_remedy_removes_its_finding_and_each_undo_brings_it_back() {
    let Some(vm) = node_with(&["/usr/bin/chrt", "/usr/bin/taskset"]) else { return };
    let vm = vm.cpus(2).accel(Accel::SingleThread).collect("/tmp/done");
    let before = r#"
        mkdir -p /tmp; sleep 100000 & S=$!; taskset -pc 0-1 $S; chrt -f -p 10 $S
        # an interrupt with a handler, sent to the job's CPU: the console's arrives at each character
        for irq in /proc/irq/[0-9]*; do echo 1 > $irq/smp_affinity_list 2> /dev/null || true; done; echo
        "#;
    let script = format!("{MOUNTS}\n{before}\nRULES='{RULES}'\n{}", include_str!("doctor.sh"));
    let out = sh(&vm, &script);
    let done = out.files[Path::new("/tmp/done")].as_ref().expect("kept");
    let done = String::from_utf8_lossy(done);
    assert_eq!(done.split_whitespace().collect::<Vec<_>>(), RULES.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn an_isolated_partition_takes_the_jobs_cpu_from_pinned_tasks_without_a_boot() {
    let Some(vm) = node_with(&["/usr/bin/taskset"]) else { return };
    let vm = vm.cpus(2).accel(Accel::SingleThread).collect("/tmp/cpus");
    let script = r#"
        doctor() { colony doctor --no-trace --cpus 1 --explain isolation 2>&1; }
        commands() { doctor | sed -n "s/^  $1 *//p" | grep cgroup; }
        allowed() { sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/$1/status >> /tmp/cpus; }
        mkdir -p /tmp; taskset -c 1 sleep 100000 & S=$!; sleep 1
        allowed $S
        commands do > /tmp/do; commands undo > /tmp/undo; sed '' /tmp/do
        sh -euc "$(sed '' /tmp/do)"
        allowed $S; sed '' /sys/fs/cgroup/job/cpuset.cpus.partition >> /tmp/cpus
        # the job is started in the partition
        sh -c 'echo $$ > /sys/fs/cgroup/job/cgroup.procs; exec taskset -c 1 sleep 100000' & J=$!; sleep 1
        allowed $J; kill $J; wait $J || true
        sh -euc "$(sed '' /tmp/undo)"; test ! -e /sys/fs/cgroup/job
        "#;
    let out = sh(&vm, script);
    let cpus =
        out.files[Path::new("/tmp/cpus")].as_ref().unwrap_or_else(|e| panic!("{e}; {}", out.error_text()));
    let cpus = String::from_utf8_lossy(cpus);
    assert_eq!(cpus.lines().collect::<Vec<_>>(), ["1", "0", "isolated", "1"]);
}
