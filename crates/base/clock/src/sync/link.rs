// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of a node: who may speak to it, and what it hears.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::config::{Config, LocalClock};
use super::error::SyncError;
use super::report::Dropped;
use crate::hosts::Host;
use crate::key::{Key, TAG};
use crate::wire::{Datagram, LARGEST, Message, WireError};

/// The longest a receive waits before time is looked at: near the end of a wait, and long before it, where a
/// node should not be woken for nothing.
const SLICE: Duration = Duration::from_millis(10);
const LONG_SLICE: Duration = Duration::from_millis(500);

/// Something heard.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) from: u32,
    pub(super) cycle: u32,
    pub(super) message: Message,
    /// The instant of its arrival, on the node's clock.
    pub(super) at_ns: i64,
}

#[derive(Debug)]
pub(super) struct Link {
    socket: UdpSocket,
    addresses: Vec<SocketAddr>,
    ranks: HashMap<SocketAddr, u32>,
    rank: u32,
    list: u32,
    key: Option<Key>,
    /// Datagrams dropped since the walk began.
    pub(super) dropped: Dropped,
    /// Ranks whose last datagram was of another version or list, and which.
    complaints: BTreeMap<u32, Complaint>,
    buffer: Box<[u8]>,
    /// The timeout of a receive.
    slice: Duration,
}

impl Link {
    pub(super) fn open(config: &Config, addresses: Vec<SocketAddr>) -> Result<Self, SyncError> {
        let own = *own(config, &addresses)?;
        let any: IpAddr = match own.ip() {
            // a loopback address is bound as it is: several nodes may be on one machine
            ip if ip.is_loopback() && addresses.iter().all(|a| a.ip().is_loopback()) => ip,
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let bound = SocketAddr::new(any, own.port());
        let system = |source| SyncError::System { what: format!("opening UDP port {bound}"), source };
        let socket = UdpSocket::bind(bound).map_err(system)?;
        Self::with_socket(config, socket, addresses)
    }

    pub(super) fn with_socket(
        config: &Config,
        socket: UdpSocket,
        addresses: Vec<SocketAddr>,
    ) -> Result<Self, SyncError> {
        own(config, &addresses)?;
        let system = |source| SyncError::System { what: "setting up the socket".into(), source };
        socket.set_read_timeout(Some(SLICE)).map_err(system)?;
        Ok(Self {
            socket,
            ranks: addresses.iter().zip(0..).map(|(&a, r)| (a, r)).collect(),
            addresses,
            rank: config.rank,
            list: hash(&config.hosts),
            key: config.key.clone(),
            dropped: Dropped::default(),
            complaints: BTreeMap::new(),
            buffer: vec![0; LARGEST + TAG + 1].into(),
            slice: SLICE,
        })
    }

    /// Sends to rank `to`. That a datagram does not get through is no error: it is asked for again.
    pub(super) fn send(&self, to: u32, cycle: u32, message: Message) {
        if let Some(address) = self.addresses.get(to as usize) {
            let mut bytes = Datagram { from: self.rank, list: self.list, cycle, message }.encode();
            if let Some(key) = &self.key {
                key.sign(&mut bytes);
            }
            let _ = self.socket.send_to(&bytes, address);
        }
    }

    /// The next datagram from a node of the list, or none until `until`.
    pub(super) fn receive(
        &mut self,
        until: Instant,
        clock: &impl LocalClock,
    ) -> Result<Option<Heard>, SyncError> {
        loop {
            self.wait_as_fits(until);
            let received = self.socket.recv_from(&mut self.buffer);
            let at_ns = clock.now_ns();
            match received {
                Ok((length, from)) => {
                    if let Some(heard) = self.understand(length, from, at_ns) {
                        return Ok(Some(heard));
                    }
                }
                // refused: a node that is not there yet
                Err(e) if is_passing(&e) => {}
                Err(source) => return Err(SyncError::System { what: "receiving".into(), source }),
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Sets how long a receive waits. Short waits, as in a round trip, never change it.
    fn wait_as_fits(&mut self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let slice = if left > 2 * LONG_SLICE { LONG_SLICE } else { SLICE };
        if slice != self.slice && self.socket.set_read_timeout(Some(slice)).is_ok() {
            self.slice = slice;
        }
    }

    /// A datagram of a node in the list; any other is counted and dropped, since whoever can send one must not be able
    /// to end the comparison.
    fn understand(&mut self, length: usize, from: SocketAddr, at_ns: i64) -> Option<Heard> {
        let Some(&rank) = self.ranks.get(&from) else {
            self.dropped.strangers += 1;
            return None;
        };
        let mut bytes = &self.buffer[..length];
        if let Some(key) = &self.key {
            let Some(signed) = key.verified(bytes) else {
                self.dropped.unsigned += 1;
                return None;
            };
            bytes = signed;
        }
        let complaint = match Datagram::decode(bytes) {
            Ok(d) if d.list == self.list && d.from == rank => {
                self.complaints.remove(&rank);
                return Some(Heard { from: rank, cycle: d.cycle, message: d.message, at_ns });
            }
            Ok(d) => {
                // so that both sides see it; only questions are answered, or answers would go to and fro for good
                if d.message == Message::Ask {
                    self.send(rank, d.cycle, Message::Busy);
                }
                Complaint::List
            }
            Err(WireError::Version(version)) => Complaint::Version(version),
            Err(_) => {
                self.dropped.malformed += 1;
                return None;
            }
        };
        match complaint {
            Complaint::List => self.dropped.other_list += 1,
            Complaint::Version(_) => self.dropped.other_version += 1,
        }
        self.complaints.insert(rank, complaint);
        None
    }

    /// Begins a walk: counts anew.
    pub(super) fn begin(&mut self) {
        self.dropped = Dropped::default();
        self.complaints.clear();
    }

    /// The fault of the datagrams of `rank`, if none was accepted since.
    pub(super) fn complaint(&self, rank: u32) -> Option<Complaint> {
        self.complaints.get(&rank).copied()
    }
}

/// The reason for which a datagram of a node in the list was not accepted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Complaint {
    List,
    Version(u8),
}

fn own<'a>(config: &Config, addresses: &'a [SocketAddr]) -> Result<&'a SocketAddr, SyncError> {
    let nodes = config.hosts.len().min(addresses.len());
    addresses[..nodes].get(config.rank as usize).ok_or(SyncError::Rank { rank: config.rank, nodes })
}

fn is_passing(e: &io::Error) -> bool {
    use ErrorKind as K;
    let host = matches!(e.kind(), K::ConnectionRefused | K::HostUnreachable | K::NetworkUnreachable);
    host || matches!(e.kind(), K::WouldBlock | K::TimedOut | K::Interrupted | K::ConnectionReset)
}

/// FNV-1a of the list as it is written: the same on all nodes, whatever addresses each finds for the names.
fn hash(hosts: &[Host]) -> u32 {
    let text: String = hosts.iter().map(|h| format!("{h}\n")).collect();
    text.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}
