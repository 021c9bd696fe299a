// SPDX-License-Identifier: MIT OR Apache-2.0
//! chronyd, by the command protocol of `chronyc tracking` (chrony 2.2 and newer: candm.h, version 6).
//!
//! The protocol is asked over UDP at 127.0.0.1:323, where chronyd reports to everybody unless `cmdport 0` is configured,
//! else over its Unix socket, if chronyd runs as the same user. Nobody without privileges can answer at either.
//! All numbers are big-endian.
//!
//! > "clock_error <= |system_time_offset| + root_dispersion + (0.5 * root_delay)" (chronyc(1), tracking)

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use colony_time::clock::Clock;

use super::{Reading, Source, SourceError, TIMEOUT, error_ns};

const NAME: &str = "chronyd";
/// The default port of chronyd.
const PORT: u16 = 323;
const SOCKET: &str = "/run/chrony/chronyd.sock";

/// `PROTO_VERSION_NUMBER`.
const VERSION: u8 = 6;
/// `PKT_TYPE_CMD_REQUEST` and `PKT_TYPE_CMD_REPLY`.
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
/// `REQ_TRACKING` and `RPY_TRACKING`.
const TRACKING: u16 = 33;
const TRACKED: u16 = 5;
/// Length of the reply. A request is as long, so that it cannot be used to amplify traffic.
const LENGTH: usize = 104;
/// `LEAP_Unsynchronised`.
const UNSYNCHRONISED: u16 = 3;
/// The reference that chronyd reports while it serves its own time (`local` in chrony.conf): 127.127.1.1, `NTP_REFID_LOCAL`.
const OWN_CLOCK: u32 = 0x7f7f_0101;
/// The drift that chronyd assumes of every clock, in ppm (the default of `maxclockerror`).
const CLOCK_PPM: f64 = 1.0;

/// The state of the clock according to chronyd.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tracking {
    /// The clock that is followed: an IPv4 address, a hash of an IPv6 address, or the four letters of a reference clock.
    pub reference: u32,
    /// Steps to a reference clock; 0 where there is none.
    pub stratum: u16,
    /// Leap status: 3 while the clock is not synchronised.
    pub leap: u16,
    /// Difference between the clock and the time that chronyd steers it to, seconds.
    pub correction_s: f64,
    /// Round trips to the reference clock, seconds.
    pub root_delay_s: f64,
    /// Error beside that, seconds.
    pub root_dispersion_s: f64,
    /// Error bound of the rate, parts per million.
    pub skew_ppm: f64,
    /// The part of the rate that is not corrected, parts per million.
    pub residual_ppm: f64,
}

impl Tracking {
    /// The request with this sequence number.
    #[must_use]
    pub fn request(sequence: u32) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..2].copy_from_slice(&[VERSION, REQUEST]);
        bytes[4..6].copy_from_slice(&TRACKING.to_be_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_be_bytes());
        bytes
    }

    /// Reads the reply to the request `sequence`; `None` for a reply to another one.
    ///
    /// # Errors
    /// [`SourceError`]; no bytes panic.
    pub fn parse(bytes: &[u8], sequence: u32) -> Result<Option<Self>, SourceError> {
        let form = |what| SourceError::Form { name: NAME, what };
        let short = || form("the reply is cut short");
        if u8_at(bytes, 0).ok_or_else(short)? != VERSION {
            return Err(form("another version of the protocol"));
        }
        if u8_at(bytes, 1) != Some(REPLY) || u16_at(bytes, 4) != Some(TRACKING) {
            return Err(form("no reply to tracking"));
        }
        if u32_at(bytes, 16).ok_or_else(short)? != sequence {
            return Ok(None);
        }
        match u16_at(bytes, 8).ok_or_else(short)? {
            0 => {}
            status => return Err(SourceError::Refused { name: NAME, status }),
        }
        if u16_at(bytes, 6) != Some(TRACKED) {
            return Err(form("another kind of report"));
        }
        // after the header: reference id (4 bytes), address (20), stratum, leap, time of the last update (12)
        let float = |at| u32_at(bytes, at).map(float).ok_or_else(short);
        Ok(Some(Self {
            reference: u32_at(bytes, 28).ok_or_else(short)?,
            stratum: u16_at(bytes, 52).ok_or_else(short)?,
            leap: u16_at(bytes, 54).ok_or_else(short)?,
            correction_s: float(68)?,
            residual_ppm: float(84)?,
            skew_ppm: float(88)?,
            root_delay_s: float(92)?,
            root_dispersion_s: float(96)?,
        }))
    }

    /// Returns `true` if the clock follows no other one. Its error is then 0 by its own account, and no two nodes agree.
    #[must_use]
    pub fn follows_itself(&self) -> bool {
        self.reference == OWN_CLOCK
    }

    /// The largest error of the clock, seconds.
    #[must_use]
    pub fn bound_s(&self) -> f64 {
        self.root_delay_s / 2.0 + self.root_dispersion_s + self.correction_s.abs()
    }

    /// The reading that follows from it, taken at `monotonic_ns`.
    #[must_use]
    pub fn reading(&self, monotonic_ns: i64) -> Reading {
        let possible = self.root_delay_s >= 0.0 && self.root_dispersion_s >= 0.0;
        let possible = possible && !self.follows_itself();
        let synchronised = self.leap != UNSYNCHRONISED && (1..16).contains(&self.stratum) && possible;
        let growth_ppm = self.skew_ppm.abs() + self.residual_ppm.abs() + CLOCK_PPM;
        Reading {
            source: NAME,
            monotonic_ns,
            bound_ns: error_ns(self.bound_s()).filter(|_| synchronised),
            growth_ppm: growth_ppm.min(1e5),
        }
    }
}

/// A number of 7 bits of exponent and 25 of coefficient, both two's complements (`UTI_FloatNetworkToHost`).
fn float(bits: u32) -> f64 {
    let signed = bits.cast_signed();
    let exponent = (signed >> 25) - 25;
    let coefficient = (signed << 7) >> 7;
    f64::from(coefficient) * f64::from(exponent).exp2()
}

fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// chronyd of this node.
#[derive(Clone, Debug)]
pub struct Chrony {
    address: SocketAddr,
    socket: PathBuf,
    sequence: u32,
}

impl Default for Chrony {
    fn default() -> Self {
        Self::at((Ipv4Addr::LOCALHOST, PORT).into(), SOCKET.into())
    }
}

impl Chrony {
    /// A chronyd that listens at other places than the default ones.
    #[must_use]
    pub const fn at(address: SocketAddr, socket: PathBuf) -> Self {
        Self { address, socket, sequence: 0 }
    }

    fn silent(place: &impl std::fmt::Display, source: io::Error) -> SourceError {
        SourceError::Silent { name: NAME, place: place.to_string(), source }
    }

    fn over_udp(&self) -> Result<Tracking, SourceError> {
        let failed = |e| Self::silent(&self.address, e);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        // connected: only what comes from there is received
        socket.connect(self.address).map_err(failed)?;
        socket.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        self.ask(&self.address, |b| socket.send(b), |b| socket.recv(b))
    }

    fn over_unix(&self) -> Result<Tracking, SourceError> {
        let failed = |e| Self::silent(&self.socket.display(), e);
        let local = Bound::beside(&self.socket).map_err(failed)?;
        local.socket.connect(&self.socket).map_err(failed)?;
        local.socket.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        local.socket.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
        self.ask(&self.socket.display(), |b| local.socket.send(b), |b| local.socket.recv(b))
    }

    fn ask(
        &self,
        place: &impl std::fmt::Display,
        send: impl Fn(&[u8]) -> io::Result<usize>,
        receive: impl Fn(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Tracking, SourceError> {
        let failed = |e| Self::silent(place, e);
        send(&Tracking::request(self.sequence)).map_err(failed)?;
        let mut buffer = [0; 1024];
        // late answers to earlier questions
        for _ in 0..8 {
            let length = receive(&mut buffer).map_err(failed)?;
            if let Some(tracking) = Tracking::parse(&buffer[..length], self.sequence)? {
                return Ok(tracking);
            }
        }
        Err(SourceError::Form { name: NAME, what: "replies to other requests" })
    }
}

impl Source for Chrony {
    fn read(&mut self) -> Result<Reading, SourceError> {
        self.sequence = rand::random();
        let now = Clock::Monotonic.now_ns();
        let tracking = self.over_udp().or_else(|udp| self.over_unix().map_err(|_| udp))?;
        if tracking.follows_itself() {
            return Err(SourceError::OwnClock { name: NAME });
        }
        Ok(tracking.reading(now))
    }
}

/// A socket of ours with a name, to which chronyd can answer; the name goes with it.
struct Bound {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Bound {
    /// In the directory of `other`, as chronyc does it. That has to be this user's own: in another user's, the name could
    /// be made to mean another file before its mode is set.
    fn beside(other: &Path) -> io::Result<Self> {
        std::fs::metadata(other)?;
        let folder = other.parent().unwrap_or(Path::new("/"));
        let meta = std::fs::metadata(folder)?;
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        // chronyd makes it for user and group
        let others = if meta.gid() == gid { 0o002 } else { 0o022 };
        if meta.uid() != uid || meta.mode() & others != 0 {
            let text = "its directory is another user's";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let path = folder.join(format!("chronyc.{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let bound = Self { socket: UnixDatagram::bind(&path)?, path };
        // chronyd has given up root
        std::fs::set_permissions(&bound.path, PermissionsExt::from_mode(0o666))?;
        Ok(bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reply as chronyd writes it.
    fn reply(sequence: u32) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        (bytes[0], bytes[1]) = (VERSION, REPLY);
        bytes[4..6].copy_from_slice(&TRACKING.to_be_bytes());
        bytes[6..8].copy_from_slice(&TRACKED.to_be_bytes());
        bytes[16..20].copy_from_slice(&sequence.to_be_bytes());
        bytes[52..54].copy_from_slice(&3u16.to_be_bytes());
        for (at, value) in [(68, -0.000_010), (84, -0.001), (88, 0.5), (92, 0.002), (96, 0.000_3)] {
            bytes[at..at + 4].copy_from_slice(&bits(value).to_be_bytes());
        }
        bytes
    }

    /// The other way round: the nearest number.
    fn bits(x: f64) -> u32 {
        if x == 0.0 {
            return 0;
        }
        let exponent = (x.abs().log2().floor() as i32 + 2).clamp(-64, 63);
        let coefficient = (x * f64::from(25 - exponent).exp2()).round() as i32;
        (exponent << 25) as u32 | (coefficient as u32 & 0x1ff_ffff)
    }

    #[test]
    fn a_reply_gives_the_bound_that_chrony_documents() {
        let t = Tracking::parse(&reply(7), 7).expect("a reply").expect("ours");
        assert_eq!((t.stratum, t.leap), (3, 0));
        let r = t.reading(5);
        assert!(r.bound_ns.is_some_and(|b| b.abs_diff(1_310_000) < 10), "{r:?}");
        assert!((r.growth_ppm - 1.501).abs() < 1e-3, "{r:?}");
        assert!(Tracking::parse(&reply(7), 8).expect("a reply").is_none(), "to another request");
    }

    #[test]
    fn a_clock_that_is_not_synchronised_has_no_bound() {
        let t = Tracking::parse(&reply(7), 7).expect("a reply").expect("ours");
        for t in [
            Tracking { reference: OWN_CLOCK, ..t },
            Tracking { leap: 3, ..t },
            Tracking { stratum: 0, ..t },
            Tracking { stratum: 16, ..t },
            Tracking { root_delay_s: -1.0, ..t },
            Tracking { correction_s: 3600.0, ..t },
            Tracking { root_dispersion_s: f64::NAN, ..t },
        ] {
            assert_eq!(t.reading(5).bound_ns, None, "{t:?}");
        }
    }

    #[test]
    fn a_refusal_and_another_version_are_told() {
        let mut bytes = reply(7);
        bytes[9] = 2;
        assert!(matches!(Tracking::parse(&bytes, 7), Err(SourceError::Refused { status: 2, .. })));
        bytes[0] = 5;
        let error = Tracking::parse(&bytes, 7).expect_err("another version").to_string();
        assert!(error.contains("version"), "{error}");
    }

    #[test]
    fn floats_are_chronys() {
        // -1 and 1: coefficient 2^24 does not fit, 2^23 and exponent 2 do
        assert_eq!([float(0), float((2 << 25) | (1 << 23)), float(0xff00_0000)], [0.0, 1.0, -0.25]);
    }

    proptest! {
        #[test]
        fn a_float_is_read_back(x in -1e6..1e6f64) {
            prop_assert!((float(bits(x)) - x).abs() <= x.abs() * 1e-6 + 1e-18);
        }

        #[test]
        fn no_bytes_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            ours in any::<bool>(),
            sequence in any::<u32>(),
        ) {
            if ours {
                let head = reply(sequence);
                for (b, h) in bytes.iter_mut().zip(&head[..20]) {
                    *b = *h;
                }
            }
            if let Ok(Some(t)) = Tracking::parse(&bytes, sequence) {
                let _ = t.reading(0).bound_at(i64::MAX);
            }
        }

        #[test]
        fn a_truncated_answer_is_an_error(cut in 0usize..100) {
            prop_assert!(Tracking::parse(&reply(7)[..cut], 7).is_err());
        }
    }
}
