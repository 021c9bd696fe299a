// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network card of this machine with a compute node at its other end: frames in and out, and nothing of the network
//! stack of the operating system.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use colony_fship::frame::ETHER_TYPE;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

/// Bytes of frames that may wait for the proxy: as many as a node sends without an acknowledgement, and their heads.
const WAITING: usize = 1 << 20;

/// Switches the card on; a socket whose datagrams are the frames of compute nodes on it.
///
/// # Errors
/// No such card, or this process may not use it (`CAP_NET_RAW`, `CAP_NET_ADMIN`).
pub(crate) fn open(name: &str) -> io::Result<OwnedFd> {
    let wrong = |e: std::ffi::NulError| io::Error::new(io::ErrorKind::InvalidInput, e);
    let c_name = CString::new(name).map_err(wrong)?;
    // SAFETY: the name ends with 0, and lives until the call returns
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // without a protocol it hears nothing until it is bound to the card
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    switch_on(&socket, &c_name)?;
    // where this is not allowed, more frames are sent again
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &WAITING);
    bind(&socket, index)?;
    Ok(socket)
}

fn switch_on(socket: &OwnedFd, name: &CString) -> io::Result<()> {
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let value = libc::__c_anonymous_ifr_ifru { ifru_flags: flags };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: value };
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes().iter().take(libc::IFNAMSIZ - 1)) {
        *to = from.cast_signed();
    }
    // SAFETY: the request reads one `ifreq`, which lives until the call returns; its name ends with 0
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    nix::Error::result(result).map(drop).map_err(Into::into)
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: u16::from_ne_bytes(ETHER_TYPE),
        sll_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is whole, of this size, and lives until the call returns
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    nix::Error::result(result).map(drop).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes as _;

    #[test]
    fn frames_have_the_type_that_the_socket_hears() {
        let head = colony_fship::frame::Head::new(colony_fship::frame::kind::HELLO, 0, 0);
        assert_eq!(head.as_bytes()[12..14], ETHER_TYPE);
    }

    #[test]
    fn a_card_that_is_not_there_is_refused() {
        assert_eq!(open("no-such-card").expect_err("none").raw_os_error(), Some(libc::ENODEV));
        assert!(open("a\0b").is_err());
    }
}
