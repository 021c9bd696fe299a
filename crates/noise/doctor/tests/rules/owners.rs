// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owners of tasks, groups and limits: Colony, running jobs, resource managers, users.

use colony_doctor::remedy::{Change, Loss};
use colony_doctor::{Finding, ThreadSeen};

use crate::node::{Made, Ruled};

/// Starts of made-up tasks, in clock ticks since boot.
const START: u64 = 100;

/// `stat` of a real-time task.
fn stat(tid: u32, name: &str, parent: u32) -> String {
    format!(
        "{tid} ({name}) S {parent} {tid} {tid} 0 -1 4194560 1 0 0 0 1 1 0 0 -51 0 1 0 {START} 1000 10 1 1 1 1 1 1 1 0 0 0 0 \
         0 0 17 1 50 1 0 0 0 1 1 1 1 1 1 1 0\n"
    )
}

/// Adds a real-time process that may run everywhere.
fn process(made: &Made, pid: u32, name: &str, parent: u32, group: &str) {
    made.put(&format!("/proc/{pid}/stat"), stat(pid, name, parent));
    let status = format!("Name:\t{name}\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-3\n");
    made.put(&format!("/proc/{pid}/status"), status);
    made.put(&format!("/proc/{pid}/cgroup"), format!("0::{group}\n"));
}

/// The real-time tasks that the remedy moves.
fn moved(made: &Made) -> Vec<String> {
    let finding = match made.rule("rt-tasks") {
        Ruled::Found(mut found) => found.remove(0),
        other => panic!("{other:?}"),
    };
    let [Change::Affinity { tasks, cpus }] = &finding.remedies[0].changes[..] else { panic!("{finding:?}") };
    assert_eq!(cpus.to_string(), "0");
    tasks.iter().map(|t| t.name.clone()).collect()
}

/// The value of the evidence that names what is left alone.
fn left_alone(finding: &Finding) -> Vec<String> {
    let values = finding.evidence.iter().map(|e| e.value.clone());
    values.filter(|value| value.contains("left alone")).collect()
}

#[test]
fn tasks_of_colony_and_of_its_jobs_are_no_finding() {
    let made = Made::new(&[]);
    process(&made, 50, "rtkit", 1, "/system.slice/rtkit.service");
    // a run with an edge thread, its guardian, and the job's first process with a child
    process(&made, 77, "colony", 1, "/user.slice/session-1.scope");
    made.put("/proc/77/task/77/stat", stat(77, "colony", 1));
    made.put("/proc/77/task/78/stat", stat(78, "colony-edge/1", 1));
    made.put("/proc/77/task/78/status", "Cpus_allowed_list:\t0-3\n");
    process(&made, 80, "colony-guardian", 77, "/user.slice/session-1.scope");
    process(&made, 81, "rank", 77, "/user.slice/session-1.scope");
    process(&made, 82, "child", 81, "/user.slice/session-1.scope");
    // named in the undo file of a reservation, and in the saved job of a colonyd
    process(&made, 90, "member", 1, "/user.slice/session-2.scope");
    process(&made, 92, "registered", 1, "/user.slice/session-2.scope");
    // its number is that of a job's task that has ended
    process(&made, 91, "stranger", 1, "/user.slice/session-2.scope");
    assert_eq!(moved(&made).len(), 9, "nobody claims them");

    made.put(&format!("/run/colony-undo/77.{START}.0.tasks"), "not readable as JSON");
    let members = format!(
        r#"{{"what":{{"members":[{{"tid":90,"start_ticks":{START}}},{{"tid":91,"start_ticks":7}}]}}}}"#
    );
    made.put("/run/colony-undo/5.6.0.spare", members);
    let saved = format!(r#"{{"boot":"b","owner":1000,"processes":[{{"tid":92,"start_ticks":{START}}}]}}"#);
    made.put("/run/colony-state/job.json", saved);
    assert_eq!(moved(&made), ["rtkit", "stranger"]);
    let finding = made.finding("rt-tasks");
    assert_eq!(left_alone(&finding), ["left alone: 7 of Colony or its job"]);
    assert!(!finding.title.contains("colony"), "{}", finding.title);
}

#[test]
fn a_users_undo_file_speaks_of_this_users_processes_only() {
    let made = Made::new(&[]);
    process(&made, 50, "rtkit", 1, "/system.slice/rtkit.service");
    made.put(&format!("/run/user/1001/colony-undo/50.{START}.0.tasks"), "{}");
    assert_eq!(moved(&made), ["rtkit"]);
    made.put(&format!("/run/user/1000/colony-undo/50.{START}.0.tasks"), "{}");
    assert!(matches!(made.rule("rt-tasks"), Ruled::Passed));
}

#[test]
fn tasks_of_other_jobs_are_no_finding_whoever_manages_them() {
    let made = Made::new(&[]);
    process(&made, 50, "slurm rank", 1, "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0");
    process(&made, 51, "contained", 1, "/system.slice/docker-0123456789abcdef.scope");
    process(&made, 52, "spare rank", 1, "/user.slice/colony-spare.9.10");
    // a manager that is not known by name has assigned CPUs
    process(&made, 53, "site rank", 1, "/site/batch/job");
    made.put("/sys/fs/cgroup/site/batch/cpuset.cpus", "2-3\n");
    assert!(matches!(made.rule("rt-tasks"), Ruled::Passed));
    // a group with all CPUs, or with CPUs that are not the job's, is no assignment of the job's CPUs
    process(&made, 54, "free", 1, "/free/a");
    made.put("/sys/fs/cgroup/free/cpuset.cpus", "0-3\n");
    process(&made, 55, "elsewhere", 1, "/elsewhere");
    made.put("/sys/fs/cgroup/elsewhere/cpuset.cpus", "0\n");
    assert_eq!(moved(&made), ["free", "elsewhere"]);
}

#[test]
fn a_task_is_named_by_its_number_and_its_start() {
    let made = Made::new(&[]);
    process(&made, 50, "rtkit", 1, "/system.slice/rtkit.service");
    let finding = made.finding("rt-tasks");
    assert_eq!(finding.remedies[0].commands(), ["taskset -pc 0 50"]);
    assert_eq!(finding.remedies[0].undo_commands(), ["taskset -pc 0-3 50"]);
    let [Change::Affinity { tasks, .. }] = &finding.remedies[0].changes[..] else { panic!("{finding:?}") };
    assert_eq!((tasks[0].task.tid, tasks[0].task.start_ticks), (50, START));
}

#[test]
fn a_slice_with_jobs_below_is_not_confined() {
    let made = Made::new(&[("/proc/1/comm", "systemd\n")]);
    for slice in ["init.scope", "system.slice", "user.slice"] {
        made.put(&format!("/sys/fs/cgroup/{slice}/cpuset.cpus.effective"), "0-3\n");
        made.put(&format!("/sys/fs/cgroup/{slice}/cgroup.procs"), "");
    }
    let confined = || {
        let commands = made.finding("slices").remedies.iter().flat_map(|r| r.commands()).collect::<Vec<_>>();
        let slice = |command: String| command.split(' ').nth(3).map(str::to_owned);
        commands.into_iter().filter_map(slice).collect::<Vec<_>>()
    };
    assert_eq!(confined(), ["init.scope", "system.slice", "user.slice"]);
    // Slurm runs, and has no job now
    made.put("/sys/fs/cgroup/system.slice/slurmstepd.scope/cgroup.procs", "");
    assert_eq!(confined(), ["init.scope", "user.slice"]);
    assert_eq!(left_alone(&made.finding("slices")), ["left alone: Slurm is in it"]);
    // a run of Colony in a session
    process(&made, 77, "colony", 1, "/user.slice/user-1000.slice/session-1.scope");
    made.put(&format!("/run/colony-undo/77.{START}.0.tasks"), "{}");
    assert_eq!(confined(), ["init.scope"]);
    // a group that was given CPUs of the job
    made.put("/sys/fs/cgroup/init.scope/site/cgroup.procs", "");
    made.put("/sys/fs/cgroup/init.scope/site/cpuset.cpus", "1\n");
    assert!(confined().is_empty() && made.finding("slices").advice.is_some());
}

#[test]
fn limits_of_groups_have_an_owner_and_are_a_loss() {
    let made = Made::new(&[("/sys/fs/cgroup/cgroup.controllers", "")]);
    let groups = [
        ("system.slice/slurmstepd.scope/job_42/step_0", "Slurm job 42"),
        ("user.slice/user-1000.slice/user@1000.service", "user 1000"),
    ];
    for (group, _) in groups {
        let mut dir = "/sys/fs/cgroup".to_owned();
        for part in group.split('/') {
            dir = format!("{dir}/{part}");
            made.put(&format!("{dir}/cgroup.procs"), "");
        }
        let files = [
            ("memory.events", "low 0\nhigh 3\nmax 2\noom 1\n"),
            ("memory.max", "1048576\n"),
            ("memory.high", "524288\n"),
            ("cpu.stat", "nr_throttled 7\n"),
            ("cpu.max", "50000 100000\n"),
        ];
        files.iter().for_each(|(file, text)| made.put(&format!("{dir}/{file}"), text));
    }
    for rule in ["memory-reclaim", "cpu-quota"] {
        let finding = made.finding(rule);
        assert_eq!(finding.owners, groups.map(|(_, owner)| owner));
        assert!(finding.evidence.iter().any(|e| e.value.contains("limit of Slurm job 42")), "{finding:?}");
        assert_eq!(finding.remedies[0].losses, [Loss::Limit]);
    }
    // the kernel prints the period again: without it, the value read back is another one than was written
    let [Change::Write { value, files }] = &made.finding("cpu-quota").remedies[0].changes[..] else {
        panic!("one change")
    };
    assert_eq!((value.as_str(), files.len()), ("max 100000", 2));
}

#[test]
fn what_protects_ordinary_tasks_is_read_from_the_kernels_files() {
    const THROTTLING: (&str, &str) = ("/proc/sys/kernel/sched_rt_runtime_us", "950000\n");
    const PERIOD: (&str, &str) = ("/proc/sys/kernel/sched_rt_period_us", "1000000\n");
    let old = Made::new(&[THROTTLING, PERIOD, ("/sys/kernel/debug/sched/features", "")]);
    assert_eq!(old.finding("rt-throttling").remedies[0].losses, [Loss::Protection]);
    // a distribution may have left the server out of this release, or nobody has collected its files
    old.put("/proc/sys/kernel/osrelease", "6.12.1\n");
    assert!(matches!(old.rule("fair-server"), Ruled::Undecided(_)));

    let new = Made::new(&[THROTTLING, PERIOD, ("/proc/sys/kernel/osrelease", "6.1.0-backport\n")]);
    for cpu in 1..4 {
        new.put(&format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"), "50000000\n");
    }
    assert_eq!(new.finding("fair-server").remedies[0].losses, [Loss::Protection]);
    // the limit may still hold for groups of real-time tasks
    assert_eq!(new.finding("rt-throttling").remedies[0].losses, [Loss::Protection]);
    new.put("/boot/config-6.1.0-backport", "# CONFIG_RT_GROUP_SCHED is not set\n");
    assert!(matches!(new.rule("rt-throttling"), Ruled::Passed));
}

#[test]
fn interrupts_that_belong_to_their_cpu_are_not_moved() {
    let made = Made::new(&[]);
    for (number, state) in [(0, "IRQD_NO_BALANCING"), (12, "IRQD_PER_CPU"), (24, "IRQD_ACTIVATED")] {
        made.put(&format!("/proc/irq/{number}/smp_affinity_list"), "0-3\n");
        made.put(&format!("/proc/irq/{number}/effective_affinity_list"), "2\n");
        made.put(&format!("/proc/irq/{number}/device/x"), "");
        made.put(&format!("/sys/kernel/debug/irq/irqs/{number}"), format!("dstate: 0x1\n  {state}\n"));
    }
    let finding = made.finding("irq-movable");
    assert_eq!(finding.remedies[0].commands(), ["echo 0 > /proc/irq/24/smp_affinity_list"]);
    let text = format!("{:?}", finding.evidence);
    assert!(text.contains("0, 12 belong to their CPUs"), "{text}");
    assert!(matches!(made.rule("irq-managed"), Ruled::Passed));
}

#[test]
fn a_daemon_of_a_trace_is_none_if_it_is_colonys_or_a_jobs() {
    let made = Made::new(&[]);
    process(&made, 50, "slurm rank", 1, "/system.slice/slurmstepd.scope/job_42/step_0");
    process(&made, 51, "busy", 1, "/system.slice/slurmstepd.scope/job_42/step_0");
    process(&made, 52, "busy", 1, "/system.slice/busy.service");
    let seen = |name: &str| ThreadSeen { source: format!("thread:{name}"), per_second: 2.0, share: 0.02 };
    let made = made.threads(vec![seen("slurm rank"), seen("busy")]);
    let Ruled::Found(found) = made.rule("daemon") else { panic!("nothing") };
    let ids: Vec<&str> = found.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["daemon:busy"]);
    assert!(found[0].remedies[0].commands()[0].contains("busy.service"));
}
