// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of plans and exports on findings made by hand.

use colony_doctor::remedy::{Change, FileNow, Remedy};
use colony_doctor::{Examination, Finding, Level, Subject, Touches};

use crate::{Plan, Profile, kernel_command_line, tuned};

fn finding(id: &str, level: Level, remedies: Vec<Vec<Change>>) -> Finding {
    let remedy = |changes| Remedy { changes, risk: "none".into(), keep: None };
    Finding {
        id: id.into(),
        subject: Subject::Memory,
        level,
        title: id.into(),
        evidence: Vec::new(),
        remedies: remedies.into_iter().map(remedy).collect(),
        advice: None,
        touches: Touches::default(),
    }
}

fn write(file: &str, value: &str) -> Change {
    Change::Write { files: vec![FileNow { file: file.into(), value: "1".into() }], value: value.into() }
}

fn examination() -> Examination {
    let parameter = |p: &str| Change::KernelParameter { parameter: p.into(), replaces: None };
    let words = |w: &[&str]| w.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let command = Change::Command {
        apply: words(&["swapoff", "/dev/a b"]),
        undo: Some(words(&["swapon", "/dev/a b"])),
    };
    let line = Change::Line { file: "/etc/x".into(), line: "y".into(), reload: words(&["true"]) };
    Examination {
        host: None,
        kernel: None,
        job: "1-3".parse().expect("a list"),
        findings: vec![
            finding("nohz-full", Level::High, vec![vec![parameter("nohz_full=1-3")]]),
            finding(
                "isolation",
                Level::High,
                vec![vec![parameter("isolcpus=1-3")], vec![write("/sys/fs/cgroup/x", "1-3")]],
            ),
            finding(
                "rcu-nocbs",
                Level::Medium,
                vec![vec![parameter("rcu_nocbs=1-3"), parameter("nohz_full=1-3")]],
            ),
            finding("swap", Level::Low, vec![vec![command]]),
            finding("stat-interval", Level::Low, vec![vec![write("/proc/sys/vm/stat_interval", "120")]]),
            finding("irqbalance", Level::Low, vec![vec![line]]),
            finding("smi", Level::Low, vec![]),
            finding("thp", Level::Note, vec![vec![write("/sys/thp", "madvise")]]),
        ],
        undecided: Vec::new(),
        passed: Vec::new(),
    }
}

#[test]
fn a_plan_takes_what_the_running_node_can_and_says_why_not_the_rest() {
    let plan = Plan::new(&examination(), &Profile::find("hpc").expect("built in"));
    let steps: Vec<String> = plan.steps.iter().map(|s| s.action.describe()).collect();
    assert_eq!(steps, ["1-3 into /sys/fs/cgroup/x", "120 into /proc/sys/vm/stat_interval"]);
    assert_eq!(kernel_command_line(&plan), "nohz_full=1-3 rcu_nocbs=1-3");
    let reason =
        |id: &str| plan.left_out.iter().find(|l| l.id == id).map(|l| l.reason.as_str()).unwrap_or_default();
    assert_eq!(reason("nohz-full"), "needs a kernel parameter and a boot");
    assert_eq!(reason("swap"), "not in the profile hpc");
    assert_eq!(reason("smi"), "nothing on this node helps");
    assert!(reason("irqbalance").contains("configuration file") && reason("thp").contains("severity note"));
}

#[test]
fn a_profile_of_ones_own_chooses_rules_and_adds_settings() {
    let text = "name = \"mine\"\nlevel = \"note\"\nonly = [\"swap\", \"thp\"]\n[[set]]\nfile = \"/proc/sys/a\"\nvalue = \"5\"";
    let plan = Plan::new(&examination(), &Profile::parse(text).expect("right"));
    let steps: Vec<String> = plan.steps.iter().map(|s| s.action.describe()).collect();
    assert_eq!(steps, ["swapoff /dev/a b", "madvise into /sys/thp", "5 into /proc/sys/a"]);
}

#[test]
fn a_tuned_profile_has_sections_and_comments_for_commands() {
    let mut profile = Profile::find("hpc").expect("built in");
    profile.except.clear();
    let text = tuned(&Plan::new(&examination(), &profile), &profile);
    for part in [
        "[main]\nsummary=Colony, profile hpc\n",
        "[sysctl]\nvm.stat_interval=120\n",
        "[sysfs]\n/sys/fs/cgroup/x=1-3\n",
        "[bootloader]\ncmdline_colony=nohz_full=1-3 rcu_nocbs=1-3\n",
        "# swap: swapoff '/dev/a b'\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
