// SPDX-License-Identifier: MIT OR Apache-2.0
//! The health file of a node: a JSON document in which `colonyd`, or another program, warns that the node may fail.
//!
//! The file may be anything: its readers refuse what is no regular file, is too large, or has another schema.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The health file of a `colonyd` with its default mount point.
pub const DEFAULT_FILE: &str = "/run/colony-health/health.json";

/// The environment variable with the path of another health file, or `none`.
pub const VARIABLE: &str = "COLONY_HEALTH";

/// The largest health file that is read, in bytes.
pub const LARGEST: u64 = 64 << 10;

/// The most characters of a [summary](HealthReport::summary).
const SUMMARY: usize = 200;

/// The content of a health file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// [`HealthReport::SCHEMA`].
    pub schema: String,
    /// The state of the node.
    pub state: State,
    /// The warnings. Empty if the node is healthy.
    #[serde(default)]
    pub reasons: Vec<Reason>,
    /// The sources that are watched.
    #[serde(default)]
    pub watched: Vec<String>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No source warns.
    Healthy,
    /// The node may fail, or is about to be taken out of service.
    Warning,
}

/// A warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The source, such as `edac`.
    pub source: String,
    /// The fault.
    pub text: String,
    /// The time since which the source warns: nanoseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_ns: Option<i64>,
}

/// A health file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The file cannot be read.
    #[error("cannot read the health file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is no health file.
    #[error("{path} is no health file: {reason}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
}

impl HealthReport {
    /// The schema of this version.
    pub const SCHEMA: &str = "colony.health/1";

    /// Reads a health file.
    ///
    /// # Errors
    /// [`HealthError`].
    pub fn read(path: &Path) -> Result<Self, HealthError> {
        let unread = |source| HealthError::Read { path: path.to_owned(), source };
        let foreign = |reason: String| HealthError::Foreign { path: path.to_owned(), reason };
        // a pipe must not make the reader wait for its writer
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unread)?;
        let found = file.metadata().map_err(unread)?;
        if !found.is_file() {
            return Err(foreign("it is no regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        // a file may grow after its size was read
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unread)?;
        if bytes.len() as u64 > LARGEST {
            return Err(foreign(format!("it is larger than {LARGEST} bytes")));
        }
        Self::parse(&bytes).map_err(foreign)
    }

    /// Reads the bytes of a health file.
    ///
    /// # Errors
    /// The difference to a health file.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        // a later schema may have other fields: its name says more than the first of these
        let head: Head = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if head.schema != Self::SCHEMA {
            return Err(format!("its schema is `{:.40}`, not `{}`", clean(&head.schema), Self::SCHEMA));
        }
        serde_json::from_slice(bytes).map_err(|e| e.to_string())
    }

    /// The warnings on one line, without control characters.
    #[must_use]
    pub fn summary(&self) -> String {
        let reasons: Vec<String> = self.reasons.iter().map(ToString::to_string).collect();
        let all = if reasons.is_empty() { "no reason is given".to_owned() } else { reasons.join("; ") };
        let cut: String = all.chars().take(SUMMARY).collect();
        if cut.len() < all.len() { cut + "…" } else { cut }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", clean(&self.source), clean(&self.text))
    }
}

/// The text with blanks in place of control characters: it is printed on terminals.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The path of this node's health file, by the environment. `None` if it is `none`.
#[must_use]
pub fn path_from_environment() -> Option<PathBuf> {
    let given = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let path = given.map_or_else(|| DEFAULT_FILE.into(), PathBuf::from);
    (path != Path::new("none")).then_some(path)
}

/// A reader that reads a health file only when the file has changed.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    last: Option<Version>,
}

/// The difference between two versions of a file: a file that was replaced has another inode, one that was written to
/// another time.
#[derive(Debug, PartialEq, Eq)]
struct Version([i128; 5]);

impl Version {
    fn of(found: &Metadata) -> Self {
        let time = [found.mtime(), found.mtime_nsec()].map(i128::from);
        let [device, inode, size] = [found.dev(), found.ino(), found.size()].map(i128::from);
        Self([device, inode, size, time[0], time[1]])
    }
}

/// The result of one look at a health file.
#[derive(Debug)]
pub enum Look {
    /// There is no file.
    Absent,
    /// The file is the one of the last look.
    Unchanged,
    /// The file is new.
    Changed(Result<HealthReport, HealthError>),
}

impl Watch {
    /// A watch of the health file at `path`.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    /// Looks at the file.
    pub fn look(&mut self) -> Look {
        let Ok(found) = std::fs::metadata(&self.path) else {
            self.last = None;
            return Look::Absent;
        };
        let version = Some(Version::of(&found));
        if version == self.last {
            return Look::Unchanged;
        }
        // if the file is replaced before it is read, the next look reads it again
        self.last = version;
        Look::Changed(HealthReport::read(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn warning(text: &str) -> HealthReport {
        let reason = Reason { source: "edac".into(), text: text.into(), since_unix_ns: Some(7) };
        HealthReport {
            schema: HealthReport::SCHEMA.into(),
            state: State::Warning,
            reasons: vec![reason],
            watched: Vec::new(),
        }
    }

    fn write(path: &Path, report: &HealthReport) {
        crate::file::replace(path, &serde_json::to_vec(report).expect("JSON")).expect("writable");
    }

    #[test]
    fn a_file_is_read_once_for_each_time_it_is_replaced() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("health.json");
        let mut watch = Watch::new(path.clone());
        assert!(matches!(watch.look(), Look::Absent));
        for text in ["mc0", "mc1"] {
            write(&path, &warning(text));
            assert!(matches!(watch.look(), Look::Changed(Ok(report)) if report == warning(text)));
            assert!(matches!(watch.look(), Look::Unchanged));
        }
        std::fs::remove_file(&path).expect("ours");
        assert!(matches!(watch.look(), Look::Absent));
        write(&path, &warning("mc1"));
        assert!(matches!(watch.look(), Look::Changed(Ok(_))), "a file that was removed is new");
    }

    #[test]
    fn the_fewest_fields_and_unknown_ones_are_read() {
        let few = br#"{"schema": "colony.health/1", "state": "warning", "colour": "red"}"#;
        let report = HealthReport::parse(few).expect("a report");
        assert_eq!((report.state, report.summary().as_str()), (State::Warning, "no reason is given"));
    }

    #[test]
    fn what_is_no_health_file_is_refused_with_the_difference() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("health.json");
        let error = || HealthReport::read(&path).expect_err("refused").to_string();
        assert!(error().contains("No such file"), "{}", error());
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert!(error().contains("no regular file"), "{}", error());
        std::fs::remove_file(&path).expect("ours");
        std::fs::File::create(&path).and_then(|f| f.set_len(LARGEST + 1)).expect("a file");
        assert!(error().contains("larger than 65536 bytes"), "{}", error());
        for (text, part) in [
            ("", "EOF"),
            ("{\"schema\": \"colony.health/1\"}", "missing field `state`"),
            ("{\"schema\": \"colony.health/1\", \"state\": \"ill\"}", "unknown variant `ill`"),
            ("{\"schema\": \"colony.stats/1\", \"state\": 1}", "its schema is `colony.stats/1`"),
            ("[1, 2]", "expected a string"),
        ] {
            std::fs::write(&path, text).expect("ours");
            assert!(error().contains(part) && error().contains("health.json"), "{text}: {}", error());
        }
    }

    #[test]
    fn a_summary_is_one_short_line_without_control_characters() {
        let all = warning(&format!("\u{1b}[31mmc0\nfails {}", "x".repeat(500))).summary();
        assert!(all.starts_with("edac:  [31mmc0 fails x") && all.ends_with("x…"), "{all}");
        assert_eq!(all.chars().count(), SUMMARY + 1);
        let mut two = warning("a");
        two.reasons.push(Reason { source: "slurm".into(), text: "b".into(), since_unix_ns: None });
        assert_eq!(two.summary(), "edac: a; slurm: b");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), text in r#"[\[\]{}",:a-z0-9/. ]{0,60}"#) {
            let _ = HealthReport::parse(&bytes);
            let _ = HealthReport::parse(text.as_bytes());
        }
    }
}
