// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of sockets: those that are numbers. Others take or give addresses, which would be the worker's.

use std::os::fd::AsRawFd as _;

use colony_fship::Errno;

use super::{Made, World, done};
use crate::worker::process::Process;

/// `ENOPROTOOPT`.
const UNKNOWN: Errno = Errno(92);
/// Bytes of an option at most.
const LENGTH: u64 = 4096;

/// Returns `true` if an option is a plain value.
fn plain(level: u64, name: u64) -> bool {
    match (level as i32, name as i32) {
        // SO_DEBUG … SO_SNDTIMEO, SO_BINDTODEVICE, SO_TIMESTAMP, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN
        (libc::SOL_SOCKET, name) => matches!(name, 1..=21 | 25 | 29 | 30 | 38 | 39),
        // TCP_NODELAY … TCP_CONGESTION, TCP_USER_TIMEOUT, TCP_FASTOPEN
        (libc::IPPROTO_TCP, name) => matches!(name, 1..=13 | 18 | 23),
        // IP_TOS, IP_TTL, IP_RECVERR …, IP_MULTICAST_IF …
        (libc::IPPROTO_IP, name) => matches!(name, 1..=3 | 8..=15 | 32..=36),
        // IPV6_UNICAST_HOPS …, IPV6_MTU …, IPV6_V6ONLY, IPV6_TCLASS
        (libc::IPPROTO_IPV6, name) => matches!(name, 16..=21 | 23..=26 | 49 | 51 | 66 | 67),
        _ => false,
    }
}

fn is_linger(args: &[u64; 6]) -> bool {
    (args[1] as i32, args[2] as i32) == (libc::SOL_SOCKET, libc::SO_LINGER)
}

/// The seconds that a `struct linger` says, if it is on; then it is off and says none.
fn seconds(linger: &mut [u8]) -> i32 {
    let Some((linger, _)) = linger.split_first_chunk_mut::<8>() else { return 0 };
    let [on, seconds] = [0, 4].map(|at| i32::from_ne_bytes(std::array::from_fn(|i| linger[at + i])));
    if on == 0 || seconds == 0 {
        return 0;
    }
    linger.fill(0);
    seconds
}

impl World {
    pub(super) fn set_option(&mut self, process: &Process, args: &[u64; 6]) -> Made {
        let file = process.files.get(args[0])?;
        let fd = file.fd.as_raw_fd() as u64;
        let length = u64::try_from(args[4] as i32).map_err(|_| Errno::EINVAL)?;
        if !plain(args[1], args[2]) || length > LENGTH {
            return Err(self.refused(fd));
        }
        let mut value = process.bank.bytes(args[3], length)?;
        let lingers = is_linger(args).then(|| seconds(&mut value));
        let args = [fd, args[1], args[2], value.as_ptr() as u64, length, 0];
        let result = self.host.call(libc::SYS_setsockopt, args)?;
        if let Some(lingers) = lingers {
            file.about.linger.set(lingers);
        }
        done(result)
    }

    pub(super) fn get_option(&mut self, process: &Process, args: &[u64; 6]) -> Made {
        let file = process.files.get(args[0])?;
        let fd = file.fd.as_raw_fd() as u64;
        let room: u32 = process.bank.get(args[4])?;
        let room = u64::try_from(room as i32).map_err(|_| Errno::EINVAL)?;
        if !plain(args[1], args[2]) {
            return Err(self.refused(fd));
        }
        let mut value = vec![0u8; room.min(LENGTH) as usize];
        let mut length = value.len() as u32;
        let (place, at) = (value.as_mut_ptr() as u64, &raw mut length as u64);
        let result = self.host.call(libc::SYS_getsockopt, [fd, args[1], args[2], place, at, 0])?;
        let used = (length as usize).min(value.len());
        if is_linger(args) && file.about.linger.get() != 0 {
            let set = [1, file.about.linger.get()].map(i32::to_ne_bytes).concat();
            value[..used].copy_from_slice(&set[..used]);
        }
        process.bank.write(args[3], &value[..used])?;
        process.bank.write(args[4], &length.to_le_bytes())?;
        done(result)
    }

    /// The error of an unknown option: there is none of that name, or no socket.
    fn refused(&mut self, fd: u64) -> Errno {
        let (mut kind, mut length) = (0u32, 4u32);
        let (place, at) = (&raw mut kind as u64, &raw mut length as u64);
        let asked = [fd, libc::SOL_SOCKET as u64, libc::SO_TYPE as u64, place, at, 0];
        self.host.call(libc::SYS_getsockopt, asked).err().unwrap_or(UNKNOWN)
    }
}
