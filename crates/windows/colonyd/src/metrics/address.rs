// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address of the metrics, as `colonyd.toml` gives it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::access;

/// The longest path of a socket that the kernel takes, with the byte that ends it.
const SOCKET_PATH: usize = 108;

/// `[metrics]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsNames {
    /// The address at which the metrics are served. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Address>,
    /// The group that may read a unix socket, by name or number; without it everybody may, as with `stats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Address {
    /// A socket file, by its absolute path: `unix:/run/colony-metrics.sock`.
    Unix(PathBuf),
    /// An address and a port: `127.0.0.1:9464`, `[::1]:9464`.
    Tcp(SocketAddr),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no place to listen at: write unix: and an absolute path of at most 107 bytes, such as \
     unix:/run/colony-metrics.sock, or an IP address and a port, such as 127.0.0.1:9464 or [::1]:9464"
)]
pub struct NoAddress(String);

impl FromStr for Address {
    type Err = NoAddress;
    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let refused = || NoAddress(text.to_owned());
        let Some(path) = text.strip_prefix("unix:") else {
            return text.parse().map(Self::Tcp).map_err(|_| refused());
        };
        let fits = path.len() < SOCKET_PATH && !path.contains(['\0', '\n']) && !path.ends_with('/');
        let path = Path::new(path);
        if fits && path.is_absolute() && path.file_name().is_some() {
            Ok(Self::Unix(path.to_owned()))
        } else {
            Err(refused())
        }
    }
}

impl TryFrom<String> for Address {
    type Error = NoAddress;
    fn try_from(text: String) -> Result<Self, NoAddress> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// The address of the metrics, checked against this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The place.
    pub address: Address,
    /// The group that may read a unix socket; everybody without it.
    pub group: Option<u32>,
}

/// `[metrics]` that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// The group is not there.
    #[error("[metrics] there is no group `{0}` on this node; create it, or take out `group`")]
    NoGroup(String),
    /// A group, and no file that could have one.
    #[error(
        "[metrics] group = \"{0}\" is for a unix socket, and listen names none; who may reach a port is the \
         firewall's to say"
    )]
    GroupWithoutSocket(String),
    /// The socket would be hidden below the file tree.
    #[error("[metrics] {socket} is inside the file tree at {mount}; choose a place beside it")]
    Hidden {
        /// The socket.
        socket: PathBuf,
        /// The directory of the tree.
        mount: PathBuf,
    },
}

impl MetricsNames {
    /// The place of the metrics, if they are wanted, for a daemon whose files appear at `mount`.
    ///
    /// # Errors
    /// [`MetricsError`]: the first thing that cannot be.
    pub fn resolve(&self, mount: &Path) -> Result<Option<Place>, MetricsError> {
        let socket = match &self.listen {
            Some(Address::Unix(path)) => Some(path),
            _ => None,
        };
        if let Some(group) = self.group.as_ref().filter(|_| socket.is_none()) {
            return Err(MetricsError::GroupWithoutSocket(group.clone()));
        }
        if let Some(socket) = socket.filter(|s| s.starts_with(mount)) {
            return Err(MetricsError::Hidden { socket: socket.clone(), mount: mount.to_owned() });
        }
        let number = |name: &String| {
            access::group(name)
                .or_else(|| name.parse().ok())
                .ok_or_else(|| MetricsError::NoGroup(name.clone()))
        };
        let group = self.group.as_ref().map(number).transpose()?;
        Ok(self.listen.clone().map(|address| Place { address, group }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_is_a_socket_by_its_path_or_an_address_with_a_port() {
        for text in ["unix:/run/colony-metrics.sock", "127.0.0.1:9464", "[::1]:9464", "0.0.0.0:0"] {
            assert_eq!(text.parse::<Address>().expect("possible").to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for text in
            ["", "9464", ":9464", "localhost:9464", "unix:", "unix:run/x", "unix:/run/", "unix:/", &long]
        {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("127.0.0.1:9464"), "{error}");
        }
    }

    #[test]
    fn impossible_addresses_are_refused_before_anything_starts() {
        let mount = Path::new("/run/colony");
        let names = |listen: &str, group: Option<&str>| MetricsNames {
            listen: Some(listen.parse().expect("an address")),
            group: group.map(str::to_owned),
        };
        assert_eq!(MetricsNames::default().resolve(mount), Ok(None));
        let place = names("unix:/run/colony-metrics.sock", Some("root")).resolve(mount);
        assert_eq!(place.expect("root is a group").expect("a place").group, Some(0));
        let refused = |n: MetricsNames| n.resolve(mount).expect_err("impossible").to_string();
        assert!(refused(names("unix:/run/colony/m", None)).contains("beside it"));
        assert!(refused(names("unix:/run/m", Some("no such group"))).contains("no such group"));
        assert!(refused(names("127.0.0.1:9464", Some("root"))).contains("firewall"));
        assert!(refused(MetricsNames { listen: None, group: Some("root".into()) }).contains("listen"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_or_refused(text in "(unix:/?)?.{0,120}") {
            if let Ok(Address::Unix(path)) = text.parse::<Address>() {
                prop_assert_eq!(Address::Unix(path).to_string(), text);
            }
        }
    }
}
