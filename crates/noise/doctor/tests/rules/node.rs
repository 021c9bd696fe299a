// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made-up nodes: directories with the files that a rule reads.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use colony_doctor::remedy::{Effort, Remedy};
use colony_doctor::{Examination, Finding, Node, Probes, ThreadSeen, TicksSeen, examine};

/// A node of four CPUs, whose job has 1 to 3.
pub(crate) struct Made {
    dir: tempfile::TempDir,
    probes: Probes,
    threads: Option<Vec<ThreadSeen>>,
    ticks: Vec<TicksSeen>,
}

/// The remedy of a finding that needs kernel parameters and a boot.
pub(crate) fn boot_remedy(finding: &Finding) -> Option<&Remedy> {
    finding.remedies.iter().find(|r| r.effort == Effort::Boot)
}

/// The result of one rule.
#[derive(Debug)]
pub(crate) enum Ruled {
    Found(Vec<Finding>),
    Passed,
    Undecided(String),
}

impl Made {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let made = Self { dir, probes: Probes::default(), threads: None, ticks: Vec::new() };
        made.put("sys/devices/system/cpu/online", "0-3\n");
        for (file, text) in files {
            made.put(file, text);
        }
        made
    }

    pub(crate) fn put(&self, file: &str, text: impl AsRef<[u8]>) {
        let path = self.root().join(file.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    pub(crate) fn read_only(self, file: &str) -> Self {
        let path = self.root().join(file.trim_start_matches('/'));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444)).expect("there");
        self
    }

    pub(crate) fn probes(mut self, probes: Probes) -> Self {
        self.probes = probes;
        self
    }

    pub(crate) fn threads(mut self, threads: Vec<ThreadSeen>) -> Self {
        self.threads = Some(threads);
        self
    }

    /// A trace in which these CPUs had so many timer interrupts each second.
    pub(crate) fn ticks(mut self, ticks: &[(usize, f64)]) -> Self {
        self.ticks = ticks.iter().map(|&(cpu, per_second)| TicksSeen { cpu, per_second }).collect();
        self
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Examines the node for a job on CPUs 1 to 3.
    pub(crate) fn examine(&self) -> Examination {
        self.examine_job("1-3")
    }

    pub(crate) fn examine_job(&self, cpus: &str) -> Examination {
        let job = cpus.parse().expect("a list");
        let node = Node::open(self.root(), Some(&job)).expect("a node").with_probes(self.probes.clone());
        let node = node.with_ticks(self.ticks.clone());
        examine(&match &self.threads {
            Some(threads) => node.with_threads(threads.clone()),
            None => node,
        })
    }

    pub(crate) fn rule(&self, id: &str) -> Ruled {
        self.rule_for("1-3", id)
    }

    pub(crate) fn rule_for(&self, cpus: &str, id: &str) -> Ruled {
        let all = self.examine_job(cpus);
        let of = |found: &str| found.split(':').next() == Some(id);
        let found: Vec<Finding> = all.findings.into_iter().filter(|f| of(&f.id)).collect();
        if !found.is_empty() {
            return Ruled::Found(found);
        }
        if let Some(undecided) = all.undecided.into_iter().find(|u| u.id == id) {
            return Ruled::Undecided(undecided.reason);
        }
        assert!(all.passed.iter().any(|p| p.id == id), "{id} is no rule");
        Ruled::Passed
    }

    pub(crate) fn finding(&self, id: &str) -> Finding {
        self.finding_for("1-3", id)
    }

    pub(crate) fn finding_for(&self, cpus: &str, id: &str) -> Finding {
        match self.rule_for(cpus, id) {
            Ruled::Found(mut found) => found.remove(0),
            other => panic!("{id}: {other:?}"),
        }
    }
}
