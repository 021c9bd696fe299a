// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that the tests share: a daemon, its nodes, and a folder for files.

use std::fs::File;
use std::io::{PipeReader, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use colony_ciod::testing::{self, SyntheticNode};
use colony_ciod::{Ciod, Config, Job, JobSpec, NodeLink, Streams};

/// Long enough to be sure that nothing comes; the tests wait so long for what must not happen.
pub(crate) const MOMENT: Duration = Duration::from_millis(100);

/// Bytes of a node's window.
pub(crate) const WINDOW: u64 = 32 << 20;

/// A daemon with nodes, a folder and a program.
pub(crate) struct House {
    pub(crate) ciod: Ciod,
    pub(crate) links: Vec<NodeLink>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) program: PathBuf,
}

pub(crate) fn config() -> Config {
    let mut config = Config::new(env!("CARGO_BIN_EXE_ciod"));
    config.grace = Duration::from_secs(3);
    config
}

impl House {
    pub(crate) fn new(nodes: u32) -> Self {
        Self::with(nodes, config())
    }

    pub(crate) fn with(nodes: u32, config: Config) -> Self {
        colony_node::descriptor::raise_limit();
        let ciod = Ciod::new(config).expect("a daemon");
        let links = (0..nodes).map(|n| ciod.attach(n, WINDOW).expect("a node")).collect();
        let folder = tempfile::tempdir().expect("folder");
        // other users than the test's own go through it
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("mode");
        let program = folder.path().join("program");
        std::fs::write(&program, testing::program()).expect("program");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("mode");
        Self { ciod, links, folder, program }
    }

    pub(crate) fn spec(&self) -> JobSpec {
        let mut spec = JobSpec::new(&self.program);
        spec.directory = self.folder.path().into();
        spec.go_on = true;
        spec
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A job on all nodes; what it prints.
    pub(crate) fn launch(&self, spec: JobSpec) -> (Job, PipeReader) {
        let (reader, writer) = std::io::pipe().expect("pipe");
        let err = writer.try_clone().expect("dup");
        let streams = Streams::output(writer.into(), err.into()).expect("streams");
        (self.ciod.launch(spec, &self.numbers(), streams).expect("launched"), reader)
    }

    /// Numbers of all nodes.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.links.iter().map(NodeLink::number).collect()
    }

    pub(crate) fn synthetic(&self, n: usize) -> SyntheticNode {
        SyntheticNode::new(&self.links[n]).expect("a node")
    }

    /// A job on all nodes that runs; its nodes, and what it prints.
    pub(crate) fn run(&self, spec: JobSpec) -> (Job, Vec<SyntheticNode>, PipeReader) {
        let (job, output) = self.launch(spec);
        let mut nodes: Vec<_> = (0..self.links.len()).map(|n| self.synthetic(n)).collect();
        let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
        for (node, seq) in nodes.iter_mut().zip(asked) {
            assert_eq!(node.answer(0, seq), 0);
            node.begin();
        }
        (job, nodes, output)
    }
}

/// Ends all processes and waits for the job.
pub(crate) fn finish(job: &Job, nodes: &mut [SyntheticNode]) -> colony_ciod::JobOutcome {
    for node in nodes.iter_mut() {
        node.exit(0, 0);
        node.ask_for_job();
    }
    job.wait()
}

/// Everything that comes until the end.
pub(crate) fn read(from: &mut PipeReader) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).expect("text");
    text
}

/// Returns `true` if the test runs as root; otherwise the test is skipped.
pub(crate) fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        colony_testing::skip("only root can become others");
    }
    root
}

pub(crate) fn null() -> File {
    File::options().read(true).write(true).open("/dev/null").expect("/dev/null")
}
