// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of plans and exports on findings made by hand.

use std::collections::BTreeMap;

use colony_doctor::remedy::{Change, Effort, FileNow, Loss, Remedy, TaskNow};
use colony_doctor::{Examination, Finding, Level, Subject, Touches};

use crate::{Action, Plan, Profile, Progress, Step, kernel_command_line};

fn finding(id: &str, level: Level, remedies: Vec<Vec<Change>>) -> Finding {
    let remedy = |changes| Remedy {
        changes,
        effort: Effort::Setting,
        risk: "none".into(),
        moves: None,
        losses: Vec::new(),
        keep: None,
    };
    Finding {
        id: id.into(),
        subject: Subject::Memory,
        level,
        title: id.into(),
        evidence: Vec::new(),
        remedies: remedies.into_iter().map(remedy).collect(),
        advice: None,
        owners: Vec::new(),
        touches: Touches::default(),
    }
}

/// A finding whose remedy brings a loss.
fn costly(id: &str, loss: Loss, change: Change) -> Finding {
    let mut finding = finding(id, Level::Low, vec![vec![change]]);
    finding.remedies[0].losses.push(loss);
    finding
}

fn described(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|s| s.action.describe()).collect()
}

fn reason<'a>(plan: &'a Plan, id: &str) -> &'a str {
    plan.left_out.iter().find(|l| l.id == id).map(|l| l.reason.as_str()).unwrap_or_default()
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
    let line = Change::Line {
        file: "/etc/x".into(),
        line: "y".into(),
        replaces: Vec::new(),
        reload: words(&["true"]),
    };
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
            costly("swap", Loss::Memory, command),
            finding("stat-interval", Level::Low, vec![vec![write("/proc/sys/vm/stat_interval", "120")]]),
            finding("irqbalance", Level::Low, vec![vec![line]]),
            finding("smi", Level::Low, vec![]),
            finding("thp", Level::Note, vec![vec![write("/sys/thp", "madvise")]]),
        ],
        undecided: Vec::new(),
        passed: Vec::new(),
        stays: BTreeMap::new(),
    }
}

#[test]
fn a_plan_takes_what_the_running_node_can_and_says_why_not_the_rest() {
    let plan = Plan::new(&examination(), &Profile::find("hpc").expect("built in"));
    assert_eq!(described(&plan), ["1-3 into /sys/fs/cgroup/x", "120 into /proc/sys/vm/stat_interval"]);
    assert_eq!(kernel_command_line(&plan), "nohz_full=1-3 rcu_nocbs=1-3");
    let reason = |id: &str| reason(&plan, id);
    assert_eq!(reason("nohz-full"), "needs a kernel parameter and a boot");
    assert_eq!(reason("swap"), "costs memory: made only with --also swap");
    assert_eq!(reason("smi"), "nothing on this node helps");
    assert!(reason("irqbalance").contains("configuration file") && reason("thp").contains("severity note"));
}

#[test]
fn a_profile_of_ones_own_chooses_rules_and_adds_settings() {
    let text = "name = \"mine\"\nlevel = \"note\"\nonly = [\"swap\", \"thp\"]\n[[set]]\nfile = \"/proc/sys/a\"\nvalue = \"5\"";
    let plan = Plan::new(&examination(), &Profile::parse(text).expect("right"));
    assert_eq!(described(&plan), ["swapoff /dev/a b", "madvise into /sys/thp", "5 into /proc/sys/a"]);
}

/// An examination with these findings only.
fn with_findings(findings: Vec<Finding>) -> Examination {
    Examination { findings, ..examination() }
}

#[test]
fn no_profile_takes_the_protection_of_ordinary_tasks_unasked_whatever_its_rule_is_called() {
    // the rules of today's kernels, and one of a kernel to come
    let rules = ["rt-throttling", "fair-server", "ksm"];
    let protections = rules.map(|rule| costly(rule, Loss::Protection, write("/proc/sys/kernel/a", "0")));
    let examination = with_findings(protections.into());
    for toml in ["name = \"site\"", "name = \"site\"\nlevel = \"note\"\naccept = [\"frequency\"]"] {
        let site = Profile::parse(toml).expect("right");
        for profile in [Profile::find("hpc").expect("built in"), site] {
            let plan = Plan::new(&examination, &profile);
            assert!(plan.steps.is_empty(), "{}: {:?}", profile.name, plan.steps);
            for rule in rules {
                let told = reason(&plan, rule);
                assert!(
                    told.contains("ordinary tasks") && told.contains(&format!("--also {rule}")),
                    "{told}"
                );
            }
        }
    }
    assert_eq!(Plan::new(&examination, &Profile::find("latency").expect("built in")).steps.len(), 3);
    let named = Profile::find("hpc").and_then(|p| p.with_also(&["fair-server".into()])).expect("a rule");
    assert_eq!(Plan::new(&examination, &named).steps.len(), 1);
}

#[test]
fn limits_are_changed_only_where_the_rule_is_named() {
    let limit = write("/sys/fs/cgroup/job_42/memory.max", "max");
    let finding = Finding {
        level: Level::High,
        owners: vec!["Slurm job 42".into(), "user 1000".into()],
        ..costly("memory-reclaim", Loss::Limit, limit)
    };
    let examination = with_findings(vec![finding]);
    for profile in Profile::BUILT_IN {
        let plan = Plan::new(&examination, &Profile::find(profile).expect("built in"));
        assert!(plan.steps.is_empty(), "{plan:?}");
        let told = reason(&plan, "memory-reclaim");
        assert_eq!(told, "changes limits of Slurm job 42, user 1000: made only with --also memory-reclaim");
    }
    for named in ["only = [\"memory-reclaim\"]", "also = [\"memory-reclaim\"]\nlevel = \"high\""] {
        let profile = Profile::parse(&format!("name = \"site\"\n{named}")).expect("right");
        assert_eq!(Plan::new(&examination, &profile).steps.len(), 1, "{named}");
    }
}

#[test]
fn a_rule_that_is_named_is_made_whatever_its_severity() {
    let mut profile = Profile::find("hpc").expect("built in");
    profile.also.push("thp".into());
    assert!(described(&Plan::new(&examination(), &profile)).contains(&"madvise into /sys/thp".to_owned()));
    profile.except.push("thp".into());
    assert!(!described(&Plan::new(&examination(), &profile)).contains(&"madvise into /sys/thp".to_owned()));
}

#[test]
fn tasks_are_moved_by_number_and_start_and_writes_are_optional() {
    let task = colony_node::task::TaskId { tid: 77, start_ticks: 100 };
    let cpus = |list: &str| list.parse().expect("a list");
    let now = TaskNow { task, name: "rtkit".into(), cpus: cpus("0-3") };
    let command = Change::Command { apply: vec!["true".into()], undo: None };
    let examination = with_findings(vec![finding(
        "rt-tasks",
        Level::Medium,
        vec![vec![
            Change::Affinity { tasks: vec![now], cpus: cpus("0") },
            write("/proc/sys/a", "1"),
            command,
        ]],
    )]);
    let plan = Plan::new(&examination, &Profile::find("hpc").expect("built in"));
    assert_eq!(plan.steps[0].action, Action::Affinity { task, name: "rtkit".into(), cpus: cpus("0") });
    assert_eq!(plan.steps.iter().map(|s| s.optional).collect::<Vec<_>>(), [true, true, false]);
    let json = serde_json::to_string(&plan.steps).expect("plain data");
    assert_eq!(serde_json::from_str::<Vec<Step>>(&json).expect("own text"), plan.steps);
}

#[test]
fn a_refused_step_leaves_the_plan_with_the_kernels_answer() {
    let mut plan = Plan::new(&examination(), &Profile::find("hpc").expect("built in"));
    let reason = "the kernel does not let this interrupt be moved".to_owned();
    let refused = Step { progress: Progress::Failed { reason }, ..plan.steps[0].clone() };
    plan.leave_out(&[refused]);
    assert_eq!(described(&plan), ["120 into /proc/sys/vm/stat_interval"]);
    let told = plan.left_out.last().expect("one");
    assert_eq!(told.id, "isolation");
    assert_eq!(told.reason, "/sys/fs/cgroup/x: the kernel does not let this interrupt be moved");
}
