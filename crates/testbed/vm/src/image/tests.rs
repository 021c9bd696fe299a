// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images are the same each time, and the list of what is in them is complete.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;

fn kernel(folder: &Path) -> Kernel {
    // the version lies at the offset that the header names (Documentation/arch/x86/boot.rst)
    let mut data = vec![0; 0x400];
    data[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    data[0x202..0x206].copy_from_slice(b"HdrS");
    data[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    data[0x300..0x306].copy_from_slice(b"7.3.4 ");
    let file = folder.join("vmlinuz");
    fs::write(&file, data).expect("written");
    Kernel::at(file, None).expect("a kernel")
}

/// An image of a recipe whose file of the host lies in `folder`.
fn image(folder: &Path) -> Image {
    let host = folder.join("host");
    fs::write(&host, "content").expect("written");
    fs::set_permissions(&host, fs::Permissions::from_mode(0o640)).expect("ours");
    let recipe = r##"
        programs = ["dpkg-query"]
        folders = ["/data"]
        texts."/etc/motd" = "hello"
        scripts."/usr/bin/go" = "#!/bin/sh\necho gone"
        links."/usr/bin/went" = "go"
    "##;
    let mut image = Recipe::parse(recipe, Path::new("x")).and_then(|r| r.image()).expect("an image");
    image.file(host, "/srv/file");
    image
}

#[test]
fn an_image_is_the_same_wherever_and_whenever_it_is_made() {
    let made = |age: u64| {
        let folder = tempfile::tempdir().expect("a folder");
        let image = image(folder.path());
        let long_ago = SystemTime::now() - Duration::from_secs(age);
        let file = fs::File::options().append(true).open(folder.path().join("host")).expect("ours");
        file.set_modified(long_ago).expect("ours");
        let kernel = kernel(folder.path());
        let archive = image.write(&kernel, Vec::new()).expect("memory");
        let sbom = image.sbom(&kernel, "test", "2026-11-26T00:00:00Z").expect("a list").to_string();
        assert!(!sbom.contains(&folder.path().display().to_string()), "{sbom}");
        let place = folder.path().as_os_str().as_bytes();
        assert!(!archive.windows(place.len()).any(|w| w == place), "the folder's name is in the image");
        (archive, sbom)
    };
    let (first, second) = (made(0), made(100_000_000));
    assert!(first.0 == second.0, "{} and {} bytes", first.0.len(), second.0.len());
    assert_eq!(first.1, second.1);
}

#[test]
fn every_file_is_listed_with_its_digest_and_its_package() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = kernel(folder.path());
    let mut image = image(folder.path());
    let sbom = image.sbom(&kernel, "test", "2026-11-26T00:00:00Z").expect("a list");
    check(&sbom);
    image.complete(&kernel).expect("complete");
    let listed: BTreeSet<String> =
        array(&sbom, "files").iter().map(|f| text(f, "fileName").trim_start_matches('.').into()).collect();
    let files = image.entries.iter().filter(|(_, e)| matches!(e, Entry::Bytes { .. } | Entry::Host { .. }));
    assert_eq!(listed, files.map(|(path, _)| path.display().to_string()).collect());
    let file = |name: &str| {
        array(&sbom, "files").iter().find(|f| text(f, "fileName") == name).unwrap_or_else(|| panic!("{name}"))
    };
    let digest: String = Sha256::digest("content").iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(text(&file("./srv/file")["checksums"][1], "checksumValue"), digest);
    let package_of = |name: &str| {
        let id = text(file(name), "SPDXID");
        let related = array(&sbom, "relationships")
            .iter()
            .find(|r| text(r, "spdxElementId") == id && text(r, "relationshipType") == "GENERATED_FROM")?;
        let package = text(related, "relatedSpdxElement");
        array(&sbom, "packages").iter().find(|p| text(p, "SPDXID") == package)
    };
    let init = package_of("./init").expect("ours");
    assert_eq!((text(init, "name"), text(init, "versionInfo")), ("colony", env!("CARGO_PKG_VERSION")));
    let dpkg = package_of("./usr/bin/dpkg-query").expect("Debian's");
    assert_eq!(text(dpkg, "name"), "dpkg");
    assert!(text(&dpkg["externalRefs"][0], "referenceLocator").starts_with("pkg:deb/debian/dpkg@"));
    assert!(package_of("./srv/file").is_none(), "nobody knows where it comes from");
}

fn array<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name} is no list"))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} is no text in {value}"))
}

/// The rules of SPDX 2.3 for such a document: sections 6 (document), 7 (packages), 8 (files), 11 (relationships).
fn check(sbom: &Value) {
    assert_eq!((text(sbom, "spdxVersion"), text(sbom, "dataLicense")), ("SPDX-2.3", "CC0-1.0"));
    assert_eq!(text(sbom, "SPDXID"), "SPDXRef-DOCUMENT");
    assert!(
        text(sbom, "documentNamespace").starts_with("https://")
            && !text(sbom, "documentNamespace").contains('#')
    );
    assert!(text(&sbom["creationInfo"], "created").ends_with('Z'));
    assert!(array(&sbom["creationInfo"], "creators")[0].as_str().is_some_and(|c| c.starts_with("Tool: ")));
    let mut ids = BTreeSet::from(["SPDXRef-DOCUMENT".to_owned()]);
    let mut name = |value: &Value| {
        let id = text(value, "SPDXID").to_owned();
        let rest = id.strip_prefix("SPDXRef-").expect("a prefix");
        assert!(rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-'), "{id}");
        assert!(ids.insert(id.clone()), "{id} is there twice");
    };
    for package in array(sbom, "packages") {
        name(package);
        for field in ["name", "versionInfo", "downloadLocation", "licenseConcluded", "copyrightText"] {
            assert!(!text(package, field).is_empty(), "{field}: {package}");
        }
        // 7.9: a code if, and only if, files were analyzed
        let code = package["packageVerificationCode"]["packageVerificationCodeValue"].as_str();
        assert_eq!(code.is_some_and(|c| c.len() == 40), package["filesAnalyzed"] == true, "{package}");
    }
    for file in array(sbom, "files") {
        name(file);
        assert!(text(file, "fileName").starts_with("./"));
        let sums: Vec<(&str, usize)> = array(file, "checksums")
            .iter()
            .map(|c| (text(c, "algorithm"), text(c, "checksumValue").len()))
            .collect();
        assert_eq!(sums, [("SHA1", 40), ("SHA256", 64)]);
    }
    for related in array(sbom, "relationships") {
        for end in ["spdxElementId", "relatedSpdxElement"] {
            assert!(ids.contains(text(related, end)), "{related}");
        }
    }
}
