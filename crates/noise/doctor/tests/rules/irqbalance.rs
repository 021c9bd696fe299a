// SPDX-License-Identifier: MIT OR Apache-2.0
//! irqbalance spares only what its configuration says, and its new list leaves a CPU for interrupts.

use std::process::Command;

use colony_doctor::remedy::Remedy;
use colony_doctor::{Finding, Level};
use colony_node::cpu::CpuSet;

use crate::node::{Made, Ruled};

const IRQBALANCE: &str = "77 (irqbalance) S 1 77 77 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 100 1000 10 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 0\n";
const FILE: &str = "/etc/default/irqbalance";

/// The remedy's commands without the restart, made on a copy of the file; and the file after its undo.
fn applied(remedy: &Remedy, text: &str) -> (String, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("a path").to_owned();
    let run = |commands: Vec<String>| {
        for command in commands.iter().filter(|command| !command.starts_with("systemctl ")) {
            let here = command.replace(FILE, &path("file")).replace("/run/colony-line", &path("line"));
            assert!(Command::new("sh").args(["-c", &here]).status().expect("a shell").success(), "{here}");
        }
        std::fs::read_to_string(path("file")).expect("read")
    };
    std::fs::write(path("file"), text).expect("written");
    (run(remedy.commands()), run(remedy.undo_commands()))
}

fn advice(finding: &Finding) -> &str {
    finding.advice.as_deref().unwrap_or_default()
}

#[test]
fn a_new_list_leaves_a_cpu_for_interrupts() {
    let text = "IRQBALANCE_BANNED_CPULIST=0\n";
    let made = Made::new(&[("/proc/77/stat", IRQBALANCE), (FILE, text)]);
    let finding = made.finding("irqbalance");
    let (after, undone) = applied(&finding.remedies[0], text);
    assert_eq!(after, "IRQBALANCE_BANNED_CPULIST=1-3\n");
    assert_eq!(undone, text);
    assert_eq!(finding.remedies[0].risk, "CPU 0 serves all devices");
    assert!(
        advice(&finding).contains(
            "The CPUs that IRQBALANCE_BANNED_CPULIST=0 bans, isolated CPUs and the job's CPUs together leave no CPU for \
             interrupts: the new list is without CPU 0."
        ),
        "{finding:?}"
    );
    // CPUs of other jobs are spared as long as another CPU is left
    let list_for = |isolated: &str, banned: &str| {
        made.put("/sys/devices/system/cpu/isolated", isolated);
        made.put(FILE, banned);
        let finding = made.finding_for("3", "irqbalance");
        applied(&finding.remedies[0], banned).0
    };
    assert_eq!(list_for("1", "IRQBALANCE_BANNED_CPULIST=2\n"), "IRQBALANCE_BANNED_CPULIST=1-3\n");
    assert_eq!(list_for("1", "IRQBALANCE_BANNED_CPULIST=0,2\n"), "IRQBALANCE_BANNED_CPULIST=1,3\n");
    assert_eq!(list_for("0-2", "IRQBALANCE_BANNED_CPULIST=0,2\n"), "IRQBALANCE_BANNED_CPULIST=3\n");
    assert_eq!(list_for("0-2", ""), "IRQBALANCE_BANNED_CPULIST=3\n");
}

#[test]
fn a_mask_is_replaced_as_a_list_is_not_read_beside_it() {
    let text = "# site\nIRQBALANCE_BANNED_CPULIST=2\nIRQBALANCE_ARGS=-j\nIRQBALANCE_BANNED_CPUS=\"000000f0,00000000\"\n";
    let made = Made::new(&[("/proc/77/stat", IRQBALANCE), (FILE, text)]);
    made.put("/sys/devices/system/cpu/possible", "0-7\n");
    let finding = made.finding("irqbalance");
    let (after, undone) = applied(&finding.remedies[0], text);
    // CPUs that the node does not have are not taken over
    assert_eq!(after, "# site\nIRQBALANCE_ARGS=-j\nIRQBALANCE_BANNED_CPULIST=1-3\n");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&undone), sorted(text));
    assert!(advice(&finding).contains("bans CPUs 36-39, which this node does not have"), "{finding:?}");
    assert!(advice(&finding).contains("does not read IRQBALANCE_BANNED_CPULIST as long as"), "{finding:?}");
    let keep = finding.remedies[0].keep.as_deref().unwrap_or_default();
    assert!(keep.contains("write IRQBALANCE_BANNED_CPUS=e instead"), "{keep}");
    // offline CPUs that the node may have stay banned
    made.put(FILE, "IRQBALANCE_BANNED_CPUS=c0\n");
    let finding = made.finding("irqbalance");
    let (after, _) = applied(&finding.remedies[0], "IRQBALANCE_BANNED_CPUS=c0\n");
    assert_eq!(after, "IRQBALANCE_BANNED_CPULIST=1-3,6-7\n");
}

#[test]
fn a_mask_from_another_file_ends_with_an_empty_one() {
    let made = Made::new(&[("/proc/77/stat", IRQBALANCE), (FILE, "IRQBALANCE_ARGS=-j\n")]);
    made.put("/proc/77/environ", "PATH=/bin\0IRQBALANCE_BANNED_CPUS=1\0");
    let (after, undone) = applied(&made.finding("irqbalance").remedies[0], "IRQBALANCE_ARGS=-j\n");
    assert_eq!(after, "IRQBALANCE_ARGS=-j\nIRQBALANCE_BANNED_CPUS=\nIRQBALANCE_BANNED_CPULIST=1-3\n");
    assert_eq!(undone, "IRQBALANCE_ARGS=-j\n");
}

#[test]
fn moved_interrupts_are_kept_by_the_same_list() {
    let made = Made::new(&[("/proc/77/stat", IRQBALANCE), (FILE, "IRQBALANCE_BANNED_CPUS=c0\n")]);
    made.put("/sys/devices/system/cpu/possible", "0-7\n");
    made.put("/proc/irq/24/smp_affinity_list", "0-3");
    made.put("/proc/irq/24/eth0/x", "");
    let keep = made.finding("irq-movable").remedies[0].keep.clone().unwrap_or_default();
    assert!(
        keep.contains(
            "IRQBALANCE_BANNED_CPULIST=1-3,6-7 in /etc/default/irqbalance instead of IRQBALANCE_BANNED_CPUS"
        ),
        "{keep}"
    );
}

#[test]
fn a_ban_protects_the_cpus_that_it_names() {
    let made = Made::new(&[("/proc/77/stat", IRQBALANCE)]);
    for (text, open) in [
        ("IRQBALANCE_BANNED_CPULIST=3\n", "1-2"),
        ("IRQBALANCE_BANNED_CPULIST=1-3\nIRQBALANCE_BANNED_CPULIST=1\n", "2-3"),
        ("IRQBALANCE_BANNED_CPUS=0000000c\n", "1"),
        // a list is not read beside a mask (`setup_banned_cpus`), unless this is empty
        ("IRQBALANCE_BANNED_CPUS=8\nIRQBALANCE_BANNED_CPULIST=1-3\n", "1-2"),
        ("IRQBALANCE_BANNED_CPULIST=3\nIRQBALANCE_BANNED_CPUS=\n", "1-2"),
        ("#IRQBALANCE_BANNED_CPULIST=1-3\n", "1-3"),
    ] {
        made.put(FILE, text);
        let finding = made.finding("irqbalance");
        let open: CpuSet = open.parse().expect("a list");
        assert!(finding.title.contains(&format!("to {} of", open.named())), "{text}: {}", finding.title);
        let commands = finding.remedies[0].commands();
        let added = "printf '%s\\n' IRQBALANCE_BANNED_CPULIST=1-3 >> /etc/default/irqbalance".to_owned();
        assert!(commands.contains(&added), "{commands:?}");
    }
    made.put(FILE, "IRQBALANCE_BANNED_CPULIST=1-x\n");
    assert!(matches!(made.rule("irqbalance"), Ruled::Undecided(why) if why.contains("1-x")));
    // the environment of the process is what it started with
    made.put("/proc/77/environ", "PATH=/bin\0IRQBALANCE_BANNED_CPULIST=1-3\0");
    assert!(matches!(made.rule("irqbalance"), Ruled::Passed));
}

#[test]
fn a_ban_ends_the_protection_of_isolated_cpus() {
    let made = Made::new(&[("/proc/77/stat", IRQBALANCE), ("/sys/devices/system/cpu/isolated", "1-3\n")]);
    assert!(matches!(made.rule("irqbalance"), Ruled::Passed));
    made.put("/etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=0\n");
    let finding = made.finding("irqbalance");
    assert!(finding.level == Level::Low && finding.advice.is_some_and(|a| a.contains("replaces")));
}

#[test]
fn the_line_goes_into_the_file_that_the_unit_reads() {
    let written = |files: &[(&str, &str)]| {
        let made = Made::new(&[("/proc/77/stat", IRQBALANCE)]);
        files.iter().for_each(|(file, text)| made.put(file, text));
        made.finding("irqbalance").remedies[0].commands().join("; ")
    };
    let red_hat = ("/etc/os-release", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n");
    assert!(written(&[red_hat, ("/etc/default/irqbalance", "")]).contains(">> /etc/sysconfig/irqbalance"));
    assert!(written(&[("/etc/os-release", "ID=debian\n")]).contains(">> /etc/default/irqbalance"));
    assert!(written(&[("/etc/sysconfig/irqbalance", "")]).contains(">> /etc/sysconfig/irqbalance"));
    let unit = (
        "/usr/lib/systemd/system/irqbalance.service",
        "[Service]\nEnvironmentFile=-/usr/lib/x\nEnvironmentFile=-/etc/site.env\n",
    );
    assert!(written(&[red_hat, unit]).contains(">> /etc/site.env"));
    let group = ("/proc/77/cgroup", "0::/system.slice/site-irq.service\n");
    assert!(written(&[group]).ends_with("systemctl restart site-irq.service"));
}
