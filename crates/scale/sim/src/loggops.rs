// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of LogGOPS and what a message of a size costs under them.

use serde::{Deserialize, Serialize};

/// LogGOPS (Hoefler, Schneider and Lumsdaine, "LogGOPSim: simulating large-scale applications in the
/// LogGOPS model", HPDC 2010). Nanoseconds; per byte picoseconds, so that fast links can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogGops {
    /// L: time of the first byte through the network.
    pub latency_ns: u64,
    /// o: CPU time of a send or a receive.
    pub overhead_ns: u64,
    /// g: least time between two sends, and between two receives, of one network interface.
    pub gap_ns: u64,
    /// G: time a byte after the first, in picoseconds.
    pub gap_per_byte_ps: u64,
    /// O: CPU time a byte after the first, in picoseconds.
    pub overhead_per_byte_ps: u64,
    /// S: largest message that is sent without waiting for its receive (eager); larger ones are
    /// rendezvous: the send is done when the receive has begun.
    pub eager_bytes: u64,
}

impl Default for LogGops {
    /// The defaults of LogGOPSim: L 2500, o 1500, g 1000, G 6, O 0 ns, S 65,535 bytes.
    fn default() -> Self {
        Self {
            latency_ns: 2500,
            overhead_ns: 1500,
            gap_ns: 1000,
            gap_per_byte_ps: 6000,
            overhead_per_byte_ps: 0,
            eager_bytes: 65_535,
        }
    }
}

/// The costs of a message of one size, for both engines.
///
/// A send that begins at `s` (CPU and interface free) leaves its CPU at `s + overhead`, and is in the
/// network from then on, noise in between included; the CPU goes on for `send_more`. The first byte
/// arrives `latency` later. A receive that begins at `a` (message there, CPU and interface free, in the
/// order that the progress rule says) has all bytes at `a + transfer` and then takes `recv` of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCost {
    /// o: CPU time until the message is in the network.
    pub overhead_ns: u64,
    /// CPU time of the send after that: O for each byte after the first.
    pub send_more_ns: u64,
    /// Interface time of the send, or of the receive: g and G for each byte after the first.
    pub gap_ns: u64,
    /// Time of the bytes after the first to arrive.
    pub transfer_ns: u64,
    /// CPU time of the receive: o, and what O takes longer than G does.
    pub recv_ns: u64,
    /// True if the send waits for the receive.
    pub rendezvous: bool,
}

impl LogGops {
    /// Largest parameter, nanoseconds (an hour), and most nanoseconds a byte (1 ms).
    pub(crate) const MAX_NS: u64 = 3_600_000_000_000;
    const MAX_PER_BYTE_PS: u64 = 1_000_000_000;

    /// Cost of a message of `bytes`; one of 0 bytes costs as much as one of 1.
    #[must_use]
    pub const fn cost(&self, bytes: u64) -> MessageCost {
        let more = bytes.saturating_sub(1);
        let transfer_ns = per_byte(more, self.gap_per_byte_ps);
        let cpu_ns = per_byte(more, self.overhead_per_byte_ps);
        MessageCost {
            overhead_ns: self.overhead_ns,
            send_more_ns: cpu_ns,
            gap_ns: self.gap_ns.saturating_add(transfer_ns),
            transfer_ns,
            recv_ns: self.overhead_ns.saturating_add(cpu_ns.saturating_sub(transfer_ns)),
            rendezvous: bytes > self.eager_bytes,
        }
    }

    /// The first parameter that is too large to simulate with, and its value.
    pub(crate) fn too_large(&self) -> Option<(&'static str, u64)> {
        [
            ("latency_ns", self.latency_ns, Self::MAX_NS),
            ("overhead_ns", self.overhead_ns, Self::MAX_NS),
            ("gap_ns", self.gap_ns, Self::MAX_NS),
            ("gap_per_byte_ps", self.gap_per_byte_ps, Self::MAX_PER_BYTE_PS),
            ("overhead_per_byte_ps", self.overhead_per_byte_ps, Self::MAX_PER_BYTE_PS),
        ]
        .into_iter()
        .find_map(|(name, value, most)| (value > most).then_some((name, value)))
    }
}

const fn per_byte(bytes: u64, ps: u64) -> u64 {
    let ns = (bytes as u128 * ps as u128) / 1000;
    if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_nothing_costs_as_one_byte() {
        let p = LogGops { overhead_per_byte_ps: 7000, ..LogGops::default() };
        assert_eq!(p.cost(0), p.cost(1));
        let c = p.cost(9);
        assert_eq!((c.transfer_ns, c.send_more_ns, c.recv_ns, c.gap_ns), (48, 56, 1508, 1048));
        assert!(!p.cost(65_535).rendezvous && p.cost(65_536).rendezvous);
    }
}
