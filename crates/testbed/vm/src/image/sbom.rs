// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of what is in an image, as an SPDX 2.3 document in JSON (<https://spdx.github.io/spdx-spec/v2.3/>).
//!
//! The image is a package that contains every file. A file that was made from a file of a Debian package, of the kernel
//! or of Colony is `GENERATED_FROM` that package: programs lose their symbols on the way. The document has no time and no
//! path of the host, so the same image has the same document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use super::packages::{self, Package};
use super::{Entry, Image};
use crate::VmError;
use crate::kernel::Kernel;

/// Where SPDX identifiers of documents begin.
const NAMESPACE: &str = "https://spdx.org/spdxdocs/colony-image";
const ROOT: &str = "SPDXRef-Image";
const NOT_SAID: &str = "NOASSERTION";

/// A file of the image, as the archive has it.
struct Listed {
    /// Path, from the root of the image.
    path: PathBuf,
    sha1: String,
    sha256: String,
    /// The package that it was made from.
    from: Option<Package>,
}

impl Image {
    /// The list of what the image has, as SPDX 2.3 JSON. `name` is that of the image; `created` is a time in UTC, such as
    /// `2026-11-26T00:00:00Z`. The image is completed first.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub fn sbom(&self, kernel: &Kernel, name: &str, created: &str) -> Result<Value, VmError> {
        let mut image = self.clone();
        image.complete(kernel)?;
        let files = image.listed(kernel)?;
        let packages: BTreeSet<&Package> = files.iter().filter_map(|f| f.from.as_ref()).collect();
        let ids: BTreeMap<&Package, String> =
            packages.iter().zip(1..).map(|(&p, n)| (p, format!("SPDXRef-Package-{n}"))).collect();
        let mut relationships = vec![related("SPDXRef-DOCUMENT", "DESCRIBES", ROOT)];
        for (n, file) in (1..).zip(&files) {
            let id = file_id(n);
            relationships.push(related(ROOT, "CONTAINS", &id));
            if let Some(from) = file.from.as_ref().and_then(|p| ids.get(p)) {
                relationships.push(related(&id, "GENERATED_FROM", from));
            }
        }
        let code = verification_code(&files);
        let mut all = vec![root_package(name, &code)];
        all.extend(ids.iter().map(|(package, id)| package_of(package, id)));
        Ok(json!({
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": format!("colony-image-{name}"),
            // of its content: the same document has the same name, another one another
            "documentNamespace": format!("{NAMESPACE}-{}-{code}", escaped(name)),
            "creationInfo": {
                "created": created,
                "creators": [format!("Tool: colony-{}", env!("CARGO_PKG_VERSION"))],
            },
            "packages": all,
            "files": (1..).zip(&files).map(|(n, file)| file_of(n, file)).collect::<Vec<_>>(),
            "relationships": relationships,
        }))
    }

    /// Its files with their digests and packages, in the order of paths.
    fn listed(&self, kernel: &Kernel) -> Result<Vec<Listed>, VmError> {
        let hosts = self.entries.values().filter_map(|entry| match entry {
            Entry::Host { path } => Some(path.as_path()),
            _ => None,
        });
        let owners = packages::owners(hosts);
        let beside = std::env::current_exe().ok().and_then(|p| p.parent().map(Path::to_path_buf));
        let mut files = Vec::new();
        for (guest, entry) in &self.entries {
            let Some(data) = self.data_of(entry)? else { continue };
            let from = match entry {
                Entry::Host { path } => owners.get(path).cloned().or_else(|| {
                    // a test lies one folder below the programs that it tests
                    let ours =
                        beside.as_deref().is_some_and(|b| path.parent().is_some_and(|p| b.starts_with(p)));
                    ours.then(colony)
                }),
                _ if guest.starts_with("/usr/lib/modules") => Some(kernel_package(kernel)),
                _ => Some(colony()),
            };
            let path = guest.strip_prefix("/").unwrap_or(guest).to_owned();
            files.push(Listed {
                path,
                sha1: hex(&Sha1::digest(&*data)),
                sha256: hex(&Sha256::digest(&*data)),
                from,
            });
        }
        Ok(files)
    }
}

/// Colony itself: its programs, and what it writes into every image.
fn colony() -> Package {
    let [name, version, architecture] = ["colony", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH];
    Package { name: name.into(), version: version.into(), architecture: architecture.into() }
}

/// The kernel, whose modules may be in the image. It is given to the machine beside the image.
fn kernel_package(kernel: &Kernel) -> Package {
    let architecture = std::env::consts::ARCH.into();
    Package { name: "linux".into(), version: kernel.release().into(), architecture }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_id(n: usize) -> String {
    format!("SPDXRef-File-{n}")
}

fn related(element: &str, kind: &str, other: &str) -> Value {
    json!({ "spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other })
}

/// SHA-1 of the files' SHA-1 digests in ascending order (SPDX 2.3, 7.9).
fn verification_code(files: &[Listed]) -> String {
    let mut digests: Vec<&str> = files.iter().map(|f| f.sha1.as_str()).collect();
    digests.sort_unstable();
    hex(&Sha1::digest(digests.concat()))
}

fn root_package(name: &str, code: &str) -> Value {
    json!({
        "SPDXID": ROOT,
        "name": format!("colony-image-{name}"),
        "versionInfo": env!("CARGO_PKG_VERSION"),
        "primaryPackagePurpose": "OPERATING-SYSTEM",
        "downloadLocation": NOT_SAID,
        "filesAnalyzed": true,
        "packageVerificationCode": { "packageVerificationCodeValue": code },
        "licenseConcluded": NOT_SAID,
        "licenseDeclared": NOT_SAID,
        "licenseInfoFromFiles": [NOT_SAID],
        "copyrightText": NOT_SAID,
    })
}

fn package_of(package: &Package, id: &str) -> Value {
    let Package { name, version, architecture } = package;
    let mut value = json!({
        "SPDXID": id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": NOT_SAID,
        "filesAnalyzed": false,
        "licenseConcluded": NOT_SAID,
        "licenseDeclared": NOT_SAID,
        "copyrightText": NOT_SAID,
    });
    if *package != colony() && name != "linux" {
        let locator = format!("pkg:deb/debian/{}@{}?arch={architecture}", escaped(name), escaped(version));
        value["externalRefs"] = json!([{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": locator,
        }]);
    }
    value
}

fn file_of(n: usize, file: &Listed) -> Value {
    json!({
        "SPDXID": file_id(n),
        "fileName": format!("./{}", file.path.display()),
        "checksums": [
            { "algorithm": "SHA1", "checksumValue": file.sha1 },
            { "algorithm": "SHA256", "checksumValue": file.sha256 },
        ],
        "licenseConcluded": NOT_SAID,
        "licenseInfoInFiles": [NOT_SAID],
        "copyrightText": NOT_SAID,
    })
}

/// Text inside a URL (RFC 3986): all but unreserved characters as their bytes.
fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
