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

use crate::Estimate;
use crate::estimate::MAX_DRIFT_PPM;

/// The largest datagram: fits the smallest frame of usual networks.
pub const LARGEST: usize = 1_400;
/// The version spoken here.
pub const VERSION: u8 = 1;
const MAGIC: &[u8; 4] = b"CLNC";
const HEADER: usize = 20;
/// Records a datagram may hold.
pub const MOST_RECORDS: usize = 18;

/// A datagram.
#[derive(Clone, Debug, PartialEq)]
pub struct Datagram {
    /// Rank of the sender.
    pub from: u32,
    /// Hash of the host list.
    pub list: u32,
    /// How often the tree has been walked.
    pub cycle: u32,
    /// What it says.
    pub message: Message,
}

/// What a datagram says.
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
        /// What came out.
        records: Vec<Record>,
    },
    /// Parent to child: these arrived.
    Ack {
        /// Of the datagram.
        nonce: u64,
    },
    /// To parent and children: it comes to nothing.
    Abort {
        /// Because of this rank.
        rank: u32,
        /// Whether nothing was heard of it; else it has failed otherwise, and says so itself.
        silent: bool,
    },
}

/// What came out for a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The node.
    pub rank: u32,
    /// The reference on its clock.
    pub estimate: Estimate,
    /// Quickest round trip to its parent, nanoseconds.
    pub round_trip_ns: u64,
    /// The line's distance from its samples, nanoseconds.
    pub residual_ns: f64,
    /// Round trips made.
    pub trips: u32,
    /// Questions that were not answered.
    pub lost: u32,
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
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, self.message.kind(), 0, 0]);
        for word in [self.from, self.list, self.cycle] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        match &self.message {
            Message::Ask | Message::Busy | Message::Ready | Message::Alive => {}
            Message::Probe { nonce } | Message::Finish { nonce } | Message::Ack { nonce } => {
                out.extend_from_slice(&nonce.to_le_bytes());
            }
            Message::Reply { nonce, received_ns, replied_ns } => {
                out.extend_from_slice(&nonce.to_le_bytes());
                out.extend_from_slice(&received_ns.to_le_bytes());
                out.extend_from_slice(&replied_ns.to_le_bytes());
            }
            Message::Known { nonce, estimate } => {
                out.extend_from_slice(&nonce.to_le_bytes());
                put_estimate(&mut out, estimate);
            }
            Message::Records { nonce, records } => {
                out.extend_from_slice(&nonce.to_le_bytes());
                let records = &records[..records.len().min(MOST_RECORDS)];
                out.push(records.len() as u8);
                for r in records {
                    out.extend_from_slice(&r.rank.to_le_bytes());
                    put_estimate(&mut out, &r.estimate);
                    out.extend_from_slice(&r.round_trip_ns.to_le_bytes());
                    out.extend_from_slice(&r.residual_ns.to_le_bytes());
                    out.extend_from_slice(&r.trips.to_le_bytes());
                    out.extend_from_slice(&r.lost.to_le_bytes());
                }
            }
            Message::Abort { rank, silent } => {
                out.extend_from_slice(&rank.to_le_bytes());
                out.push(u8::from(*silent));
            }
        }
        out
    }

    /// From bytes of anywhere.
    ///
    /// # Errors
    /// [`WireError`]; nothing panics.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader(bytes);
        if bytes.len() < HEADER || r.array::<4>()? != *MAGIC {
            return Err(WireError::Foreign);
        }
        let [version, kind, ..] = r.array::<4>()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let (from, list, cycle) = (r.u32()?, r.u32()?, r.u32()?);
        let message = match kind {
            1 => Message::Ask,
            2 => Message::Busy,
            3 => Message::Ready,
            4 => Message::Probe { nonce: r.u64()? },
            5 => Message::Reply { nonce: r.u64()?, received_ns: r.i64()?, replied_ns: r.i64()? },
            6 => Message::Finish { nonce: r.u64()? },
            7 => Message::Known { nonce: r.u64()?, estimate: r.estimate()? },
            8 => Message::Alive,
            9 => Message::Records { nonce: r.u64()?, records: r.records()? },
            10 => Message::Ack { nonce: r.u64()? },
            11 => Message::Abort { rank: r.u32()?, silent: r.bool()? },
            _ => return Err(WireError::Damaged),
        };
        if !r.0.is_empty() {
            return Err(WireError::Damaged);
        }
        Ok(Self { from, list, cycle, message })
    }
}

fn put_estimate(out: &mut Vec<u8>, e: &Estimate) {
    out.extend_from_slice(&e.at_ns.to_le_bytes());
    out.extend_from_slice(&e.offset_ns.to_le_bytes());
    out.extend_from_slice(&e.drift_ppm.to_le_bytes());
    out.extend_from_slice(&e.bound_ns.to_le_bytes());
    out.extend_from_slice(&e.growth_ppm.to_le_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Damaged)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    fn bool(&mut self) -> Result<bool, WireError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(WireError::Damaged),
        }
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_le_bytes)
    }

    /// A number from `least` to `most`.
    fn f64(&mut self, least: f64, most: f64) -> Result<f64, WireError> {
        let x = self.array().map(f64::from_le_bytes)?;
        if (least..=most).contains(&x) { Ok(x) } else { Err(WireError::Damaged) }
    }

    fn estimate(&mut self) -> Result<Estimate, WireError> {
        // a chain of clocks: each may drift from the next
        let most = 40.0 * MAX_DRIFT_PPM;
        Ok(Estimate {
            at_ns: self.i64()?,
            offset_ns: self.i64()?,
            drift_ppm: self.f64(-most, most)?,
            bound_ns: self.u64()?,
            growth_ppm: self.f64(0.0, 3.0 * most)?,
        })
    }

    fn records(&mut self) -> Result<Vec<Record>, WireError> {
        let [n] = self.array()?;
        if usize::from(n) > MOST_RECORDS {
            return Err(WireError::Damaged);
        }
        (0..n)
            .map(|_| {
                Ok(Record {
                    rank: self.u32()?,
                    estimate: self.estimate()?,
                    round_trip_ns: self.u64()?,
                    residual_ns: self.f64(0.0, 1e18)?,
                    trips: self.u32()?,
                    lost: self.u32()?,
                })
            })
            .collect()
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
                rank,
                estimate,
                round_trip_ns,
                residual_ns,
                trips,
                lost,
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
        fn what_is_sent_is_read(from: u32, list: u32, cycle: u32, message in message()) {
            let d = Datagram { from, list, cycle, message };
            let bytes = d.encode();
            prop_assert!(bytes.len() <= LARGEST, "{}", bytes.len());
            prop_assert_eq!(Datagram::decode(&bytes), Ok(d));
        }

        #[test]
        fn what_is_cut_or_longer_is_damaged(message in message(), cut in 0usize..LARGEST) {
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
