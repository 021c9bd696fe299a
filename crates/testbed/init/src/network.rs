// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loopback and Ethernet cards with fixed addresses, by the classic requests on a socket.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use colony_init::job::Interface;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::Failed;

/// Switches on loopback and gives the cards `eth0`, `eth1` … their addresses.
pub(crate) fn up(interfaces: &[Interface]) -> Result<(), Failed> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|e| format!("a socket: {e}"))?;
    switch_on(&socket, "lo")?;
    for (card, interface) in interfaces.iter().enumerate() {
        let name = format!("eth{card}");
        set_address(&socket, &name, libc::SIOCSIFADDR, interface.address)?;
        set_address(&socket, &name, libc::SIOCSIFNETMASK, interface.netmask())?;
        switch_on(&socket, &name)?;
    }
    Ok(())
}

fn set_address(socket: &OwnedFd, name: &str, what: libc::Ioctl, address: Ipv4Addr) -> Result<(), Failed> {
    let [a, b, c, d] = address.octets().map(u8::cast_signed);
    // an IPv4 address inside a sockaddr: two bytes of port, then the address
    let sa_data = [0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0];
    let family = libc::AF_INET as libc::sa_family_t;
    let value = libc::__c_anonymous_ifr_ifru { ifru_addr: libc::sockaddr { sa_family: family, sa_data } };
    request(socket, name, what, value)
}

fn switch_on(socket: &OwnedFd, name: &str) -> Result<(), Failed> {
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    request(socket, name, libc::SIOCSIFFLAGS, libc::__c_anonymous_ifr_ifru { ifru_flags: flags })
}

fn request(
    socket: &OwnedFd,
    name: &str,
    what: libc::Ioctl,
    value: libc::__c_anonymous_ifr_ifru,
) -> Result<(), Failed> {
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: value };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from.cast_signed();
    }
    // SAFETY: all three requests read one `ifreq`, which lives until the call returns; its name ends with 0.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw const request) };
    nix::Error::result(result).map(drop).map_err(|e| format!("the network card {name}: {e}"))
}
