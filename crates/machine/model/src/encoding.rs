// SPDX-License-Identifier: MIT OR Apache-2.0
//! Personalities as bytes: 256 of them, little-endian, at fixed offsets, so that a kernel needs no parser.
//!
//! ```text
//!   0  magic "COLPERSN"            64  pset, pset size, rank in pset   (u32; rank !0 for an I/O node)
//!   8  version, length      (u16)  76  parent, three children          (u32; !0: none, top bit: I/O node)
//!  12  CRC-32 of the rest   (u32)  92  depth                           (u32)
//!  16  kind 1 compute, 2 I/O (u8)  96  MAC (6), 0, prefix             (u8)
//!  17  rack, midplane, card,      104  IP, broadcast, gateway, service node, file server (4 each)
//!      slot (u8), 0 (3)           124  0                               (u32)
//!  24  memory in bytes      (u64) 128  security key                    (32)
//!  32  node                 (u32) 160  export, ends with a zero        (64)
//!  36  extents x, y, z      (u32)
//!  48  x, y, z              (u32) 224  steered bit of ranks 0 to 3     (u8; 0: none, else 1 + bit)
//!  60  0                    (u32) 228  0                               (28)
//! ```
//!
//! The CRC covers bytes 0 to 11 and 16 to 255. Fields that a kind of node does not have are 0. Each personality has one
//! encoding in a version, and [`Personality::decode`] refuses everything else. Version 1 has zeroes at 224.

use std::net::Ipv4Addr;

use crate::crc::crc32;
use crate::network::check_export;
use crate::{
    BitSteering, CollectiveRoute, IoNetwork, Kind, Location, Mac, NodeRef, Personality, PsetSize, Role,
    SecurityKey, Shape,
};

/// Version of the encoding that is written.
pub const PERSONALITY_VERSION: u16 = 2;
/// Oldest version that is read: without steered bits.
const OLDEST_VERSION: u16 = 1;
/// Bytes of an encoded personality.
pub const ENCODED_BYTES: usize = 256;

const MAGIC: [u8; 8] = *b"COLPERSN";
/// A byte for each rank of the memory.
const STEERING_AT: usize = 224;
const NONE: u32 = u32::MAX;
const IO: u32 = 1 << 31;

/// The reason why bytes are not a personality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too many or too few bytes.
    #[error("a personality of {found} bytes was received, but this version has {ENCODED_BYTES}")]
    Length {
        /// The bytes.
        found: usize,
    },
    /// Other data.
    #[error("the data is not a personality: it does not begin with COLPERSN")]
    Magic,
    /// A personality of another version.
    #[error(
        "a personality of version {found} was received, but this program reads versions {OLDEST_VERSION} to \
         {PERSONALITY_VERSION}: update this program"
    )]
    Version {
        /// The version.
        found: u16,
    },
    /// Bytes that were changed on the way.
    #[error("the personality is damaged: its checksum is {found:#010x}, but should be {expected:#010x}")]
    Checksum {
        /// The checksum in the data.
        found: u32,
        /// The checksum of the data.
        expected: u32,
    },
    /// A field that no personality has.
    #[error("the personality has an impossible {field}")]
    Field {
        /// The field.
        field: &'static str,
    },
}

impl Personality {
    /// The personality as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ENCODED_BYTES] {
        self.encode_as(PERSONALITY_VERSION)
    }

    fn encode_as(&self, version: u16) -> [u8; ENCODED_BYTES] {
        let mut to = Writer { bytes: [0; ENCODED_BYTES], at: 0 };
        to.put(MAGIC);
        to.put(version.to_le_bytes());
        to.put((ENCODED_BYTES as u16).to_le_bytes());
        to.at = 16;
        let at = self.location;
        let (kind, node, coords, in_pset) = match self.role {
            Role::Compute { node, coords, in_pset } => (1, node, coords, in_pset),
            Role::Io(_) => (2, self.pset, [0; 3], NONE),
        };
        to.put([kind, at.rack(), at.midplane(), at.card(), at.slot(), 0, 0, 0]);
        to.put(self.memory.to_le_bytes());
        let [x, y, z] = self.torus.sides();
        to.words(&[node, x, y, z, coords[0], coords[1], coords[2], 0]);
        to.words(&[self.pset, self.pset_size, in_pset, reference(self.route.parent)]);
        to.words(&self.route.children.map(reference));
        to.words(&[self.route.depth]);
        if let Role::Io(network) = &self.role {
            to.put(network.mac.0);
            to.put([0, network.prefix]);
            let servers = [network.gateway, network.service_node, network.file_server];
            [network.ip, network.broadcast].into_iter().chain(servers).for_each(|ip| to.put(ip.octets()));
            to.at = 128;
            to.put(network.key.0);
            // a path that was not checked is cut: the last byte stays 0
            network.export.bytes().take(63).for_each(|byte| to.put([byte]));
        }
        to.at = STEERING_AT;
        to.put(self.steering.encode());
        let sum = checksum(&to.bytes);
        to.at = 12;
        to.words(&[sum]);
        to.bytes
    }

    /// Reads a personality.
    ///
    /// # Errors
    /// [`DecodeError`] for everything that [`Personality::encode`] does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let length = DecodeError::Length { found: bytes.len() };
        let (magic, version) = (bytes.get(..8).ok_or(length)?, bytes.get(8..10).ok_or(length)?);
        if magic != MAGIC {
            return Err(DecodeError::Magic);
        }
        let version = u16::from_le_bytes([version[0], version[1]]);
        if !(OLDEST_VERSION..=PERSONALITY_VERSION).contains(&version) {
            return Err(DecodeError::Version { found: version });
        }
        let bytes: &[u8; ENCODED_BYTES] = bytes.try_into().map_err(|_| length)?;
        let (found, expected) = (word(bytes, 12), checksum(bytes));
        if found != expected {
            return Err(DecodeError::Checksum { found, expected });
        }
        let personality = fields(bytes, version)?;
        // one encoding each: unused bytes are 0, and the length is in its field
        if personality.encode_as(version) == *bytes {
            Ok(personality)
        } else {
            Err(impossible("unused byte"))
        }
    }
}

fn fields(bytes: &[u8; ENCODED_BYTES], version: u16) -> Result<Personality, DecodeError> {
    let kind = match bytes[16] {
        1 => Kind::Compute,
        2 => Kind::Io,
        _ => return Err(impossible("kind")),
    };
    let location = Location::new(kind, bytes[17], bytes[18], bytes[19], bytes[20]);
    let torus = Shape::new(words(bytes, 36)).map_err(|_| impossible("extent"))?;
    let (node, pset, pset_size) = (word(bytes, 32), word(bytes, 64), word(bytes, 68));
    let psets = torus.nodes() / PsetSize::new(pset_size).map_err(|_| impossible("pset size"))?.nodes();
    if pset >= psets || pset_size * psets != torus.nodes() {
        return Err(impossible("pset"));
    }
    let role = if kind == Kind::Io { io_role(bytes)? } else { compute_role(bytes, torus, node, pset_size)? };
    let route = CollectiveRoute {
        parent: node_ref(word(bytes, 76), torus.nodes(), psets)?,
        children: {
            let [a, b, c] = words(bytes, 80).map(|word| node_ref(word, torus.nodes(), psets));
            [a?, b?, c?]
        },
        depth: word(bytes, 92),
    };
    let memory = [0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| bytes[24 + i]);
    let steering = match version {
        OLDEST_VERSION => Some(BitSteering::default()),
        _ => BitSteering::decode([0, 1, 2, 3].map(|rank: usize| bytes[STEERING_AT + rank])),
    };
    Ok(Personality {
        steering: steering.ok_or(impossible("steered bit"))?,
        location: location.ok_or(impossible("location"))?,
        memory: u64::from_le_bytes(memory),
        torus,
        pset,
        pset_size,
        route,
        role,
    })
}

fn compute_role(
    bytes: &[u8; ENCODED_BYTES],
    torus: Shape,
    node: u32,
    pset_size: u32,
) -> Result<Role, DecodeError> {
    let (coords, in_pset) = (words(bytes, 48), word(bytes, 72));
    if node >= torus.nodes() || torus.coords(node) != coords {
        return Err(impossible("coordinate"));
    }
    if in_pset >= pset_size {
        return Err(impossible("rank in the pset"));
    }
    Ok(Role::Compute { node, coords, in_pset })
}

fn io_role(bytes: &[u8; ENCODED_BYTES]) -> Result<Role, DecodeError> {
    let export = bytes[160..224].split(|&byte| byte == 0).next().unwrap_or_default();
    let export = std::str::from_utf8(export).ok().filter(|path| check_export(path).is_ok());
    let ip = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|i: usize| bytes[at + i]));
    let mut key = [0; 32];
    key.copy_from_slice(&bytes[128..160]);
    let prefix = Some(bytes[103]).filter(|prefix| (1..=30).contains(prefix));
    Ok(Role::Io(IoNetwork {
        mac: Mac([0, 1, 2, 3, 4, 5].map(|i: usize| bytes[96 + i])),
        ip: ip(104),
        prefix: prefix.ok_or(impossible("prefix"))?,
        broadcast: ip(108),
        gateway: ip(112),
        service_node: ip(116),
        file_server: ip(120),
        export: export.ok_or(impossible("export"))?.into(),
        key: SecurityKey(key),
    }))
}

const fn impossible(field: &'static str) -> DecodeError {
    DecodeError::Field { field }
}

fn checksum(bytes: &[u8; ENCODED_BYTES]) -> u32 {
    crc32([&bytes[..12], &bytes[16..]])
}

fn word(bytes: &[u8; ENCODED_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|i: usize| bytes[at + i]))
}

fn words(bytes: &[u8; ENCODED_BYTES], at: usize) -> [u32; 3] {
    [word(bytes, at), word(bytes, at + 4), word(bytes, at + 8)]
}

/// A node of the partition in one word.
const fn reference(node: Option<NodeRef>) -> u32 {
    match node {
        None => NONE,
        Some(NodeRef::Compute(node)) => node,
        Some(NodeRef::Io(pset)) => pset | IO,
    }
}

fn node_ref(word: u32, nodes: u32, psets: u32) -> Result<Option<NodeRef>, DecodeError> {
    match word {
        NONE => Ok(None),
        word if word & IO != 0 && word & !IO < psets => Ok(Some(NodeRef::Io(word & !IO))),
        word if word < nodes => Ok(Some(NodeRef::Compute(word))),
        _ => Err(impossible("collective route")),
    }
}

/// Writes one field after the other.
struct Writer {
    bytes: [u8; ENCODED_BYTES],
    at: usize,
}

impl Writer {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        for byte in field {
            self.bytes[self.at] = byte;
            self.at += 1;
        }
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.put(word.to_le_bytes()));
    }
}
