// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job of a guest.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One program to run in a guest, and the surroundings it expects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Program and arguments; a program without a slash is looked for in the guest's `PATH`.
    pub argv: Vec<String>,
    /// Variables added to the guest's few (`PATH`, `HOME`, `TERM`), or replacing them.
    pub env: Vec<(String, String)>,
    /// Folder the program begins in; made where it is missing.
    pub cwd: PathBuf,
    /// The guest's name.
    pub hostname: String,
    /// Network interfaces in the order of their cards.
    pub interfaces: Vec<Interface>,
    /// Addresses by name, beside `localhost`.
    pub hosts: Vec<(Ipv4Addr, String)>,
    /// Files to send to the host when the program has ended.
    pub collect: Vec<PathBuf>,
}

/// An IPv4 interface with a fixed address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its address.
    pub address: Ipv4Addr,
    /// Length of the network's prefix in bits, at most 32.
    pub prefix: u8,
}

impl Interface {
    /// The mask that belongs to the prefix.
    #[must_use]
    pub fn netmask(self) -> Ipv4Addr {
        let bits = u32::from(self.prefix.min(32));
        Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0))
    }
}

/// An interface's text that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of an interface; write one as 10.0.0.1/24")]
pub struct NoInterface(String);

impl std::str::FromStr for Interface {
    type Err = NoInterface;

    fn from_str(text: &str) -> Result<Self, NoInterface> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let prefix = prefix.parse().ok().filter(|&bits: &u8| bits <= 32)?;
            Some(Self { address: address.parse().ok()?, prefix })
        });
        parsed.ok_or_else(|| NoInterface(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_an_address_and_a_prefix() {
        let i: Interface = "10.0.0.7/24".parse().expect("one");
        assert_eq!(i, Interface { address: Ipv4Addr::new(10, 0, 0, 7), prefix: 24 });
        assert_eq!(i.netmask(), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(Interface { prefix: 0, ..i }.netmask(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(Interface { prefix: 32, ..i }.netmask(), Ipv4Addr::BROADCAST);
        for wrong in ["10.0.0.7", "10.0.0.7/33", "x/24", "10.0.0.7/", ""] {
            assert!(wrong.parse::<Interface>().is_err(), "{wrong}");
        }
    }
}
