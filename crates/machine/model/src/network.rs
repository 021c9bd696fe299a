// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functional network: addresses of I/O nodes, the service node and the file server.

use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "String")]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

/// The secret that an I/O node and the service node share. It is never printed, and has no text form.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SecurityKey(pub [u8; 32]);

impl fmt::Debug for SecurityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecurityKey(..)")
    }
}

/// The network of an I/O node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IoNetwork {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Bits of the address that are the network's: 1 to 30.
    pub prefix: u8,
    /// Broadcast address.
    pub broadcast: Ipv4Addr,
    /// Gateway.
    pub gateway: Ipv4Addr,
    /// The service node.
    pub service_node: Ipv4Addr,
    /// The server of the file system that the I/O node mounts.
    pub file_server: Ipv4Addr,
    /// The directory that it exports: an absolute path of at most 63 bytes.
    pub export: String,
    /// The secret shared with the service node.
    #[serde(skip)]
    pub key: SecurityKey,
}

/// The functional network of a machine, from which the addresses of its I/O nodes follow.
///
/// I/O node `n` of the machine ([`crate::Machine::io_number`]) has address `network + reserved + n` and the Ethernet address
/// `02:43:4f` followed by `n`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// First address of the network.
    pub network: Ipv4Addr,
    /// Bits of the address that are the network's: 1 to 30.
    pub prefix: u8,
    /// Addresses from the first one that I/O nodes do not have: the network's own, the gateway, servers.
    pub reserved: u32,
    /// Gateway.
    pub gateway: Ipv4Addr,
    /// The service node.
    pub service_node: Ipv4Addr,
    /// The file server.
    pub file_server: Ipv4Addr,
    /// The directory that the file server exports.
    pub export: String,
}

impl Default for Site {
    /// A private network with room for the largest machine.
    fn default() -> Self {
        let service_node = Ipv4Addr::new(10, 64, 0, 1);
        Self {
            network: Ipv4Addr::new(10, 64, 0, 0),
            prefix: 16,
            reserved: 16,
            gateway: service_node,
            service_node,
            file_server: service_node,
            export: "/colony".into(),
        }
    }
}

impl Site {
    /// Checks the export, and that the network has addresses for `io_nodes` I/O nodes.
    ///
    /// # Errors
    /// [`ModelError::Export`] and [`ModelError::Network`].
    pub fn check(&self, io_nodes: u32) -> Result<(), ModelError> {
        check_export(&self.export)?;
        let hosts = 1u64.checked_shl(32u32.saturating_sub(self.prefix.into())).unwrap_or(0);
        // the last address is the broadcast address
        let addresses = hosts.saturating_sub(1).saturating_sub(self.reserved.max(1).into());
        if !(1..=30).contains(&self.prefix) || addresses < io_nodes.into() {
            let network = format!("{}/{}", self.network, self.prefix);
            return Err(ModelError::Network { network, addresses, needed: io_nodes });
        }
        Ok(())
    }

    /// The network of I/O node `number` of the machine, for a site that was checked.
    #[must_use]
    pub fn io_network(&self, number: u32, key: SecurityKey) -> IoNetwork {
        let mask = u32::MAX.checked_shl(32u32.saturating_sub(self.prefix.into())).unwrap_or(0);
        let first = u32::from(self.network) & mask;
        let [_, c, d, e] = number.to_be_bytes();
        IoNetwork {
            mac: Mac([0x02, 0x43, 0x4f, c, d, e]),
            ip: Ipv4Addr::from(first.wrapping_add(self.reserved.max(1)).wrapping_add(number)),
            prefix: self.prefix,
            broadcast: Ipv4Addr::from(first | !mask),
            gateway: self.gateway,
            service_node: self.service_node,
            file_server: self.file_server,
            export: self.export.clone(),
            key,
        }
    }
}

pub(crate) fn check_export(path: &str) -> Result<(), ModelError> {
    if path.starts_with('/') && path.len() <= 63 && !path.contains('\0') {
        Ok(())
    } else {
        Err(ModelError::Export { found: path.chars().take(80).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_from_the_number_of_the_io_node() {
        let site = Site::default();
        let io = site.io_network(300, SecurityKey([238; 32]));
        assert_eq!((io.ip, io.broadcast), (Ipv4Addr::new(10, 64, 1, 60), Ipv4Addr::new(10, 64, 255, 255)));
        assert_eq!(io.mac.to_string(), "02:43:4f:00:01:2c");
        assert!(!format!("{io:?}").contains("238"), "the key is not printed: {io:?}");
        assert!(!serde_json::to_string(&io).expect("json").contains("key"));
    }

    #[test]
    fn a_network_without_room_and_an_export_without_a_place_are_refused() {
        let site = |prefix| Site { prefix, ..Site::default() };
        assert_eq!(site(16).check(32_768), Ok(()), "the largest machine");
        assert_eq!(site(24).check(239), Ok(()));
        assert!(matches!(site(24).check(240), Err(ModelError::Network { addresses: 239, .. })));
        for prefix in [0, 31, 32, 33, 255] {
            assert!(site(prefix).check(1).is_err(), "{prefix}");
        }
        for export in ["", "home", "/a\0b", &"/x".repeat(40)] {
            let site = Site { export: export.into(), ..Site::default() };
            assert!(matches!(site.check(1), Err(ModelError::Export { .. })), "{export:?}");
        }
    }
}
