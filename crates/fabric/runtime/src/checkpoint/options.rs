// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of checkpoints, from a program and from the environment.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The variable with the options of checkpoints.
const VARIABLE: &str = "COLONY_CHECKPOINT";

/// The variable with the folder of the checkpoints from which a job begins.
pub(crate) const RESTART: &str = "COLONY_RESTART";

/// The time from one checkpoint to the next. A checkpoint is made when all objects wait in `at_sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// So many times that all objects have called `at_sync`.
    Rounds(u64),
    /// The first `at_sync` after this time.
    Time(Duration),
}

/// Checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// The time from one checkpoint to the next.
    pub period: Period,
    /// Two copies in memory, for ranks that are replaced.
    pub memory: bool,
    /// Files in this folder, which all ranks reach under this path; for the next job, and if both copies in memory are lost.
    pub disk: Option<PathBuf>,
    /// Complete checkpoints that are kept in the folder, at least 1: if the newest turns out to be damaged, the next job can
    /// restart from the one before it.
    pub keep: u32,
    /// Logs messages, up to so many bytes on each PE: after a death, only the objects of the dead process run again.
    pub log: Option<u64>,
    /// Allows both copies on one machine: they survive the death of processes, but not of that machine.
    pub same_machine: bool,
}

impl CheckpointOptions {
    /// Checkpoints in memory with this period, whose two copies are on different machines.
    #[must_use]
    pub fn new(period: Period) -> Self {
        Self { period, memory: true, disk: None, keep: KEEP, log: None, same_machine: false }
    }

    /// Returns `true` if the environment has options.
    pub(crate) fn are_in_environment() -> bool {
        std::env::var_os(VARIABLE).is_some_and(|text| !text.is_empty())
    }

    /// The given options, unless the environment has others: `COLONY_CHECKPOINT` is `none`, or `memory`, `disk=FOLDER` or
    /// both with options behind colons such as `memory:every=10s:same-machine`.
    ///
    /// # Errors
    /// A text for people, which names the variable.
    pub fn with_environment(given: Option<Self>) -> Result<Option<Self>, String> {
        match std::env::var(VARIABLE) {
            Ok(text) if text.is_empty() => Ok(given),
            Ok(text) if text == "none" => Ok(None),
            Ok(text) => text.parse().map(Some).map_err(|e| format!("{VARIABLE}: {e}")),
            Err(std::env::VarError::NotPresent) => Ok(given),
            Err(std::env::VarError::NotUnicode(text)) => {
                Err(format!("{VARIABLE} is {text:?}, which is no UTF-8"))
            }
        }
    }
}

/// The most bytes of a log, by default.
const LOG: u64 = 256 << 20;
/// Complete checkpoints that are kept on disk, by default and at most.
const KEEP: u32 = 2;
const MOST_KEPT: u32 = 1000;

/// A size such as `64M`.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text:.40}` is no size of a log; write bytes, or `64M` or `1G`");
    let (number, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// A number of checkpoints to keep.
fn kept(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_KEPT).contains(number));
    number.ok_or_else(|| format!("`{text:.40}` is no number of checkpoints from 1 to {MOST_KEPT}; {EXAMPLE}"))
}

const EXAMPLE: &str = "write `memory:every=10s` (seconds), `disk=FOLDER:every=4` (calls of at_sync), `memory:disk=FOLDER`, `memory:log` or `none`";

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text:.40}` is no period; {EXAMPLE}");
        if let Some(seconds) = text.strip_suffix('s') {
            let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
            let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
            return Ok(Self::Time(time));
        }
        match text.parse() {
            Ok(0) | Err(_) => Err(wrong()),
            Ok(rounds) => Ok(Self::Rounds(rounds)),
        }
    }
}

impl FromStr for CheckpointOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Self { memory: false, ..Self::new(Period::Rounds(1)) };
        let mut keeps = false;
        for part in text.split(':') {
            match part.split_once('=') {
                None if part == "memory" => options.memory = true,
                Some(("disk", folder)) if !folder.is_empty() => options.disk = Some(folder.into()),
                Some(("every", period)) => options.period = period.parse()?,
                Some(("keep", number)) => (options.keep, keeps) = (kept(number)?, true),
                None if part == "same-machine" => options.same_machine = true,
                None if part == "log" => options.log = Some(LOG),
                Some(("log", size)) => options.log = Some(bytes(size)?),
                _ => return Err(format!("`{part:.40}` is no scheme or option; {EXAMPLE}")),
            }
        }
        if options.log.is_some() && !options.memory {
            return Err(format!("`{text:.40}` logs messages without copies in memory; write `memory:log`"));
        }
        if !options.memory && options.disk.is_none() {
            return Err(format!("`{text:.40}` has no scheme; {EXAMPLE}"));
        }
        if keeps && options.disk.is_none() {
            return Err(format!(
                "`{text:.40}` keeps checkpoints without a folder; write `disk=FOLDER:keep=3`"
            ));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_a_scheme_with_a_period() {
        let parse = |text: &str| text.parse::<CheckpointOptions>();
        assert_eq!(parse("memory"), Ok(CheckpointOptions::new(Period::Rounds(1))));
        assert_eq!(parse("memory:every=4"), Ok(CheckpointOptions::new(Period::Rounds(4))));
        let time = Period::Time(Duration::from_millis(500));
        let time = CheckpointOptions { same_machine: true, ..CheckpointOptions::new(time) };
        assert_eq!(parse("memory:every=0.5s:same-machine"), Ok(time));
        let both = CheckpointOptions { disk: Some("/d".into()), ..CheckpointOptions::new(Period::Rounds(2)) };
        assert_eq!(parse("memory:disk=/d:every=2"), Ok(both.clone()));
        assert_eq!(both.keep, 2);
        assert_eq!(parse("every=2:disk=/d"), Ok(CheckpointOptions { memory: false, ..both.clone() }));
        assert_eq!(parse("memory:disk=/d:every=2:keep=5"), Ok(CheckpointOptions { keep: 5, ..both }));
        for wrong in
            ["", "disk", "disk=", "every=4", "memory:", "memory:every", "memory:every=0", "memory:every=-1s"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "memory:every=nans",
            "memory:every=1e99s",
            "memory:every=99999999999999999999",
            "memory:same-machine=1",
            "memory:keep=3",
            "disk=/d:keep=0",
            "disk=/d:keep=1001",
            "disk=/d:keep",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
