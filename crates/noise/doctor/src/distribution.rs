// SPDX-License-Identifier: MIT OR Apache-2.0
//! Families of distributions: they name files and units of the same program differently.

use crate::node::Node;

/// A family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distribution {
    Debian,
    RedHat,
    Suse,
    Arch,
}

impl Distribution {
    /// The family of a node (`os-release(5)`); `None` if the file is not there or names another one.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        let files = ["/etc/os-release", "/usr/lib/os-release"];
        let text = files.iter().find_map(|file| node.root.read(file).ok())?;
        let value = |name: &str| {
            let line = text.lines().find_map(|l| l.trim().strip_prefix(name)?.strip_prefix('='))?;
            Some(line.trim_matches(['"', '\'']).to_owned())
        };
        let names = [value("ID"), value("ID_LIKE")].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let family = |name: &str| match name {
            "debian" | "ubuntu" => Some(Self::Debian),
            "rhel" | "fedora" | "centos" | "rocky" | "almalinux" | "ol" | "amzn" => Some(Self::RedHat),
            "suse" | "sles" | "opensuse" | "opensuse-leap" | "opensuse-tumbleweed" => Some(Self::Suse),
            "arch" => Some(Self::Arch),
            _ => None,
        };
        names.split_whitespace().find_map(family)
    }
}
