// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole way from an archive to a kernel, with a small archive made here.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::digest;

/// An archive in a folder, with packages of kernels that are headers only.
struct Fake {
    folder: TempDir,
    index: String,
}

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for part in ["archive", "kernels", "apt"] {
            fs::create_dir(folder.path().join(part)).expect("a folder");
        }
        Self { folder, index: String::new() }
    }

    fn store(&self) -> Store {
        Store::new(self.folder.path().join("kernels"))
    }

    fn package(&mut self, name: &str, depends: &str, files: &[(String, Vec<u8>)]) {
        let root = tempfile::tempdir().expect("a folder");
        let control = format!(
            "Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\n\
             Depends: {depends}\nDescription: a kernel\n"
        );
        let mut all = vec![("DEBIAN/control".to_owned(), control.clone().into_bytes())];
        all.extend_from_slice(files);
        for (path, data) in all {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("one")).expect("a folder");
            fs::write(path, data).expect("a file");
        }
        let file = self.folder.path().join(format!("archive/{name}.deb"));
        let built = Command::new("dpkg-deb").args(["-b", "-Znone"]).arg(root.path()).arg(&file).output();
        assert!(built.expect("dpkg-deb").status.success());
        let data = fs::read(&file).expect("built");
        let (size, sha256) = (data.len(), digest::hex(&data));
        write!(self.index, "{control}Filename: ./{name}.deb\nSize: {size}\nSHA256: {sha256}\n\n")
            .expect("memory");
        fs::write(self.folder.path().join("archive/Packages"), &self.index).expect("a file");
    }

    fn kernel(&mut self, release: &str, in_parts: bool) {
        let modules = format!("usr/lib/modules/{release}");
        let module = (format!("{modules}/kernel/x.ko"), Vec::new());
        if in_parts {
            let file = (format!("{modules}/vmlinuz"), kernel_file(release));
            self.package(&format!("linux-binary-{release}"), "nothing", &[file]);
            self.package(&format!("linux-modules-{release}"), "nothing", &[module]);
            let parts = format!("linux-binary-{release} (= 1), linux-modules-{release} (= 1)");
            self.package(&format!("linux-image-{release}"), &parts, &[]);
        } else {
            let file = (format!("boot/vmlinuz-{release}"), kernel_file(release));
            self.package(&format!("linux-image-{release}"), "kmod", &[file, module]);
        }
    }

    fn archive(&self) -> Result<Archive, VmError> {
        let folder = self.folder.path();
        let sources = format!(
            "Types: deb\nURIs: file:{}\nSuites: ./\nTrusted: yes\n",
            folder.join("archive").display()
        );
        Archive::open(&folder.join("apt"), Some(&sources))
    }

    fn find(&self, wanted: &str) -> Result<Kernel, VmError> {
        find(wanted, &self.store(), || self.archive(), &mut |_| {})
    }
}

/// A file with just enough content to be taken for a kernel.
fn kernel_file(release: &str) -> Vec<u8> {
    let mut data = vec![0; 0x400];
    data[0x202..0x206].copy_from_slice(b"HdrS");
    data[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    data[0x300..0x300 + release.len()].copy_from_slice(release.as_bytes());
    data
}

fn apt_is_here() -> bool {
    let here = Command::new("apt-get").arg("--version").output().is_ok_and(|o| o.status.success());
    if !here {
        colony_testing::skip("apt-get is not here");
    }
    here
}

#[test]
fn programs_that_begin_at_once_fetch_the_index_one_after_the_other() {
    if !apt_is_here() {
        return;
    }
    let mut fake = Fake::new();
    fake.kernel("7.2.9+deb13-cloud-amd64", false);
    let fetch = || fake.archive().and_then(|archive| archive.update(&mut |_| {})).map_err(|e| e.to_string());
    let all: Vec<_> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4).map(|_| s.spawn(fetch)).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

#[test]
fn kernels_come_from_the_archive_once_and_are_held_against_their_record() {
    if !apt_is_here() {
        return;
    }
    let mut fake = Fake::new();
    fake.kernel("7.2.9+deb13-cloud-amd64", false);
    fake.kernel("7.2.12+deb13-cloud-amd64", true);
    let kernel = fake.find("7.2").expect("fetched");
    assert_eq!(kernel.release(), "7.2.12+deb13-cloud-amd64");
    assert!(kernel.modules().expect("some").join("kernel/x.ko").is_file());
    assert_eq!(Kernel::at(&kernel.file, None).expect("a kernel").release(), kernel.release());
    assert_eq!(fake.find("7.2.9").expect("fetched").release(), "7.2.9+deb13-cloud-amd64");
    assert_eq!(fake.store().releases(), ["7.2.9+deb13-cloud-amd64", "7.2.12+deb13-cloud-amd64"]);

    // from now on without the archive
    let asked = Cell::new(false);
    let offline = |wanted: &str| {
        let open = || {
            asked.set(true);
            Err(VmError::Wrong("the archive cannot be reached".into()))
        };
        find(wanted, &fake.store(), open, &mut |_| {})
    };
    assert_eq!(offline("7.2").expect("cached").release(), kernel.release());
    assert!(!asked.get());
    assert!(offline("7.4").expect_err("not there").to_string().contains("cannot be reached"));

    fs::write(&kernel.file, "another").expect("ours");
    let error = offline("7.2").expect_err("another file").to_string();
    assert!(error.contains("not the one") && error.contains("remove"), "{error}");
}

#[test]
fn a_superseded_kernel_whose_modules_are_gone_still_starts() {
    if !apt_is_here() {
        return;
    }
    let mut fake = Fake::new();
    let release = "7.0.13+deb13-cloud-amd64";
    let file = (format!("boot/vmlinuz-{release}"), kernel_file(release));
    fake.package(&format!("linux-binary-{release}"), "nothing", &[file]);
    let parts = format!("linux-binary-{release} (= 1), linux-modules-{release} (= 1)");
    fake.package(&format!("linux-image-{release}"), &parts, &[]);
    let mut told = String::new();
    let kernel =
        find("7.0", &fake.store(), || fake.archive(), &mut |text| told.push_str(text)).expect("a kernel");
    assert!(kernel.modules().is_none() && told.contains("no modules of 7.0.13"), "{told}");
}

#[test]
fn the_default_gives_way_to_the_nearest_and_an_unknown_release_is_an_error() {
    if !apt_is_here() {
        return;
    }
    let mut fake = Fake::new();
    fake.kernel("9.8.7+deb13-cloud-amd64", false);
    let mut told = String::new();
    let kernel =
        find("", &fake.store(), || fake.archive(), &mut |text| told.push_str(text)).expect("the nearest");
    assert_eq!(kernel.release(), "9.8.7+deb13-cloud-amd64");
    assert!(told.contains(&format!("no longer has the kernel {DEFAULT}")), "{told}");
    let error = fake.find("1.2").expect_err("nowhere");
    assert!(error.is_wrong_use() && error.to_string().contains("nearest is 9.8.7"), "{error}");
}

#[test]
fn a_package_that_differs_from_the_index_is_refused_and_removed() {
    if !apt_is_here() {
        return;
    }
    let mut fake = Fake::new();
    fake.kernel("7.2.9+deb13-cloud-amd64", false);
    let file = fake.folder.path().join("archive/linux-image-7.2.9+deb13-cloud-amd64.deb");
    let mut data = fs::read(&file).expect("there");
    let last = data.len() - 1;
    data[last] ^= 1;
    fs::write(&file, data).expect("ours");
    fake.find("7.2").expect_err("refused");
    assert!(fake.store().releases().is_empty());
    let left: Vec<_> = fs::read_dir(fake.folder.path().join("kernels")).expect("there").flatten().collect();
    assert!(left.iter().all(|e| e.file_name() == ".lock"), "{left:?}");
}
