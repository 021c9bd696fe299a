// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that cargo has built, by its messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::libtest::TestProgram;
use crate::process::{self, Times};
use crate::runs;

/// What cargo reports of a target that is built.
#[derive(Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Programs of one build.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Built {
    pub(crate) tests: Vec<TestProgram>,
    /// Programs that are no tests: name and file.
    pub(crate) programs: Vec<(String, PathBuf)>,
}

impl Built {
    /// Reads what cargo prints with `--message-format json`, a message a line.
    ///
    /// # Errors
    /// A message that is no JSON, or that lacks what every message of its kind has.
    pub(crate) fn from_messages(text: &str) -> Result<Self> {
        let mut built = Self::default();
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let message: Message = serde_json::from_str(line)
                .with_context(|| format!("cannot read a message of cargo: {line}"))?;
            if message.reason != "compiler-artifact" {
                continue;
            }
            let (Some(file), Some(target), Some(profile)) =
                (message.executable, message.target, message.profile)
            else {
                continue;
            };
            if !profile.test {
                built.programs.push((target.name, file));
                continue;
            }
            let folder = message.manifest_path.as_deref().and_then(Path::parent).map(Path::to_owned);
            let (Some(folder), Some(id)) = (folder, message.package_id) else {
                bail!("a message of cargo names no package: {line}");
            };
            let of_library = target.kind.iter().any(|kind| kind.ends_with("lib"));
            built.tests.push(TestProgram {
                name: if of_library { target.name.replace('-', "_") } else { target.name },
                package: package_name(&id).to_owned(),
                file,
                folder,
                tests: None,
                environment: Vec::new(),
                threads: None,
            });
        }
        Ok(built)
    }

    /// Adds the programs of another build.
    pub(crate) fn extend(&mut self, other: Self) {
        self.tests.extend(other.tests);
        self.programs.extend(other.programs);
    }
}

/// The name in a package id, such as `path+file:///c/crates/base/time#colony-time@0.1.0`. cargo leaves the name out where it
/// is that of the folder: `path+file:///c/xtask#0.1.0`.
fn package_name(id: &str) -> &str {
    let (place, end) = id.rsplit_once('#').unwrap_or((id, id));
    match end.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

/// Runs cargo and returns what it has built. Errors of the compiler go to standard error.
///
/// # Errors
/// A build that fails.
pub(crate) fn build(mut cargo: Command) -> Result<(Built, Times)> {
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stdout(Stdio::piped());
    let began = Instant::now();
    runs::end_with_this(&mut cargo);
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        std::io::Read::read_to_string(&mut output, &mut text).context("cannot read the messages of cargo")?;
    }
    let (status, times) = process::reap(&mut child, began).context("cannot wait for cargo")?;
    if !status.success() {
        bail!("cargo ended with {status}; its errors are above");
    }
    Ok((Built::from_messages(&text)?, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_named_as_in_the_specification() {
        let text = r#"
{"reason":"compiler-artifact","package_id":"path+file:///c/crates/base/time#colony-time@0.1.0","manifest_path":"/c/crates/base/time/Cargo.toml","target":{"kind":["lib"],"crate_types":["lib"],"name":"colony_time","src_path":"/c/x.rs"},"profile":{"opt_level":"1","test":true},"features":[],"filenames":["/t/colony_time-1"],"executable":"/t/colony_time-1","fresh":false}
{"reason":"compiler-artifact","package_id":"path+file:///c/crates/base/time#colony-time@0.1.0","manifest_path":"/c/crates/base/time/Cargo.toml","target":{"kind":["lib"],"name":"colony_time"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///c/xtask#0.1.0","manifest_path":"/c/xtask/Cargo.toml","target":{"kind":["bin"],"name":"xtask"},"profile":{"test":false},"executable":"/t/xtask"}
{"reason":"build-script-executed","package_id":"registry+x#libc@0.2.1"}
{"reason":"build-finished","success":true}"#;
        let built = Built::from_messages(text).expect("messages");
        assert_eq!(built.programs, [("xtask".to_owned(), PathBuf::from("/t/xtask"))]);
        let [test] = &built.tests[..] else { panic!("one test program: {built:?}") };
        assert_eq!((test.name.as_str(), test.package.as_str()), ("colony_time", "colony-time"));
        assert_eq!(test.folder, Path::new("/c/crates/base/time"));
    }

    #[test]
    fn a_package_named_as_its_folder_has_a_name() {
        assert_eq!(package_name("path+file:///c/xtask#0.1.0"), "xtask");
        assert_eq!(package_name("path+file:///c/xtask/guests#guests@0.1.0"), "guests");
    }

    #[test]
    fn a_damaged_message_is_an_error() {
        assert!(Built::from_messages("{\"reason\":").is_err());
    }
}
