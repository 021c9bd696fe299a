// SPDX-License-Identifier: MIT OR Apache-2.0
//! The example `mortal`, whose ranks die at chosen points.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Output, Stdio};

use crate::common::example;

pub(crate) const CHECKPOINT: &str = "COLONY_CHECKPOINT";
pub(crate) const EVERY_ROUND: &str = "memory:same-machine";
/// Several load balancings come between two checkpoints, whose messages are logged.
pub(crate) const LOG: &str = "memory:same-machine:every=4:log";
pub(crate) const GO_ON: &str = "and the others go on";

/// The example whose ranks die at the points of `deaths`: `PHASE-RANK`, and how often the point is passed before.
pub(crate) struct Mortal {
    pub(crate) ranks: u32,
    pub(crate) restarts: u32,
    pub(crate) deaths: Vec<(String, u32)>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// Seconds after which a silent rank counts as dead: a busy machine may hold a rank up for half a second.
    pub(crate) timeout: Option<u32>,
}

impl Mortal {
    pub(crate) fn new(deaths: &[(&str, u32, u32)]) -> Self {
        let deaths = deaths.iter().map(|(phase, rank, after)| (format!("{phase}-{rank}"), *after)).collect();
        let variables = vec![(CHECKPOINT, EVERY_ROUND.into())];
        Self { ranks: 3, restarts: 4, deaths, variables, timeout: Some(60) }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name, value.as_ref().to_owned()));
        self
    }

    /// Runs the example. Every death has to have happened.
    pub(crate) fn run(self) -> Output {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, after) in &self.deaths {
            std::fs::write(folder.path().join(name), after.to_string()).expect("room");
        }
        let mut command = Command::new(example("run"));
        command.arg(self.ranks.to_string()).arg(example("mortal")).stdin(Stdio::null());
        command.env("MORTAL", folder.path()).env("RUN_RESTARTS", self.restarts.to_string());
        command.envs(self.variables).envs(self.timeout.map(|seconds| ("RUN_TIMEOUT", seconds.to_string())));
        let output = command.output().expect("the launcher starts");
        let left = std::fs::read_dir(folder.path()).expect("ours").count();
        assert_eq!(left, 0, "deaths that did not happen: {}", text(&output.stderr));
        output
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn lines(output: &Output, begin: &str) -> Vec<String> {
    text(&output.stderr).lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect()
}

/// The result of a run in which nobody dies.
pub(crate) fn undisturbed() -> String {
    let output = Mortal::new(&[]).run();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A run with these deaths ends well, with the result of a run without any.
pub(crate) fn assert_recovers(mortal: Mortal, expected: &str, restarts: usize) {
    let shown = format!("{:?} {:?}", mortal.deaths, mortal.variables);
    let output = mortal.run();
    assert!(output.status.success(), "{shown}: {}", text(&output.stderr));
    assert_eq!(text(&output.stdout), expected, "{shown}");
    let warnings = lines(&output, "warning:");
    let replaced = warnings.iter().filter(|line| line.contains("restart")).count();
    assert_eq!(replaced, restarts, "{shown}: {warnings:?}");
}
