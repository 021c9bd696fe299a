// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x release`: version numbers, changelog, commit, tag, and the files that users download. Nothing is pushed.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use guests::target_folder;

use crate::{cargo, check, output_of, python};

/// The manifests with a version of their own.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "kernel/cnk/Cargo.toml"];

/// Returns `true` for a version such as `0.2.0` or `1.0.0-rc.1`.
fn is_semantic(version: &str) -> bool {
    let (numbers, pre) = version.split_once('-').map_or((version, None), |(n, p)| (n, Some(p)));
    let numbers: Vec<&str> = numbers.split('.').collect();
    let is_number = |n: &&str| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit());
    numbers.len() == 3
        && numbers.iter().all(is_number)
        && pre.is_none_or(|p| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || c == '.'))
}

/// What stands under `[Unreleased]` in the changelog.
fn unreleased(changelog: &str) -> Option<String> {
    let (_, rest) = changelog.split_once("\n## [Unreleased]\n")?;
    let notes = rest.split("\n## ").next().unwrap_or(rest).trim();
    (!notes.is_empty()).then(|| notes.to_owned())
}

/// The version of the workspace.
fn version_of(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[workspace.package]\n")?;
    let line = package.lines().find(|line| line.starts_with("version = "))?;
    line.split('"').nth(1)
}

/// A manifest with the version `new`: its own, and those of our crates that it depends on.
fn with_version(manifest: &str, old: &str, new: &str) -> String {
    let (own, dependency) = (format!("version = \"{old}\""), format!("version = \"{new}\""));
    let change = |line: &str| {
        let ours = line == own || line.contains("path = \"crates") || line.contains("path = \"../../crates");
        if ours { line.replace(&own, &dependency) } else { line.to_owned() }
    };
    manifest.lines().map(|line| change(line) + "\n").collect()
}

fn git(words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(guests::root()).args(words);
    git
}

/// Makes the release.
///
/// # Errors
/// A version that is none, a checkout with changes, a changelog without notes, or a step that fails. The checkout is then as it
/// was.
pub(crate) fn run(version: &str) -> Result<()> {
    let root = guests::root();
    if !is_semantic(version) {
        bail!("{version} is not a semantic version, such as 0.2.0");
    }
    if !output_of(&mut git(&["status", "--porcelain"]))?.is_empty() {
        bail!("the checkout has changes: commit them, or put them aside");
    }
    let tag = format!("v{version}");
    if !output_of(&mut git(&["tag", "--list", &tag]))?.is_empty() {
        bail!("the tag {tag} exists");
    }
    let changelog = fs::read_to_string(root.join("CHANGELOG.md")).context("CHANGELOG.md")?;
    let notes = unreleased(&changelog).context("CHANGELOG.md has nothing under [Unreleased]")?;
    let folder = target_folder().join(format!("release-{version}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    if let Err(e) = commit(&root, &folder, version, &changelog) {
        check(&mut git(&["checkout", "-q", "--", "."]))
            .context("cannot take the new version numbers back")?;
        return Err(e);
    }
    check(&mut git(&[
        "tag",
        "-a",
        &tag,
        "--cleanup=verbatim",
        "-m",
        &format!("Colony {version}"),
        "-m",
        &notes,
    ]))?;
    archive(&folder, version, &tag)?;
    eprintln!("look at the commit and the tag, then: git push --follow-tags");
    Ok(())
}

/// Sets the version, builds what users download from it, and commits.
fn commit(root: &Path, folder: &Path, version: &str, changelog: &str) -> Result<()> {
    for name in MANIFESTS {
        let path = root.join(name);
        let manifest = fs::read_to_string(&path).with_context(|| name.to_owned())?;
        let workspace = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
        let old = if name == "Cargo.toml" { version_of(&manifest) } else { own_version(&manifest) };
        let old = old.or_else(|| version_of(&workspace)).with_context(|| format!("{name} has no version"))?;
        eprintln!("{name}: version {old} becomes {version}");
        fs::write(&path, with_version(&manifest, old, version)).with_context(|| name.to_owned())?;
    }
    let date = output_of(Command::new("date").args(["-u", "+%F"]))?;
    let heading = format!("## [Unreleased]\n\n## [{version}] - {}", date.trim());
    fs::write(root.join("CHANGELOG.md"), changelog.replacen("## [Unreleased]", &heading, 1))
        .context("CHANGELOG.md")?;
    for name in MANIFESTS {
        let place = root.join(name);
        check(cargo().args(["update", "-q", "--offline", "--workspace", "--manifest-path"]).arg(place))?;
    }
    python::build_wheels(root, &target_folder(), folder)?;
    eprintln!("the libraries, as a registry would take them");
    let publish = ["publish", "--quiet", "--dry-run", "--no-verify", "--allow-dirty", "--workspace"];
    check(cargo().args(publish).current_dir(root))
        .context("the libraries cannot be published as they are")?;
    check(&mut git(&["commit", "-qam", &format!("release: {version}")]))
}

/// The version of a package that is no member of the workspace.
fn own_version(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[package]\n")?;
    package.lines().find(|line| line.starts_with("version = "))?.split('"').nth(1)
}

/// The source archive, and the checksums of all files.
fn archive(folder: &Path, version: &str, tag: &str) -> Result<()> {
    let file = folder.join(format!("colony-{version}.tar.gz"));
    let mut tar = git(&["archive", &format!("--prefix=colony-{version}/"), tag]);
    let mut tar = tar.stdout(Stdio::piped()).spawn().context("cannot start git")?;
    let mut gzip = Command::new("gzip");
    if let Some(output) = tar.stdout.take() {
        gzip.stdin(output);
    }
    let to = File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
    check(gzip.arg("-n").stdout(to))?;
    if !tar.wait().context("git archive")?.success() {
        bail!("git archive failed");
    }
    check(Command::new("sh").args(["-ec", "sha256sum -- * >SHA256SUMS && ls -l >&2"]).current_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        assert!(["0.2.0", "10.20.30", "1.0.0-rc.1"].into_iter().all(is_semantic));
        assert!(
            !["", "1", "1.2", "v1.2.3", "1.2.3.4", "1.2.x", "1.2.3-", "1.2.3-a b"]
                .into_iter()
                .any(is_semantic)
        );
    }

    #[test]
    fn notes_are_those_of_the_next_version() {
        let changelog = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.1.0]\n\n- old\n";
        assert_eq!(unreleased(changelog).as_deref(), Some("- new"));
        assert_eq!(unreleased("# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n\n- old\n"), None);
    }

    #[test]
    fn only_our_versions_change() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\n\
                        colony-time = { path = \"crates/base/time\", version = \"0.1.0\" }\nspin = { version = \"0.1.0\" }\n";
        let changed = with_version(manifest, "0.1.0", "0.2.0");
        assert_eq!(version_of(&changed), Some("0.2.0"));
        assert!(changed.contains("crates/base/time\", version = \"0.2.0\""), "{changed}");
        assert!(changed.contains("spin = { version = \"0.1.0\" }"), "{changed}");
    }

    #[test]
    fn the_manifests_of_this_checkout_have_the_version_of_the_workspace() {
        let read = |name: &str| fs::read_to_string(guests::root().join(name)).expect("a manifest");
        let workspace = read("Cargo.toml");
        let version = version_of(&workspace).expect("a version");
        let kernel = read("kernel/cnk/Cargo.toml");
        assert_eq!(own_version(&kernel), Some(version));
        let changelog = read("CHANGELOG.md");
        assert!(changelog.contains("\n## [Unreleased]\n"));
    }
}
