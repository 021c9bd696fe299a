//! Nodes for the tests.

use std::path::{Path, PathBuf};

use colony_cnk::ciod::{Config, Job, JobSpec};
use colony_cnk::programs::static_program;
use colony_cnk::{Captured, Capturing, Machine, Partition};
use colony_vm::testing::missing;

/// What a job printed, and what became of it.
pub(crate) struct Ran(Captured);

impl std::ops::Deref for Ran {
    type Target = Captured;

    fn deref(&self) -> &Captured {
        &self.0
    }
}

impl Ran {
    /// The output of a job that did all it should.
    pub(crate) fn output(&self) -> &str {
        assert!(self.outcome.success(), "{}\n{}\n{}", self.outcome, self.stdout, self.stderr);
        &self.stdout
    }
}

/// Static programs; `None`, with the reason printed, where they or virtual machines cannot be had.
pub(crate) fn programs<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let found: Result<Vec<PathBuf>, String> = names.iter().map(|name| static_program(name)).collect();
    match found {
        Ok(all) => all.try_into().ok(),
        // continuous integration builds them: there a skipped test would hide a failure
        Err(reason) if std::env::var_os("CI").is_some() => panic!("{reason}"),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

/// The I/O daemon's program under test.
pub(crate) fn ciod() -> PathBuf {
    let ciod = assert_cmd::cargo::cargo_bin!("colony").with_file_name("ciod");
    assert!(ciod.is_file(), "ciod is not built (cargo build -p colony-ciod)");
    ciod
}

pub(crate) fn boot(machine: Machine, nodes: u32) -> Partition {
    Partition::boot(machine, nodes, Config::new(ciod())).expect("boots")
}

/// A job that is under way, with what it prints.
pub(crate) struct Running(Capturing);

impl Running {
    pub(crate) fn job(&self) -> &Job {
        &self.0.job
    }

    pub(crate) fn end(self, partition: &Partition) -> Ran {
        let ran = self.0.end().expect("its output is ours");
        if !ran.outcome.success() {
            for node in partition.nodes() {
                eprintln!("{}", node.console());
            }
        }
        Ran(ran)
    }
}

pub(crate) fn launch(partition: &mut Partition, mut spec: JobSpec) -> Running {
    // no test waits for ever for a job that hangs
    spec.timeout_s = spec.timeout_s.or(Some(240.0));
    Running(partition.launch_captured(spec).expect("starts"))
}

/// Runs a job to its end.
pub(crate) fn run(partition: &mut Partition, spec: JobSpec) -> Ran {
    launch(partition, spec).end(partition)
}

/// A job of `program` with these arguments, in `folder`.
pub(crate) fn spec(program: &Path, folder: &Path, arguments: &[&str]) -> JobSpec {
    let mut spec = JobSpec::new(program);
    spec.directory = folder.to_owned();
    spec.arguments = arguments.iter().map(|&a| a.to_owned()).collect();
    spec
}

/// A shell script, by the busybox of others.
pub(crate) fn script(busybox: &Path, folder: &Path, text: &str) -> JobSpec {
    spec(busybox, folder, &["sh", "-c", text])
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}
