// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian package that a file of the host comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
    pub architecture: String,
}

/// The packages of these files, by file; files of no package are left out. All are where there is no dpkg.
pub(crate) fn owners<'a>(files: impl IntoIterator<Item = &'a Path>) -> BTreeMap<PathBuf, Package> {
    // the database has some files below `/lib`, and others below `/usr/lib`, which are the same folder
    let mut asked = BTreeMap::<PathBuf, BTreeSet<&Path>>::new();
    for file in files {
        for name in names(file) {
            asked.entry(name).or_default().insert(file);
        }
    }
    if asked.is_empty() {
        return BTreeMap::new();
    }
    let mut search = Command::new("dpkg-query");
    search.arg("--search").args(asked.keys());
    let text = printed(search);
    let mut found = BTreeMap::new();
    for (packages, path) in text.lines().filter_map(|line| line.rsplit_once(": ")) {
        let package = packages.split(", ").next().unwrap_or(packages);
        // several may be links to one file
        let files = asked.get(Path::new(path)).into_iter().flatten();
        found.extend(files.map(|&file| (file, package)));
    }
    let known = versions(found.values().copied());
    let package = |(file, name): (&Path, &str)| Some((file.to_owned(), known.get(name)?.clone()));
    found.into_iter().filter_map(package).collect()
}

/// The names under which the database may have a file.
fn names(file: &Path) -> Vec<PathBuf> {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mut all = vec![file.to_owned(), real];
    for name in all.clone() {
        match name.strip_prefix("/usr") {
            Ok(below) => all.push(Path::new("/").join(below)),
            Err(_) => all.push(Path::new("/usr").join(name.strip_prefix("/").unwrap_or(&name))),
        }
    }
    all
}

/// Packages by the name that a search gives them.
fn versions<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, Package> {
    let names: BTreeSet<&str> = names.collect();
    if names.is_empty() {
        return BTreeMap::new();
    }
    let mut show = Command::new("dpkg-query");
    show.args(["--show", "--showformat", "${Package}\t${Version}\t${Architecture}\n"]).args(&names);
    let text = printed(show);
    let read = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        Some(Package { name: fields.next()?, version: fields.next()?, architecture: fields.next()? })
    };
    let mut all = BTreeMap::new();
    for package in text.lines().filter_map(read) {
        all.insert(format!("{}:{}", package.name, package.architecture), package.clone());
        all.insert(package.name.clone(), package);
    }
    all
}

/// What a program printed, in English. A search for files that no package has prints the others.
fn printed(mut command: Command) -> String {
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command.output().map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_debian_has_a_package_and_one_of_ours_has_none() {
        let (dpkg, ours) = (Path::new("/usr/bin/dpkg-query"), std::env::current_exe().expect("linux"));
        if !dpkg.exists() {
            return colony_testing::skip("dpkg is not here");
        }
        let owners = owners([dpkg, &ours]);
        let package = owners.get(dpkg).expect("dpkg's own");
        assert_eq!(package.name, "dpkg");
        assert!(!package.version.is_empty() && !package.architecture.is_empty());
        assert_eq!(owners.len(), 1);
    }
}
