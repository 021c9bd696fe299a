// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedies are in the order of what they take, and each is credited with what the kernel lets it move.

use colony_doctor::ThreadSeen;
use colony_doctor::remedy::Effort;

use crate::node::Made;

/// `PF_NO_SETAFFINITY` and `PF_KTHREAD`.
const BOUND: u64 = 0x0400_0000 | 0x0020_0000;
const ORDINARY: u64 = 0x0040_0000;

/// A node with four CPUs, whose job has CPUs 1 to 3, and a trace in which these threads ran there.
fn node(threads: &[&str]) -> Made {
    let made = Made::new(&[
        ("/sys/devices/system/cpu/isolated", "\n"),
        ("/proc/cmdline", "quiet"),
        ("/proc/sys/kernel/osrelease", "6.12.0\n"),
        ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
    ]);
    let seen = |name: &&str| ThreadSeen { source: format!("thread:{name}"), per_second: 10.0, share: 0.02 };
    made.threads(threads.iter().map(seen).collect())
}

/// Adds a task with its flags, affinity and control group.
fn task(made: &Made, (pid, name): (u32, &str), flags: u64, cpus: &str, group: &str) {
    let stat = format!(
        "{pid} ({name}) S 1 {pid} {pid} 0 -1 {flags} 1 0 0 0 1 1 0 0 20 0 1 0 100 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 0\n"
    );
    made.put(&format!("/proc/{pid}/stat"), stat);
    made.put(&format!("/proc/{pid}/status"), format!("Uid:\t1000\t1000\nCpus_allowed_list:\t{cpus}\n"));
    made.put(&format!("/proc/{pid}/cgroup"), format!("0::{group}\n"));
}

#[test]
fn isolation_is_tried_from_the_start_of_the_job_to_the_boot() {
    let finding = node(&[]).finding("isolation");
    let efforts: Vec<Effort> = finding.remedies.iter().map(|r| r.effort).collect();
    assert_eq!(efforts, [Effort::JobStart, Effort::Partition, Effort::Boot]);
    let commands: Vec<Vec<String>> = finding.remedies.iter().map(|r| r.commands()).collect();
    assert_eq!(commands[0], ["colony run --backend none --cpus 1-3 --spare-cores 0-0 -- CMD"]);
    assert_eq!(commands[1][3], "echo isolated > /sys/fs/cgroup/job/cpuset.cpus.partition");
    assert!(commands[2][0].contains("isolcpus="), "{commands:?}");
    // a kernel that has no isolated partitions, and a node without control groups of version 2
    let old = node(&[]);
    old.put("/proc/sys/kernel/osrelease", "5.14.0\n");
    assert!(old.finding("isolation").remedies.iter().all(|r| r.effort != Effort::Partition));
    let systemd = node(&[]);
    systemd.put("/proc/1/comm", "systemd\n");
    assert!(systemd.finding("isolation").remedies[1].commands()[0].contains("job.slice AllowedCPUs=1-3"));
}

#[test]
fn a_remedy_is_credited_with_the_threads_that_the_kernel_lets_it_move() {
    let made = node(&["python", "chronyd", "spinner", "kworker/2:1", "gone", "lammps"]);
    task(&made, (70, "python"), ORDINARY, "1", "/user.slice/session-1.scope");
    task(&made, (71, "chronyd"), ORDINARY, "0-3", "/system.slice/chronyd.service");
    task(&made, (72, "spinner"), BOUND, "2", "/");
    task(&made, (73, "kworker/2:1-events"), BOUND, "2", "/");
    task(&made, (74, "lammps"), ORDINARY, "0-3", "/system.slice/slurmstepd.scope/job_7/step_0");
    let finding = made.finding("isolation");
    let moved = |remedy: usize| {
        let moves = finding.remedies[remedy].moves.as_ref().unwrap_or(&finding.touches);
        let all = ["python", "chronyd", "spinner", "kworker/2:1", "gone", "lammps"];
        all.into_iter().filter(|name| moves.has(&format!("thread:{name}"))).collect::<Vec<_>>()
    };
    assert_eq!(moved(0), ["python", "chronyd", "gone"]);
    assert_eq!(moved(1), ["python", "chronyd", "gone"]);
    // a task that is pinned to the job's CPUs stays there
    assert_eq!(moved(2), ["chronyd", "gone"]);
    assert!(
        finding.advice.as_ref().is_some_and(|a| a.contains("only CPUs of the job: python.")),
        "{finding:?}"
    );
    let stays = made.examine().stays;
    assert!(stays["thread:spinner"].contains("binds"), "{stays:?}");
    assert!(stays["thread:kworker/2:1"].contains("binds"), "{stays:?}");
    assert!(stays["thread:lammps"].contains("Slurm job 7") && stays.len() == 3, "{stays:?}");
}

#[test]
fn of_several_tasks_with_one_name_the_least_movable_decides() {
    let made = node(&["python"]);
    task(&made, (70, "python"), ORDINARY, "0-3", "/");
    task(&made, (71, "python"), ORDINARY, "2", "/");
    let finding = made.finding("isolation");
    assert!(finding.touches.has("thread:python"));
    assert!(!finding.remedies[2].moves.as_ref().expect("fewer").has("thread:python"));
}

#[test]
fn of_a_short_lived_program_the_one_that_starts_it_is_bound() {
    let made = node(&["rustc"]);
    made.put("/proc/uptime", "1000.00 1900.00\n");
    // hundredths of a second: two compilers that started 3 s ago, and cargo 300 s ago
    let stat = |pid: u32, name: &str, parent: u32, start: u32| {
        format!(
            "{pid} ({name}) S {parent} {pid} {pid} 0 -1 {ORDINARY} 1 0 0 0 1 1 0 0 20 0 1 0 {start} 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 0 \
             0 0 0 0 1 1 1 1 1 1 1 0\n"
        )
    };
    for (pid, name, parent, start) in
        [(60, "cargo", 1, 70_000), (70, "rustc", 60, 99_700), (71, "rustc", 60, 99_700)]
    {
        task(&made, (pid, name), ORDINARY, "0-3", "/user.slice/session-1.scope");
        made.put(&format!("/proc/{pid}/stat"), stat(pid, name, parent, start));
    }
    let finding = made.finding("daemon");
    assert_eq!(finding.remedies[0].commands(), ["taskset -apc 0 60"]);
    assert!(finding.advice.as_ref().is_some_and(|a| a.contains("cargo (60)")), "{finding:?}");
}

#[test]
fn tasks_that_nobody_collected_are_not_said_to_have_ended() {
    let made = node(&["python"]);
    let finding = made.finding("daemon");
    assert!(finding.advice.as_ref().is_some_and(|a| a.contains("is not known")), "{finding:?}");
    let isolation = made.finding("isolation");
    assert!(isolation.touches.partly, "the gain is an upper bound");
    assert!(isolation.advice.as_ref().is_some_and(|a| a.contains("no processes")), "{isolation:?}");
}

#[test]
fn a_program_is_moved_first_with_its_unit_or_with_all_of_its_processes() {
    let made = node(&["python"]);
    task(&made, (70, "python"), ORDINARY, "1", "/user.slice/session-1.scope");
    task(&made, (71, "python"), ORDINARY, "2", "/user.slice/session-1.scope");
    let finding = made.finding("daemon");
    assert_eq!(finding.remedies.len(), 1);
    assert_eq!(finding.remedies[0].effort, Effort::Program);
    assert_eq!(finding.remedies[0].commands(), ["taskset -apc 0 70", "taskset -apc 0 71"]);
    assert_eq!(finding.remedies[0].undo_commands(), ["taskset -apc 2 71", "taskset -apc 1 70"]);

    let unit = node(&["chronyd"]);
    task(&unit, (70, "chronyd"), ORDINARY, "0-3", "/system.slice/chronyd.service");
    let finding = unit.finding("daemon");
    let commands: Vec<Vec<String>> = finding.remedies.iter().map(|r| r.commands()).collect();
    assert_eq!(commands[0], ["systemctl set-property --runtime chronyd.service AllowedCPUs=0"]);
    assert_eq!(commands[1], ["systemctl stop chronyd.service"]);
    assert!(finding.remedies[0].losses.is_empty() && !finding.remedies[1].losses.is_empty());
    // a job that has every CPU leaves no place to move to
    let full = unit.finding_for("0-3", "daemon");
    assert_eq!(full.remedies[0].commands(), ["systemctl stop chronyd.service"]);
}
