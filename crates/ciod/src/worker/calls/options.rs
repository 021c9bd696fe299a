//! Options of sockets: those that are numbers. Others take or give addresses, which would be the worker's.

use colony_fship::Errno;

use super::{Made, World, done};
use crate::worker::process::Process;

/// `ENOPROTOOPT`.
const UNKNOWN: Errno = Errno(92);
/// Bytes of an option at most.
const LENGTH: u64 = 4096;

/// Whether an option is a plain value.
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

impl World {
    pub(super) fn set_option(&mut self, process: &Process, args: &[u64; 6]) -> Made {
        let fd = process.files.host(args[0])? as u64;
        let length = u64::try_from(args[4] as i32).map_err(|_| Errno::EINVAL)?;
        if !plain(args[1], args[2]) || length > LENGTH {
            return Err(self.refused(fd));
        }
        let value = process.bank.bytes(args[3], length)?;
        done(self.host.call(libc::SYS_setsockopt, [fd, args[1], args[2], value.as_ptr() as u64, length, 0])?)
    }

    pub(super) fn get_option(&mut self, process: &Process, args: &[u64; 6]) -> Made {
        let fd = process.files.host(args[0])? as u64;
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
        process.bank.write(args[3], &value[..used])?;
        process.bank.write(args[4], &length.to_le_bytes())?;
        done(result)
    }

    /// Why an option is refused: there is none of that name, or no socket.
    fn refused(&mut self, fd: u64) -> Errno {
        let (mut kind, mut length) = (0u32, 4u32);
        let (place, at) = (&raw mut kind as u64, &raw mut length as u64);
        let asked = [fd, libc::SOL_SOCKET as u64, libc::SO_TYPE as u64, place, at, 0];
        self.host.call(libc::SYS_getsockopt, asked).err().unwrap_or(UNKNOWN)
    }
}
