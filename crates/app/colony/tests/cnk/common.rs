// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes for the tests.

use std::path::{Path, PathBuf};

use colony_nodes::ciod::{Config, JobSpec};
use colony_nodes::programs::static_program;
use colony_nodes::{Captured, Capturing, Machine, Partition, Places, Running};
use colony_vm::testing::missing;

/// Output and outcome of a job.
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
        colony_testing::skip(reason);
        return None;
    }
    let found: Result<Vec<PathBuf>, String> = names.iter().map(|name| static_program(name)).collect();
    match found {
        Ok(all) => all.try_into().ok(),
        Err(reason) => {
            colony_testing::skip(reason);
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

pub(crate) fn boot(machine: Machine, places: impl Into<Places>) -> Partition {
    Partition::boot(machine, places, Config::new(ciod())).expect("boots")
}

/// A job that is under way, with what it prints.
pub(crate) struct Launched(Capturing);

impl Launched {
    pub(crate) fn job(&self) -> &Running {
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

pub(crate) fn launch(partition: &mut Partition, mut spec: JobSpec) -> Launched {
    // no test waits for ever for a job that hangs
    spec.timeout_s = spec.timeout_s.or(Some(240.0));
    Launched(partition.launch_captured(spec).expect("starts"))
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

/// A folder of its own, by the name that `getcwd` gives it.
pub(crate) fn folder() -> tempfile::TempDir {
    let place = std::env::temp_dir().canonicalize().expect("a place for folders");
    tempfile::tempdir_in(place).expect("a folder")
}

/// A folder that other users may reach, too; `None`, with the reason printed, where there is no place for one.
pub(crate) fn folder_for_all() -> Option<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let open = |place: &Path| {
        let mut above = place.ancestors();
        above.all(|f| f.metadata().is_ok_and(|m| m.permissions().mode() & 0o001 != 0))
    };
    let places = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
    let found = places.iter().filter_map(|place| place.canonicalize().ok()).find(|place| open(place));
    if found.is_none() {
        colony_testing::skip("other users reach neither TMPDIR nor /tmp nor /var/tmp");
    }
    found.map(|place| tempfile::tempdir_in(place).expect("a folder"))
}
