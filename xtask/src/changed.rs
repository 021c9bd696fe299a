// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which packages a change can break: those that it touches, and those that depend on them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{cargo, output_of};

/// A package of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Folder from the root of the checkout.
    folder: PathBuf,
    /// Packages of the workspace that this one depends on, also for its tests and its build.
    dependencies: BTreeSet<String>,
}

/// The packages to test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    All,
    Some(BTreeSet<String>),
}

impl Selection {
    pub(crate) fn contains(&self, package: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.contains(package),
        }
    }
}

/// Files outside of packages, by the beginning of their path, and the packages whose tests read or carry them.
const READERS: [(&str, &[&str]); 9] = [
    ("kernel/", &["guests", "colony-nodes", "colony-testing"]),
    ("docs/", &["colony", "colony-testing"]),
    ("README.md", &["colony", "colony-testing"]),
    ("ARCHITECTURE.md", &["colony", "colony-testing"]),
    ("SPECIFICATION.md", &["colony", "colony-testing"]),
    ("CONTRIBUTING.md", &["colony", "colony-testing"]),
    ("CHANGELOG.md", &["colony-testing"]),
    ("images/", &["colony-vm", "colony"]),
    ("packaging/", &["colonyd"]),
];

/// Tests the packages that files (paths from the root of the checkout) belong to, and all that depend on these. A file of
/// which nothing is known changes everything. The checks of the source tree always run.
pub(crate) fn select(files: &[PathBuf], packages: &[Package]) -> Selection {
    let mut touched: BTreeSet<String> = BTreeSet::from(["colony-testing".to_owned()]);
    for file in files {
        let owner = packages
            .iter()
            .filter(|p| file.starts_with(&p.folder))
            .max_by_key(|p| p.folder.components().count());
        if let Some(owner) = owner {
            touched.insert(owner.name.clone());
            continue;
        }
        let readers = READERS.iter().find(|(start, _)| file.to_string_lossy().starts_with(start));
        let Some((_, readers)) = readers else { return Selection::All };
        touched.extend(readers.iter().map(|&name| name.to_owned()));
    }
    // `colony-testing` is touched for its own tests only, so its dependents do not follow from it.
    let tree_alone = !files.iter().any(|f| f.starts_with("crates/testbed/testing"));
    let mut selected = touched.clone();
    loop {
        let follows = |p: &&Package| {
            p.dependencies.iter().any(|d| selected.contains(d) && !(tree_alone && d == "colony-testing"))
        };
        let more: Vec<String> = packages
            .iter()
            .filter(follows)
            .map(|p| p.name.clone())
            .filter(|name| !selected.contains(name))
            .collect();
        if more.is_empty() {
            return Selection::Some(selected);
        }
        selected.extend(more);
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<MetadataDependency>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    name: String,
    path: Option<PathBuf>,
}

/// The packages of the workspace in `root`, from the JSON of `cargo metadata --no-deps`.
fn packages_of(metadata: &str, root: &Path) -> Result<Vec<Package>> {
    let metadata: Metadata =
        serde_json::from_str(metadata).context("cannot read what cargo metadata prints")?;
    let package = |p: MetadataPackage| {
        let folder = p.manifest_path.parent().and_then(|f| f.strip_prefix(root).ok());
        let ours = p.dependencies.into_iter().filter(|d| d.path.is_some()).map(|d| d.name);
        Some(Package { name: p.name, folder: folder?.to_owned(), dependencies: ours.collect() })
    };
    Ok(metadata.packages.into_iter().filter_map(package).collect())
}

/// The packages of the workspace in `root`.
fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = ["metadata", "--no-deps", "--offline", "--format-version=1"];
    packages_of(&output_of(cargo().current_dir(root).args(metadata))?, root)
}

/// What differs from the commit `base` in the checkout `root`, files that git does not know yet included.
fn changed_files(root: &Path, base: &str) -> Result<Vec<PathBuf>> {
    let git = |words: &[&str]| output_of(Command::new("git").arg("-C").arg(root).args(words));
    let differing = git(&["diff", "--name-only", "-z", base, "--"])
        .with_context(|| format!("cannot compare with {base}: name another commit, as --changed=COMMIT"))?;
    let unknown = git(&["ls-files", "--others", "--exclude-standard", "-z"])?;
    let names = differing.split('\0').chain(unknown.split('\0'));
    Ok(names.filter(|n| !n.is_empty()).map(PathBuf::from).collect())
}

/// The commit that a change is compared with: the branch that the present one follows, or the last commit if it follows none.
fn default_base(root: &Path) -> String {
    let git = Command::new("git").arg("-C").arg(root).args(["merge-base", "HEAD", "@{upstream}"]).output();
    let upstream = git.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    upstream.map_or_else(|| "HEAD".to_owned(), |commit| commit.trim().to_owned())
}

/// The packages that a change since `base` can break, and the changed files.
///
/// # Errors
/// A checkout that git or cargo cannot read.
pub(crate) fn selection(root: &Path, base: Option<&str>) -> Result<(Selection, Vec<PathBuf>)> {
    let base = base.map_or_else(|| default_base(root), str::to_owned);
    let files = changed_files(root, &base)?;
    Ok((select(&files, &packages(root)?), files))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Vec<Package> {
        let package = |&(name, folder, dependencies): &(&str, &str, &[&str])| Package {
            name: name.to_owned(),
            folder: folder.into(),
            dependencies: dependencies.iter().map(|&d| d.to_owned()).collect(),
        };
        let rows: [(&str, &str, &[&str]); 7] = [
            ("colony-time", "crates/base/time", &[]),
            ("colony-sim", "crates/scale/sim", &["colony-time", "colony-testing"]),
            ("colony", "crates/app/colony", &["colony-sim", "colony-nodes"]),
            ("colony-nodes", "crates/machine/nodes", &["guests"]),
            ("guests", "xtask/guests", &[]),
            ("xtask", "xtask", &["guests"]),
            ("colony-testing", "crates/testbed/testing", &[]),
        ];
        rows.iter().map(package).collect()
    }

    fn names(files: &[&str]) -> Vec<String> {
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        match select(&files, &packages()) {
            Selection::All => panic!("everything is selected"),
            Selection::Some(names) => names.into_iter().collect(),
        }
    }

    #[test]
    fn dependents_are_tested_with_what_they_depend_on() {
        assert_eq!(
            names(&["crates/base/time/src/lib.rs"]),
            ["colony", "colony-sim", "colony-testing", "colony-time"]
        );
        assert_eq!(names(&["crates/scale/sim/README.md"]), ["colony", "colony-sim", "colony-testing"]);
        assert_eq!(names(&[]), ["colony-testing"], "the tree is always checked");
    }

    #[test]
    fn the_innermost_folder_owns_a_file() {
        assert_eq!(names(&["xtask/src/main.rs"]), ["colony-testing", "xtask"]);
        assert_eq!(
            names(&["xtask/guests/src/lib.rs"]),
            ["colony", "colony-nodes", "colony-testing", "guests", "xtask"]
        );
    }

    #[test]
    fn a_file_outside_of_packages_is_tested_by_its_readers_and_an_unknown_one_by_all() {
        assert_eq!(names(&["docs/simulate.md"]), ["colony", "colony-testing"]);
        assert!(names(&["kernel/cnk/src/main.rs"]).contains(&"colony-nodes".to_owned()));
        assert_eq!(select(&["Cargo.lock".into()], &packages()), Selection::All);
        assert_eq!(select(&["x".into()], &packages()), Selection::All);
    }

    #[test]
    fn the_readers_that_are_named_exist() {
        let root = guests::root();
        let (selection, _) = selection(&root, Some("HEAD")).expect("a checkout");
        assert!(selection.contains("colony-testing"));
        let packages = super::packages(&root).expect("metadata");
        for (start, readers) in READERS {
            assert!(root.join(start).exists(), "{start}");
            for reader in readers {
                assert!(packages.iter().any(|p| p.name == *reader), "there is no package {reader}");
            }
        }
    }
}
