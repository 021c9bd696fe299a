// SPDX-License-Identifier: MIT OR Apache-2.0
//! The datagrams that nodes compare their clocks by.
//!
//! Little-endian, a header of 20 bytes and a body whose length its kind fixes, never over [`LARGEST`]:
//!
//! | bytes | header |
//! |---|---|
//! | 4 | `CLNC` |
//! | 1 | version, 1 |
//! | 1 | kind |
//! | 2 | nought |
//! | 4 | rank of the sender |
//! | 4 | list: a hash of the host list, the same on all that take part |
//! | 4 | cycle: how often the tree has been walked |
//!
//! Every question carries a nonce, and only the answer with that nonce counts: a stray or late datagram is
//! dropped. There is no secret in it. With a [key](crate::key) a signature follows; without, it is meant for a network whose
//! nodes trust each other.

use colony_time::Estimate;
use colony_time::estimate::MAX_DRIFT_PPM;
use zerocopy::byteorder::little_endian::{F64, I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// The largest datagram: fits the smallest frame of usual networks.
pub const LARGEST: usize = 1_400;
/// The version spoken here.
pub const VERSION: u8 = 1;
const MAGIC: &[u8; 4] = b"CLNC";
/// Records a datagram may hold.
pub const MOST_RECORDS: usize = 18;

/// A datagram.
#[derive(Clone, Debug, PartialEq)]
pub struct Datagram {
    /// Rank of the sender.
    pub from: u32,
    /// Hash of the host list.
    pub list: u32,
    /// Number of walks of the tree.
    pub cycle: u32,
    /// The body.
    pub message: Message,
}

/// The body of a datagram.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Child to parent: is it my turn?
    Ask,
    /// Parent to child: not yet, but I am there.
    Busy,
    /// Parent to child: go on.
    Ready,
    /// Child to parent: what time is it?
    Probe {
        /// Names the question.
        nonce: u64,
    },
    /// Parent to child: the answer.
    Reply {
        /// Of the question.
        nonce: u64,
        /// The question arrived.
        received_ns: i64,
        /// The answer left.
        replied_ns: i64,
    },
    /// Child to parent: I have asked enough; what do you know of the reference?
    Finish {
        /// Names the question.
        nonce: u64,
    },
    /// Parent to child: this.
    Known {
        /// Of the question.
        nonce: u64,
        /// The reference, on the parent's clock.
        estimate: Estimate,
    },
    /// Child to parent: I am there, and so are those below me as far as I know.
    Alive,
    /// Child to parent: what came out for me and some below me.
    Records {
        /// Names the datagram.
        nonce: u64,
        /// The results.
        records: Vec<Record>,
    },
    /// Parent to child: these arrived.
    Ack {
        /// Of the datagram.
        nonce: u64,
    },
    /// To parent and children: this walk has failed.
    Abort {
        /// Because of this rank.
        rank: u32,
        /// True if nothing was heard of that rank; otherwise it has failed, and reports that itself.
        silent: bool,
    },
}

/// The result of one node, in the form in which it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct Record {
    /// The node.
    pub rank: U32,
    /// The reference on its clock.
    pub estimate: EstimateBytes,
    /// Quickest round trip to its parent, nanoseconds.
    pub round_trip_ns: U64,
    /// The line's distance from its samples, nanoseconds.
    pub residual_ns: F64,
    /// Round trips made.
    pub trips: U32,
    /// Questions that were not answered.
    pub lost: U32,
}

/// An [`Estimate`] in the form in which it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct EstimateBytes {
    at_ns: I64,
    offset_ns: I64,
    drift_ppm: F64,
    bound_ns: U64,
    growth_ppm: F64,
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    zero: [u8; 2],
    from: U32,
    list: U32,
    cycle: U32,
}

/// Bytes that are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not one of ours.
    #[error("not a datagram of colony clock")]
    Foreign,
    /// Another version's.
    #[error("a datagram of version {0}; this is version {VERSION}: run the same colony on all nodes")]
    Version(u8),
    /// Cut short, too long, of no known kind, or with a value that cannot be.
    #[error("a damaged datagram")]
    Damaged,
}

impl Message {
    const fn kind(&self) -> u8 {
        match self {
            Self::Ask => 1,
            Self::Busy => 2,
            Self::Ready => 3,
            Self::Probe { .. } => 4,
            Self::Reply { .. } => 5,
            Self::Finish { .. } => 6,
            Self::Known { .. } => 7,
            Self::Alive => 8,
            Self::Records { .. } => 9,
            Self::Ack { .. } => 10,
            Self::Abort { .. } => 11,
        }
    }
}

impl Datagram {
    /// As bytes. Of more than [`MOST_RECORDS`] records only so many are taken.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let [from, list, cycle] = [self.from, self.list, self.cycle].map(U32::new);
        let kind = self.message.kind();
        let header = Header { magic: *MAGIC, version: VERSION, kind, zero: [0; 2], from, list, cycle };
        let mut out = header.as_bytes().to_vec();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        match &self.message {
            Message::Ask | Message::Busy | Message::Ready | Message::Alive => {}
            Message::Probe { nonce } | Message::Finish { nonce } | Message::Ack { nonce } => {
                put(U64::new(*nonce).as_bytes());
            }
            Message::Reply { nonce, received_ns, replied_ns } => {
                put(U64::new(*nonce).as_bytes());
                put([*received_ns, *replied_ns].map(I64::new).as_bytes());
            }
            Message::Known { nonce, estimate } => {
                put(U64::new(*nonce).as_bytes());
                put(EstimateBytes::from(*estimate).as_bytes());
            }
            Message::Records { nonce, records } => {
                let records = &records[..records.len().min(MOST_RECORDS)];
                put(U64::new(*nonce).as_bytes());
                put(&[records.len() as u8]);
                put(records.as_bytes());
            }
            Message::Abort { rank, silent } => {
                put(U32::new(*rank).as_bytes());
                put(silent.as_bytes());
            }
        }
        out
    }

    /// From bytes of anywhere.
    ///
    /// # Errors
    /// [`WireError`]; nothing panics.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (header, mut rest) = Header::read_from_prefix(bytes).map_err(|_| WireError::Foreign)?;
        if header.magic != *MAGIC {
            return Err(WireError::Foreign);
        }
        if header.version != VERSION {
            return Err(WireError::Version(header.version));
        }
        let r = &mut rest;
        let message = match header.kind {
            1 => Message::Ask,
            2 => Message::Busy,
            3 => Message::Ready,
            4 => Message::Probe { nonce: next::<U64>(r)?.get() },
            5 => {
                let (nonce, times): (U64, [I64; 2]) = (next(r)?, next(r)?);
                let [received_ns, replied_ns] = times.map(I64::get);
                Message::Reply { nonce: nonce.get(), received_ns, replied_ns }
            }
            6 => Message::Finish { nonce: next::<U64>(r)?.get() },
            7 => {
                let (nonce, estimate): (U64, EstimateBytes) = (next(r)?, next(r)?);
                Message::Known { nonce: nonce.get(), estimate: estimate.checked()?.into() }
            }
            8 => Message::Alive,
            9 => {
                let (nonce, count): (U64, u8) = (next(r)?, next(r)?);
                if usize::from(count) > MOST_RECORDS {
                    return Err(WireError::Damaged);
                }
                let records = (0..count).map(|_| next::<Record>(r)?.checked());
                Message::Records { nonce: nonce.get(), records: records.collect::<Result<_, _>>()? }
            }
            10 => Message::Ack { nonce: next::<U64>(r)?.get() },
            11 => match (next::<U32>(r)?, next(r)?) {
                (rank, silent @ (0u8 | 1)) => Message::Abort { rank: rank.get(), silent: silent == 1 },
                _ => return Err(WireError::Damaged),
            },
            _ => return Err(WireError::Damaged),
        };
        if !rest.is_empty() {
            return Err(WireError::Damaged);
        }
        let Header { from, list, cycle, .. } = header;
        Ok(Self { from: from.get(), list: list.get(), cycle: cycle.get(), message })
    }
}

/// Takes a value from the front of `rest`.
fn next<T: FromBytes>(rest: &mut &[u8]) -> Result<T, WireError> {
    let (value, after) = T::read_from_prefix(rest).map_err(|_| WireError::Damaged)?;
    *rest = after;
    Ok(value)
}

/// Checks that a number is from `least` to `most`.
fn check(x: F64, least: f64, most: f64) -> Result<(), WireError> {
    if (least..=most).contains(&x.get()) { Ok(()) } else { Err(WireError::Damaged) }
}

impl Record {
    fn checked(self) -> Result<Self, WireError> {
        self.estimate.checked()?;
        check(self.residual_ns, 0.0, 1e18).map(|()| self)
    }
}

impl EstimateBytes {
    fn checked(self) -> Result<Self, WireError> {
        // a chain of clocks: each may drift from the next
        let most = 40.0 * MAX_DRIFT_PPM;
        check(self.drift_ppm, -most, most)?;
        check(self.growth_ppm, 0.0, 3.0 * most).map(|()| self)
    }
}

impl From<Estimate> for EstimateBytes {
    fn from(Estimate { at_ns, offset_ns, drift_ppm, bound_ns, growth_ppm }: Estimate) -> Self {
        let [at_ns, offset_ns] = [at_ns, offset_ns].map(I64::new);
        let [drift_ppm, growth_ppm] = [drift_ppm, growth_ppm].map(F64::new);
        Self { at_ns, offset_ns, drift_ppm, bound_ns: bound_ns.into(), growth_ppm }
    }
}

impl From<EstimateBytes> for Estimate {
    fn from(EstimateBytes { at_ns, offset_ns, drift_ppm, bound_ns, growth_ppm }: EstimateBytes) -> Self {
        let [at_ns, offset_ns] = [at_ns, offset_ns].map(I64::get);
        let [drift_ppm, growth_ppm] = [drift_ppm, growth_ppm].map(F64::get);
        Self { at_ns, offset_ns, drift_ppm, bound_ns: bound_ns.get(), growth_ppm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn estimate() -> impl Strategy<Value = Estimate> {
        (any::<i64>(), any::<i64>(), -1e4..1e4f64, any::<u64>(), 0.0..1e4f64).prop_map(
            |(at_ns, offset_ns, drift_ppm, bound_ns, growth_ppm)| Estimate {
                at_ns,
                offset_ns,
                drift_ppm,
                bound_ns,
                growth_ppm,
            },
        )
    }

    fn record() -> impl Strategy<Value = Record> {
        (any::<u32>(), estimate(), any::<u64>(), 0.0..1e9f64, any::<u32>(), any::<u32>()).prop_map(
            |(rank, estimate, round_trip_ns, residual_ns, trips, lost)| Record {
                rank: rank.into(),
                estimate: estimate.into(),
                round_trip_ns: round_trip_ns.into(),
                residual_ns: residual_ns.into(),
                trips: trips.into(),
                lost: lost.into(),
            },
        )
    }

    fn message() -> impl Strategy<Value = Message> {
        let nonce = any::<u64>();
        prop_oneof![
            Just(Message::Ask),
            Just(Message::Busy),
            Just(Message::Ready),
            Just(Message::Alive),
            nonce.prop_map(|nonce| Message::Probe { nonce }),
            (nonce, any::<i64>(), any::<i64>()).prop_map(|(nonce, received_ns, replied_ns)| Message::Reply {
                nonce,
                received_ns,
                replied_ns
            }),
            nonce.prop_map(|nonce| Message::Finish { nonce }),
            (nonce, estimate()).prop_map(|(nonce, estimate)| Message::Known { nonce, estimate }),
            (nonce, prop::collection::vec(record(), 0..=MOST_RECORDS))
                .prop_map(|(nonce, records)| Message::Records { nonce, records }),
            nonce.prop_map(|nonce| Message::Ack { nonce }),
            (any::<u32>(), any::<bool>()).prop_map(|(rank, silent)| Message::Abort { rank, silent }),
        ]
    }

    proptest! {
        #[test]
        fn every_datagram_reads_back(from: u32, list: u32, cycle: u32, message in message()) {
            let d = Datagram { from, list, cycle, message };
            let bytes = d.encode();
            prop_assert!(bytes.len() <= LARGEST, "{}", bytes.len());
            prop_assert_eq!(Datagram::decode(&bytes), Ok(d));
        }

        #[test]
        fn a_datagram_of_another_length_is_damaged(message in message(), cut in 0usize..LARGEST) {
            let mut bytes = Datagram { from: 1, list: 2, cycle: 3, message }.encode();
            if cut < bytes.len() {
                prop_assert!(Datagram::decode(&bytes[..cut]).is_err());
            }
            bytes.push(0);
            prop_assert_eq!(Datagram::decode(&bytes), Err(WireError::Damaged));
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..14, ours: bool) {
            if ours && bytes.len() > 8 {
                bytes[..4].copy_from_slice(MAGIC);
                (bytes[4], bytes[5]) = (VERSION, kind);
            }
            let _ = Datagram::decode(&bytes);
        }
    }

    /// The bytes of version 1: nodes of different releases compare their clocks with each other.
    #[test]
    fn every_message_has_the_bytes_of_version_1() {
        const NONCE: &str = "8877665544332211";
        const ESTIMATE: &str =
            "0000f323845bd7182efbffffffffffff00000000000029402003000000000000000000000000d03f";
        let nonce = 0x1122_3344_5566_7788;
        let estimate = Estimate {
            at_ns: 1_790_000_000_000_000_000,
            offset_ns: -1234,
            drift_ppm: 12.5,
            bound_ns: 800,
            growth_ppm: 0.25,
        };
        let record = Record {
            rank: 9.into(),
            estimate: estimate.into(),
            round_trip_ns: 51_000.into(),
            residual_ns: 2.5.into(),
            trips: 64.into(),
            lost: 3.into(),
        };
        for (kind, message, body) in [
            ("01", Message::Ask, String::new()),
            ("02", Message::Busy, String::new()),
            ("03", Message::Ready, String::new()),
            ("04", Message::Probe { nonce }, NONCE.into()),
            (
                "05",
                Message::Reply { nonce, received_ns: -5, replied_ns: 6 },
                format!("{NONCE}fbffffffffffffff0600000000000000"),
            ),
            ("06", Message::Finish { nonce }, NONCE.into()),
            ("07", Message::Known { nonce, estimate }, format!("{NONCE}{ESTIMATE}")),
            ("08", Message::Alive, String::new()),
            (
                "09",
                Message::Records { nonce, records: vec![record] },
                format!("{NONCE}0109000000{ESTIMATE}38c700000000000000000000000004404000000003000000"),
            ),
            ("0a", Message::Ack { nonce }, NONCE.into()),
            ("0b", Message::Abort { rank: 4, silent: true }, "0400000001".into()),
        ] {
            let datagram = Datagram { from: 0x0102_0304, list: 0xa0b0_c0d0, cycle: 7, message };
            let bytes: String = datagram.encode().iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(bytes, format!("434c4e4301{kind}000004030201d0c0b0a007000000{body}"));
            assert_eq!(Datagram::decode(&datagram.encode()), Ok(datagram));
        }
    }

    #[test]
    fn another_version_is_told_from_rubbish() {
        let mut bytes = Datagram { from: 1, list: 2, cycle: 3, message: Message::Ask }.encode();
        bytes[4] = 2;
        assert_eq!(Datagram::decode(&bytes), Err(WireError::Version(2)));
        bytes[0] = 0;
        assert_eq!(Datagram::decode(&bytes), Err(WireError::Foreign));
        let nan = Estimate { drift_ppm: f64::NAN, ..Estimate::EXACT };
        let bytes =
            Datagram { from: 1, list: 2, cycle: 3, message: Message::Known { nonce: 1, estimate: nan } };
        assert_eq!(Datagram::decode(&bytes.encode()), Err(WireError::Damaged));
    }
}
