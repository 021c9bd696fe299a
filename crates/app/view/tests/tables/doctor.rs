// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of a node whose lists of CPUs are wider than a report.

use std::collections::{BTreeMap, HashSet};

use colony_doctor::remedy::{Change, Effort, FileNow, Remedy};
use colony_doctor::{Evidence, Examination, Finding, Level, Subject, Touches};
use colony_node::cpu::CpuSet;
use colony_study::advice::Advice;

use crate::check;

/// The CPUs of a node with 2,048 CPUs in 16 NUMA nodes, without the first of each.
fn job() -> CpuSet {
    (0..2048).filter(|cpu| cpu % 128 != 0).collect()
}

fn remedy(change: Change) -> Remedy {
    Remedy {
        changes: vec![change],
        effort: Effort::Setting,
        risk: format!("the threads of {} share fewer CPUs", job().named()),
        moves: None,
        losses: Vec::new(),
        keep: Some(format!("IRQBALANCE_BANNED_CPULIST={} in /etc/default/irqbalance", job())),
    }
}

fn changes() -> [Change; 5] {
    let file =
        |n: usize| FileNow { file: format!("/proc/irq/{n}/smp_affinity_list"), value: job().to_string() };
    [
        Change::KernelParameter { parameter: format!("nohz_full={}", job()), replaces: None },
        Change::KernelParameter {
            parameter: format!("isolcpus={}", job()),
            replaces: Some("isolcpus=1".into()),
        },
        Change::JobStart { command: format!("colony run --cpus {} --spare-cores 1/numa -- CMD", job()) },
        Change::Write { files: (100..400).map(file).collect(), value: "0".into() },
        Change::Line {
            file: "/etc/default/irqbalance".into(),
            line: format!("IRQBALANCE_BANNED_CPULIST={}", job()),
            replaces: vec!["IRQBALANCE_BANNED_CPULIST=1".into()],
            reload: ["systemctl", "restart", "irqbalance"].map(str::to_owned).into(),
        },
    ]
}

fn examination(changes: impl IntoIterator<Item = Change>) -> Advice {
    let finding = Finding {
        id: "wide".into(),
        subject: Subject::Isolation,
        level: Level::High,
        title: format!("Work runs on {}.", job().named()),
        evidence: vec![Evidence::new("/proc/cmdline", format!("nohz_full={}", job()))],
        remedies: changes.into_iter().map(remedy).collect(),
        advice: Some(format!("Leave {} to the job.", job().named())),
        owners: Vec::new(),
        touches: Touches::default(),
    };
    Advice::without_trace(Examination {
        host: None,
        kernel: None,
        job: job(),
        findings: vec![finding],
        undecided: Vec::new(),
        passed: Vec::new(),
        stays: BTreeMap::new(),
    })
}

#[test]
fn no_list_of_cpus_is_broken_within_a_number_and_no_part_of_a_command_runs() {
    let list = job().to_string();
    let parts: HashSet<&str> = list.split(',').collect();
    for change in changes() {
        let text = colony_view::doctor::advice(&examination([change]));
        check(&text);
        for line in text.lines() {
            // what looks like a range of the list is one
            let words = line.split([' ', ',', '=', '…', '.']);
            let ranges = words.filter(|word| {
                word.split_once('-')
                    .is_some_and(|(a, _)| !a.is_empty() && a.bytes().all(|b| b.is_ascii_digit()))
            });
            ranges.for_each(|range| assert!(parts.contains(range), "{range} in: {line}\n{text}"));
        }
        let commands = text.lines().filter(|line| line.starts_with("  do ") || line.starts_with("  undo "));
        let cut: Vec<&str> = commands.filter(|line| line.contains('…')).collect();
        assert!(!cut.is_empty(), "{text}");
        assert!(cut.iter().all(|line| line[9..].starts_with("# ")), "{cut:?}");
        assert!(text.contains("  whole  colony doctor --explain wide, with"), "{text}");
    }
}

#[test]
fn an_explained_finding_has_each_command_and_each_list_on_one_line() {
    let advice = examination(changes());
    let text = colony_view::doctor::finding(&advice.findings[0], true);
    for remedy in &advice.findings[0].finding.remedies {
        for command in remedy.commands().iter().chain(&remedy.undo_commands()) {
            assert!(text.lines().any(|line| line.ends_with(command)), "{command}\n{text}");
        }
    }
    let keep = format!("IRQBALANCE_BANNED_CPULIST={}", job());
    assert!(text.contains(&keep) && !text.contains("  whole"), "{text}");
}
