// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of exports.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;

use super::{TunedProfile, parameters_to_remove};
use crate::{Action, Parameter, Plan, Profile, Step};

fn write(file: &str, value: &str) -> Step {
    Step::new("rule", Action::Write { file: file.into(), value: value.into() })
}

fn plan(steps: Vec<Step>, parameters: &[&str]) -> Plan {
    let parameter = |p: &&str| Parameter { parameter: (*p).to_owned(), replaces: None };
    Plan { steps, parameters: parameters.iter().map(parameter).collect(), left_out: Vec::new() }
}

/// Interrupt 7 has a handler with a name that no folder may have, interrupt 9 has none.
fn handlers(number: u32) -> Vec<String> {
    match number {
        7 => vec!["pci/0000:01".into()],
        9 => Vec::new(),
        n => vec![format!("eth0-rx-{n}")],
    }
}

fn tuned(plan: &Plan, command_line: &str) -> TunedProfile {
    TunedProfile::new(plan, &Profile::find("hpc").expect("built in"), handlers, command_line)
}

/// The lines of a section of `tuned.conf`.
fn section(text: &str, name: &str) -> Vec<String> {
    let from = text.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    from.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn tuned_gets_each_setting_where_it_accepts_it_and_the_rest_has_a_reason() {
    let command = Action::Command { apply: vec!["swapoff".into(), "/dev/a b".into()], undo: None };
    let cpus: CpuSet = "0".parse().expect("a list");
    let task = Action::Affinity { task: TaskId { tid: 77, start_ticks: 1 }, name: "rtkit".into(), cpus };
    let steps = vec![
        write("/proc/sys/vm/stat_interval", "120"),
        write("/proc/sys/net/ipv4/conf/eth0.100/rp_filter", "0"),
        write("/proc/sys/kernel/core_pattern", "|/bin/x #1"),
        write("/sys/kernel/mm/transparent_hugepage/enabled", "madvise"),
        write("/sys//bus/pci/devices/0000:01:00.0/./x", "1"),
        write("/sys/bus/a[b]/x", "1"),
        write("/proc/irq/24/smp_affinity_list", "0-3"),
        write("/proc/irq/7/smp_affinity_list", "0-3"),
        write("/proc/irq/9/smp_affinity_list", "0-3"),
        write("/proc/irq/default_smp_affinity", "f"),
        write("/proc/1234/oom_score_adj", "1"),
        write("/sys/fs/cgroup/system.slice/job_42/memory.max", "max"),
        write("/proc/sys/a", "1\n2"),
        Step::new("swap", command),
        Step::new("rt-tasks", task),
    ];
    let tuned = tuned(&plan(steps, &[]), "");
    let text = tuned.configuration();
    assert_eq!(section(&text, "sysctl"), ["vm.stat_interval=120"]);
    assert_eq!(
        section(&text, "sysfs"),
        ["/sys/kernel/mm/transparent_hugepage/enabled=madvise", "/sys/bus/pci/devices/0000:01:00.0/x=1"]
    );
    assert_eq!(section(&text, "script"), ["script=${i:PROFILE_DIR}/script.sh"]);
    for comment in [
        "# rule: 0-3 into /proc/irq/9/smp_affinity_list (the interrupt has no handler",
        "# rule: 1 into /proc/1234/oom_score_adj (a process has another number",
        "# rule: max into /sys/fs/cgroup/system.slice/job_42/memory.max (a limit ends",
        "# rule: 1_2 into /proc/sys/a (a value with line ends)",
        "# swap: swapoff '/dev/a b' (a command has no value",
        "# rt-tasks: CPU 0 for task 77 (rtkit) (a task has another number",
    ] {
        assert!(text.contains(comment), "{comment} in {text}");
    }
    let script = tuned.script().expect("interrupts");
    for line in [
        "    setting /proc/sys/net/ipv4/conf/eth0.100/rp_filter 0\n",
        "    setting /proc/sys/kernel/core_pattern '|/bin/x #1'\n",
        "    setting '/sys/bus/a[b]/x' 1\n",
        "    interrupts eth0-rx-24 smp_affinity_list 0-3\n",
        "    interrupts pci/0000:01 smp_affinity_list 0-3\n",
        "    setting /proc/irq/default_smp_affinity f\n",
    ] {
        assert!(script.contains(line), "{line} in {script}");
    }
}

#[test]
fn a_profile_without_interrupts_calls_no_script() {
    let tuned = tuned(&plan(vec![write("/proc/sys/vm/stat_interval", "120")], &[]), "");
    assert!(tuned.script().is_none() && !tuned.configuration().contains("[script]"));
}

#[test]
fn parameters_that_the_kernel_would_keep_are_named_for_removal() {
    let plan = plan(Vec::new(), &["isolcpus=managed_irq,domain,8-15", "rcu_nocbs=8-15"]);
    let line = "ro isolcpus=2 isolcpus=12-15 rcu-nocbs=1 rcu_nocbs=8-15 quiet -- isolcpus=3\n";
    assert_eq!(parameters_to_remove(&plan, line), ["isolcpus=2", "isolcpus=12-15", "rcu-nocbs=1"]);
    assert!(parameters_to_remove(&plan, "ro quiet").is_empty());
    let text = tuned(&plan, line).configuration();
    let lines = section(&text, "bootloader");
    assert!(lines[0].starts_with("# Remove") && lines[0].ends_with("isolcpus=2 isolcpus=12-15 rcu-nocbs=1"));
    assert_eq!(lines[2], "cmdline_colony=isolcpus=managed_irq,domain,8-15 rcu_nocbs=8-15");
    assert_eq!(section(&tuned(&plan, "").configuration(), "bootloader").len(), 1);
}

/// Runs the script on files below `root` in place of the node's.
fn call(script: &str, root: &Path, verb: &str) -> Output {
    let mut own = script.to_owned();
    for folder in ["/proc/", "/sys/", "/run/"] {
        own = own.replace(folder, &format!("{}{folder}", root.display()));
    }
    Command::new("sh").args(["-c", &own, "script.sh", verb]).output().expect("sh is there")
}

#[test]
fn the_script_finds_interrupts_by_handler_verifies_and_restores_them() {
    let root = tempfile::tempdir().expect("temp dir");
    let file = |name: &str| root.path().join(name);
    let put = |name: &str, value: &str| {
        fs::create_dir_all(file(name).parent().expect("a folder")).expect("a folder");
        fs::write(file(name), value).expect("a file");
    };
    let value = |name: &str| fs::read_to_string(file(name)).expect("there");
    // after a boot: other numbers than those of the plan
    for (name, text) in [
        ("proc/irq/61/smp_affinity_list", "0-7\n"),
        ("proc/irq/61/eth0-rx-24/x", ""),
        ("proc/irq/62/smp_affinity_list", "4\n"),
        ("sys/kernel/irq/62/actions", "other,pci/0000:01\n"),
        ("proc/irq/24/smp_affinity_list", "5\n"),
        ("sys/kernel/irq/24/actions", "eth0-rx-240\n"),
        ("proc/irq/default_smp_affinity", "ff\n"),
        ("run/x", ""),
    ] {
        put(name, text);
    }
    let irq = |n: u32| write(&format!("/proc/irq/{n}/smp_affinity_list"), "0-3");
    let steps = vec![irq(24), irq(7), irq(30), write("/proc/irq/default_smp_affinity", "f")];
    let script = tuned(&plan(steps, &[]), "").script().expect("interrupts");
    let code = |verb: &str| call(&script, root.path(), verb).status.code();
    assert_eq!(code("verify"), Some(1), "nothing is made yet");
    // a second start, as after a crash of TuneD, keeps the first values
    for _ in 0..2 {
        let out = call(&script, root.path(), "start");
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    }
    for (name, text) in [
        ("61/smp_affinity_list", "0-3\n"),
        ("62/smp_affinity_list", "0-3\n"),
        ("24/smp_affinity_list", "5\n"),
        ("default_smp_affinity", "f\n"),
    ] {
        assert_eq!(value(&format!("proc/irq/{name}")), text, "{name}");
    }
    assert_eq!(code("verify"), Some(0));
    put("proc/irq/61/smp_affinity_list", "6\n");
    let out = call(&script, root.path(), "verify");
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.code() == Some(1) && told.contains("61/smp_affinity_list has 6 instead of 0-3"),
        "{told}"
    );
    assert_eq!(code("stop"), Some(0));
    assert_eq!(
        (value("proc/irq/61/smp_affinity_list"), value("proc/irq/62/smp_affinity_list")),
        ("0-7\n".into(), "4\n".into())
    );
    assert_eq!(value("proc/irq/default_smp_affinity"), "ff\n");
    assert!(!file("run/colony-tuned").exists());
}
