// SPDX-License-Identifier: MIT OR Apache-2.0
//! ptp4l with software time stamps, by the management messages of `pmc` (IEEE 1588-2008, clause 15; linuxptp 3 and newer).
//!
//! With hardware time stamps ptp4l steers the clock of the network card, and says nothing of the system's. All numbers are
//! big-endian.

use std::collections::VecDeque;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;

use colony_time::clock::Clock;

use super::{Reading, Source, SourceError, TIMEOUT};

const NAME: &str = "ptp4l";
/// The default address of ptp4l (`uds_address`).
const SOCKET: &str = "/var/run/ptp4l";
/// Bytes of a message before the data of its management TLV.
const HEADER: usize = 54;
/// `messageType` of a management message, and version 2 of PTP.
const MANAGEMENT: u8 = 0xd;
const PTP_VERSION: u8 = 2;
/// `actionField`: a response.
const RESPONSE: u8 = 2;
/// `tlvType` of what was asked, and of an error.
const TLV: u16 = 1;
const TLV_ERROR: u16 = 2;
/// The management message `CURRENT_DATA_SET`.
const CURRENT_DATA_SET: u16 = 0x2001;
const TIME_STATUS: u16 = 0xc000;
const PORT_PROPERTIES: u16 = 0xc004;
/// The longest silence of the grandmaster, nanoseconds.
const SILENCE_NS: i64 = 10_000_000_000;
/// Offsets that are remembered: the largest counts.
const REMEMBERED: usize = 16;
/// The largest drift of a steered clock, parts per million.
const GROWTH_PPM: f64 = 1.0;

/// The state of the clock according to ptp4l.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// This clock less the grandmaster's at the last Sync message, nanoseconds.
    pub offset_ns: i64,
    /// The instant when that arrived, on this clock.
    pub ingress_ns: i64,
    /// True if there is a grandmaster that is not this node.
    pub follows: bool,
    /// Half of the round trip to the master, nanoseconds.
    pub delay_ns: i64,
}

impl Status {
    /// Reads the data of `TIME_STATUS_NP`; the delay is not in it. No bytes panic.
    #[must_use]
    pub fn parse_time(data: &[u8]) -> Option<Self> {
        let (offset_ns, ingress_ns) = (i64_at(data, 0)?, i64_at(data, 8)?);
        // after two rates (8 bytes), a time base (2) and the last phase change (12)
        let present = data.get(38..42)? != [0; 4];
        Some(Self { offset_ns, ingress_ns, follows: present, delay_ns: 0 })
    }

    /// Adds the data of `CURRENT_DATA_SET`: steps to the grandmaster, offset, mean path delay in 2⁻¹⁶ ns.
    #[must_use]
    pub fn with_current(self, data: &[u8]) -> Option<Self> {
        let steps = u16_at(data, 0)?;
        let delay_ns = i64_at(data, 10)? >> 16;
        Some(Self { follows: self.follows && steps > 0, delay_ns, ..self })
    }
}

/// The request for `id`.
#[must_use]
pub fn request(id: u16, sequence: u16) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    (bytes[0], bytes[1]) = (MANAGEMENT, PTP_VERSION);
    bytes[2..4].copy_from_slice(&(HEADER as u16).to_be_bytes());
    bytes[30..32].copy_from_slice(&sequence.to_be_bytes());
    // control field and interval of management messages
    (bytes[32], bytes[33]) = (4, 0x7f);
    // to every port
    bytes[34..44].fill(0xff);
    bytes[48..50].copy_from_slice(&TLV.to_be_bytes());
    bytes[50..52].copy_from_slice(&2u16.to_be_bytes());
    bytes[52..54].copy_from_slice(&id.to_be_bytes());
    bytes
}

/// The data of a response to the request `sequence` for `id`; `None` for another message. No bytes panic.
///
/// # Errors
/// [`SourceError`]: ptp4l refused, or the message is cut short.
pub fn response(bytes: &[u8], id: u16, sequence: u16) -> Result<Option<&[u8]>, SourceError> {
    let short = || SourceError::Form { name: NAME, what: "the message is cut short" };
    let head = bytes.get(..HEADER).ok_or_else(short)?;
    let ours = head[0] & 0xf == MANAGEMENT && head[1] & 0xf == PTP_VERSION && head[46] & 0xf == RESPONSE;
    if !ours || u16_at(head, 30) != Some(sequence) {
        return Ok(None);
    }
    match u16_at(head, 48) {
        // the second word is the reason
        Some(TLV_ERROR) => {
            return Err(SourceError::Refused { name: NAME, status: u16_at(head, 52).unwrap_or(0) });
        }
        Some(TLV) if u16_at(head, 52) == Some(id) => {}
        _ => return Ok(None),
    }
    // the length counts the id
    let length = u16_at(head, 50).and_then(|l| usize::from(l).checked_sub(2)).ok_or_else(short)?;
    bytes.get(HEADER..HEADER + length).map(Some).ok_or_else(short)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    bytes.get(at..)?.first_chunk().map(|b| i64::from_be_bytes(*b))
}

/// ptp4l of this node.
#[derive(Clone, Debug)]
pub struct Ptp4l {
    socket: PathBuf,
    sequence: u16,
    /// The last offsets, without their sign.
    offsets: VecDeque<u64>,
}

impl Default for Ptp4l {
    fn default() -> Self {
        Self::at(SOCKET.into())
    }
}

impl Ptp4l {
    /// One that listens at another place than by default.
    #[must_use]
    pub const fn at(socket: PathBuf) -> Self {
        Self { socket, sequence: 0, offsets: VecDeque::new() }
    }

    fn silent(&self, source: io::Error) -> SourceError {
        SourceError::Silent { name: NAME, place: self.socket.display().to_string(), source }
    }

    fn connect(&self) -> io::Result<UnixDatagram> {
        // an abstract name, to answer to: no file to leave behind
        let name = format!("colony-clock-{}-{:x}", std::process::id(), rand::random::<u64>());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        socket.connect(&self.socket)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(socket)
    }

    fn get(&mut self, socket: &UnixDatagram, id: u16) -> Result<Vec<u8>, SourceError> {
        self.sequence = self.sequence.wrapping_add(1);
        socket.send(&request(id, self.sequence)).map_err(|e| self.silent(e))?;
        let mut buffer = [0; 1500];
        for _ in 0..16 {
            let length = socket.recv(&mut buffer).map_err(|e| self.silent(e))?;
            if let Some(data) = response(&buffer[..length], id, self.sequence)? {
                return Ok(data.to_vec());
            }
        }
        Err(SourceError::Form { name: NAME, what: "responses to other requests" })
    }

    /// Interprets `status`, received at `monotonic_ns`, when this clock read `realtime_ns`.
    fn reading(&mut self, status: Status, monotonic_ns: i64, realtime_ns: i64) -> Reading {
        let age_ns = realtime_ns.saturating_sub(status.ingress_ns);
        let synchronised = status.follows
            && status.ingress_ns != 0
            && (-SILENCE_NS..=SILENCE_NS).contains(&age_ns)
            && status.delay_ns >= 0;
        if !synchronised {
            self.offsets.clear();
        } else {
            self.offsets.push_back(status.offset_ns.unsigned_abs());
            while self.offsets.len() > REMEMBERED {
                self.offsets.pop_front();
            }
        }
        let largest = self.offsets.iter().max().copied().filter(|o| *o <= SILENCE_NS.unsigned_abs());
        // the two ways may be as unlike as can be
        let bound_ns = largest.map(|o| {
            let drifted = (age_ns.unsigned_abs() as f64 * GROWTH_PPM * 1e-6).ceil() as u64;
            o.saturating_add(status.delay_ns.unsigned_abs()).saturating_add(drifted)
        });
        Reading { source: NAME, monotonic_ns, bound_ns, growth_ppm: GROWTH_PPM }
    }
}

impl Source for Ptp4l {
    fn read(&mut self) -> Result<Reading, SourceError> {
        let form = |what| SourceError::Form { name: NAME, what };
        let socket = self.connect().map_err(|e| self.silent(e))?;
        let port = self.get(&socket, PORT_PROPERTIES)?;
        // after the port's identity (10 bytes) and state: 0 is software
        if port.get(11) != Some(&0) {
            return Err(form("hardware time stamps: the clock it steers is the network card's"));
        }
        let time = self.get(&socket, TIME_STATUS)?;
        let current = self.get(&socket, CURRENT_DATA_SET)?;
        let status = Status::parse_time(&time).and_then(|s| s.with_current(&current));
        let status = status.ok_or_else(|| form("a data set is cut short"))?;
        Ok(self.reading(status, Clock::Monotonic.now_ns(), Clock::Realtime.now_ns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A response of ptp4l.
    fn answer(id: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = request(id, sequence);
        bytes[46] = RESPONSE;
        bytes[50..52].copy_from_slice(&(data.len() as u16 + 2).to_be_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    /// As ptp4l 3.1.1 told it: offset -873 ns, a grandmaster, a delay of 1983 ns.
    fn data_sets() -> [Vec<u8>; 2] {
        let mut time = vec![0; 50];
        time[..8].copy_from_slice(&(-873i64).to_be_bytes());
        time[8..16].copy_from_slice(&1_000_000_000_000i64.to_be_bytes());
        time[41] = 1;
        let mut current = vec![0; 18];
        current[1] = 1;
        current[10..].copy_from_slice(&(1983i64 << 16).to_be_bytes());
        [time, current]
    }

    fn status() -> Status {
        let [time, current] = data_sets();
        Status::parse_time(&time).and_then(|s| s.with_current(&current)).expect("whole")
    }

    #[test]
    fn the_bound_is_the_largest_offset_and_the_whole_delay() {
        let mut source = Ptp4l::default();
        let s = status();
        let read = |source: &mut Ptp4l, s| source.reading(s, 7, s.ingress_ns + 1_000_000_000).bound_ns;
        assert_eq!(read(&mut source, s), Some(873 + 1983 + 1000));
        assert_eq!(read(&mut source, Status { offset_ns: 5_000, ..s }), Some(5_000 + 1983 + 1000));
        assert_eq!(read(&mut source, s), Some(5_000 + 1983 + 1000), "remembered");
        for _ in 0..REMEMBERED {
            read(&mut source, s);
        }
        assert_eq!(read(&mut source, s), Some(873 + 1983 + 1000), "for a while");
    }

    #[test]
    fn a_node_that_follows_nobody_or_hears_nothing_has_no_bound() {
        let s = status();
        let read = |s: Status, age| Ptp4l::default().reading(s, 7, s.ingress_ns.saturating_add(age)).bound_ns;
        assert_eq!(read(Status { follows: false, ..s }, 0), None);
        assert_eq!(read(s, SILENCE_NS + 1), None);
        assert_eq!(read(s, -SILENCE_NS - 1), None);
        assert_eq!(read(Status { delay_ns: -1, ..s }, 0), None);
        assert_eq!(read(Status { offset_ns: i64::MIN, ..s }, 0), None);
        assert_eq!(Status { follows: true, ..s }.with_current(&[0; 18]).map(|s| s.follows), Some(false));
    }

    #[test]
    fn responses_are_told_from_other_messages() {
        let bytes = answer(TIME_STATUS, 9, &[1, 2, 3]);
        assert_eq!(response(&bytes, TIME_STATUS, 9).expect("whole"), Some(&[1, 2, 3][..]));
        assert_eq!(response(&bytes, TIME_STATUS, 8).expect("whole"), None);
        assert_eq!(response(&bytes, CURRENT_DATA_SET, 9).expect("whole"), None);
        assert_eq!(response(&request(TIME_STATUS, 9), TIME_STATUS, 9).expect("whole"), None, "no response");
        assert!(response(&bytes[..bytes.len() - 1], TIME_STATUS, 9).is_err());
        let mut refused = answer(TIME_STATUS, 9, &[]);
        refused[49] = 2;
        assert!(matches!(response(&refused, TIME_STATUS, 9), Err(SourceError::Refused { .. })));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            length in any::<u16>(),
            instants in prop::array::uniform2(any::<i64>()),
        ) {
            let mut framed = answer(TIME_STATUS, 9, &bytes);
            framed[50..52].copy_from_slice(&length.to_be_bytes());
            for b in [&bytes, &framed] {
                let data = response(b, TIME_STATUS, 9).ok().flatten().unwrap_or(b);
                let status = Status::parse_time(data).and_then(|s| s.with_current(data));
                let reading = Ptp4l::default().reading(status.unwrap_or_default(), instants[0], instants[1]);
                let _ = reading.bound_at(i64::MAX);
            }
        }
    }
}
