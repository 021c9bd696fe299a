// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of a job by its user, before anything is looked up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::JobError;

/// A job, as TOML or JSON says it. Everything but `executable` has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The static x86-64 program that every process runs, unless [`JobSpec::programs`] says otherwise; as the user
    /// sees it below `root`, relative to `directory`.
    pub executable: PathBuf,
    /// Arguments after the name of the program.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// `argv[0]`; as given in `executable` where it is not set.
    #[serde(default)]
    pub name: Option<String>,
    /// The environment: these variables and no others (`COLONY_RANK`, `COLONY_SIZE` and `COLONY_TORUS_DIMS` are
    /// added).
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The directory that the processes start in, below `root`.
    #[serde(default = "slash")]
    pub directory: PathBuf,
    /// Name or number of the user; the caller where it is not set. Another user than the caller's needs root.
    #[serde(default)]
    pub user: Option<String>,
    /// Name or number of the group; the user's own where it is not set.
    #[serde(default)]
    pub group: Option<String>,
    /// Names or numbers of the supplementary groups; the user's own where it is not set.
    #[serde(default)]
    pub groups: Option<Vec<String>>,
    /// The file system that the job sees.
    #[serde(default)]
    pub files: Files,
    /// Coprocessor mode or virtual node mode.
    #[serde(default)]
    pub mode: Mode,
    /// Number of processes; as many as the nodes hold where it is not set.
    #[serde(default)]
    pub processes: Option<u32>,
    /// Other programs for some ranks (MPMD); a rank that is in several has the last.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// Put the rank and `: ` before each line of standard output and standard error.
    #[serde(default)]
    pub labels: bool,
    /// Let the others go on when a process ends by a signal or with its node; they are killed otherwise, as what they
    /// wait for will not come.
    #[serde(default)]
    pub go_on: bool,
    /// End the job after this many seconds.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// A file that is the standard input of rank 0, opened with the user's rights; the stream of the job where it is not set.
    #[serde(default)]
    pub stdin: Option<PathBuf>,
    /// A file for standard output, opened with the user's rights; the stream of the job where it is not set. Each rank has a
    /// file of its own if the name contains `%r`, which stands for the rank; otherwise all have one.
    #[serde(default)]
    pub stdout: Option<String>,
    /// As `stdout`, for standard error.
    #[serde(default)]
    pub stderr: Option<String>,
    /// The most bytes of each stream of the job that is a regular file, as its owner has opened it. The program that writes more gets
    /// `EDQUOT`, or `ENOSPC` if the disk has less than 4 MiB free, and the job ends with an error. It does not hold for the files of `stdout` and `stderr`. No limit where it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_limit: Option<u64>,
    /// Files and folders of the host that are copied into Linux I/O nodes before the job starts, at their own paths; links in
    /// folders are left out. Other I/O nodes have the files of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<PathBuf>,
    /// Extent of the torus; all nodes in a row where it is not set. The owner of a partition sets it.
    #[serde(default)]
    pub torus: Option<[u32; 3]>,
    /// Bytes of the window between the nodes, if they have one: tells the programs by `COLONY_TORUS`.
    #[serde(default)]
    pub torus_bytes: Option<u64>,
    /// Nodes of a pset, which share an I/O node and so a worker; all of them where it is not set. The owner of a
    /// partition may give other places ([`crate::Place`]).
    #[serde(default)]
    pub pset: Option<u32>,
}

fn slash() -> PathBuf {
    "/".into()
}

/// Coprocessor mode or virtual node mode (SC06 paper, 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One process a node, with all its memory.
    #[default]
    Coprocessor,
    /// Two processes a node, one a CPU, with half of the memory each.
    VirtualNode,
}

impl Mode {
    /// Processes that a node holds.
    pub const fn processes(self) -> u32 {
        match self {
            Self::Coprocessor => 1,
            Self::VirtualNode => 2,
        }
    }
}

/// A program for some ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// First rank that runs it.
    pub first: u32,
    /// Last rank that runs it.
    pub last: u32,
    /// See [`JobSpec::executable`].
    pub executable: PathBuf,
    /// See [`JobSpec::arguments`].
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// The file system that a job sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// That of the I/O node.
    #[default]
    Host,
    /// The tree below this directory (needs root).
    Root(PathBuf),
    /// A name space of its own (needs root): that of the I/O node with these directories bound over others.
    Binds(Vec<Bind>),
}

/// A directory or file seen at another place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// The directory or file that is seen.
    pub from: PathBuf,
    /// Where; must exist.
    pub to: PathBuf,
    /// True if it can only be read.
    #[serde(default)]
    pub read_only: bool,
}

impl JobSpec {
    /// A job with defaults.
    pub fn new(executable: impl Into<PathBuf>) -> Self {
        Self {
            executable: executable.into(),
            arguments: Vec::new(),
            name: None,
            environment: BTreeMap::new(),
            directory: slash(),
            user: None,
            group: None,
            groups: None,
            files: Files::Host,
            mode: Mode::Coprocessor,
            processes: None,
            programs: Vec::new(),
            labels: false,
            go_on: false,
            timeout_s: None,
            stdin: None,
            stdout: None,
            stderr: None,
            stream_limit: None,
            copies: Vec::new(),
            torus: None,
            torus_bytes: None,
            pset: None,
        }
    }

    /// Reads a job from TOML.
    ///
    /// # Errors
    /// [`JobError::Spec`], with the place.
    pub fn from_toml(text: &str) -> Result<Self, JobError> {
        toml::from_str(text).map_err(|e| JobError::Spec(e.to_string()))
    }

    /// Processes of the job on so many nodes.
    ///
    /// # Errors
    /// [`JobError::Spec`] if they do not fit, or a number of the job makes no sense.
    pub fn size(&self, nodes: u32) -> Result<u32, JobError> {
        let wrong = |what: String| Err(JobError::Spec(what));
        let room = nodes.saturating_mul(self.mode.processes());
        let size = self.processes.unwrap_or(room);
        if size == 0 || size > room {
            return wrong(format!("{size} processes do not fit on {nodes} nodes, which hold {room}"));
        }
        if let Some(p) = self.programs.iter().find(|p| p.first > p.last || p.last >= size) {
            return wrong(format!("ranks {} to {} are not in a job of {size} processes", p.first, p.last));
        }
        if self.pset == Some(0) {
            return wrong("a pset has one node at least".into());
        }
        let extent = |d: [u32; 3]| d.iter().try_fold(1u32, |n, &d| n.checked_mul(d));
        if let Some(dims) = self.torus.filter(|&d| extent(d) != Some(nodes)) {
            let [x, y, z] = dims;
            return wrong(format!("a torus of {x} × {y} × {z} is not one of {nodes} nodes"));
        }
        self.timeout()?;
        Ok(size)
    }

    /// Extent of the torus of the job's processes, as [`colony_fship::layout::Personality`] has that of its nodes:
    /// processes of one node are neighbors along x. All in a row where nodes have room left.
    #[must_use]
    pub fn process_torus(&self, nodes: u32, size: u32) -> [u32; 3] {
        let [x, y, z] = self.torus.unwrap_or([nodes, 1, 1]);
        let held = self.mode.processes();
        if nodes.saturating_mul(held) == size { [x.saturating_mul(held), y, z] } else { [size, 1, 1] }
    }

    pub(crate) fn timeout(&self) -> Result<Option<Duration>, JobError> {
        let seconds = |s| {
            Duration::try_from_secs_f64(s).map_err(|_| JobError::Spec(format!("{s} is no number of seconds")))
        };
        self.timeout_s.map(seconds).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_from_toml_and_goes_through_json() {
        let text = r#"
            executable = "/bin/a"
            arguments = ["-v"]
            user = "nobody"
            mode = "virtual-node"
            programs = [{ first = 1, last = 2, executable = "b" }]
            timeout_s = 1.5
            [environment]
            A = "1"
            [files]
            binds = [{ from = "/scratch/x", to = "/tmp" }]
        "#;
        let spec = JobSpec::from_toml(text).expect("right");
        assert_eq!(spec.mode, Mode::VirtualNode);
        assert_eq!(spec.size(2).expect("fits"), 4);
        let json = serde_json::to_string(&spec).expect("json");
        assert_eq!(serde_json::from_str::<JobSpec>(&json).expect("json"), spec);
        assert!(JobSpec::from_toml("executable = 'a'\nspeed = 1").is_err(), "no such field");
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let refused = |change: fn(&mut JobSpec)| {
            let mut spec = JobSpec::new("/bin/a");
            change(&mut spec);
            spec.size(4).is_err()
        };
        assert!(!refused(|_| ()));
        assert!(refused(|s| s.processes = Some(5)));
        assert!(refused(|s| s.processes = Some(0)));
        assert!(refused(|s| s.torus = Some([2, 2, 2])));
        assert!(!refused(|s| s.torus = Some([2, 2, 1])));
        assert!(refused(|s| s.timeout_s = Some(-1.0)));
        assert!(refused(|s| s.pset = Some(0)));
        assert!(refused(
            |s| s.programs = vec![Program { first: 3, last: 4, executable: "b".into(), arguments: vec![] }]
        ));
    }
}
