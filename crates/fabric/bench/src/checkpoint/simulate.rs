// SPDX-License-Identifier: MIT OR Apache-2.0
//! A checkpoint on many PEs, from the measured local time and a model of the network.
//!
//! The model follows the runtime's protocol message by message. PE 0 is the bottleneck: it sends each message and takes
//! each answer by itself, there is no tree.
//!
//! 1. Quiescence: two waves (Mattern 1987, four counters). In each, PE 0 asks every PE, and every PE answers.
//! 2. PE 0 asks every PE for its image. A PE works for the measured local time, and sends its image to its buddy over one
//!    link. The buddy tells PE 0.
//! 3. PE 0 tells every PE that the checkpoint is complete.
//!
//! A message takes `message_s` of CPU time at each end. It is under way for `latency_s`, and `hop_s` for each hop; from
//! PE 0, that is the mean distance `3/4 P^(1/3)` in a cubic torus of `P` nodes.

use serde::Serialize;

/// Parameters of a network of nodes with one PE each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Network {
    /// CPU seconds of a message, at the sender and at the receiver.
    pub message_s: f64,
    /// Seconds from a node to its neighbour.
    pub latency_s: f64,
    /// Seconds for each further hop.
    pub hop_s: f64,
    /// Bytes a second of a link in one direction.
    pub link_bytes_per_s: f64,
}

impl Default for Network {
    /// Blue Gene/L, as the profile `bgl` of `colony sim` has it: its latency and hops are fitted to published times of
    /// allreduce, its links have the published 175 MB/s, its CPU time of a message is chosen.
    fn default() -> Self {
        Self { message_s: 1.5e-6, latency_s: 0.764e-6, hop_s: 0.313e-6, link_bytes_per_s: 175e6 }
    }
}

/// The assumptions, for the result.
pub(super) const ASSUMPTIONS: [&str; 5] = [
    "each node has one PE; its buddy is a neighbour, and each link carries one image",
    "the local time of a PE is the least copy time measured here less the exchange of the floor",
    "local time and transfer follow each other; no part of an image is sent while another is packed",
    "PE 0 sends and takes all messages one after another, as the runtime does: no tree",
    "no noise, and no other traffic",
];

/// A checkpoint on many PEs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// PEs.
    pub pes: u64,
    /// Seconds until quiescence is known.
    pub quiet_s: f64,
    /// Seconds from there until PE 0 knows that all copies are there.
    pub copy_s: f64,
    /// Seconds from there until the last PE knows it.
    pub commit_s: f64,
    /// The sum.
    pub total_s: f64,
}

impl Network {
    /// Seconds that a message from PE 0 is under way, on average.
    fn distance_s(&self, pes: u64) -> f64 {
        let hops = 0.75 * (pes as f64).cbrt();
        self.latency_s + self.hop_s * (hops - 1.0).max(0.0)
    }

    /// Seconds until PE 0, which begins at 0, has asked all other PEs and has all answers. Every PE works for `work_s`, and
    /// its answer comes `transfer_s` later.
    fn ask_all(&self, pes: u64, work_s: f64, transfer_s: f64) -> f64 {
        let others = pes.saturating_sub(1);
        let (message, distance) = (self.message_s, self.distance_s(pes));
        // PE 0 asks the others, then works as they do, and then takes their answers
        let mut now = others as f64 * message + work_s;
        for other in 1..=others {
            // request: sent, under way, taken; answer: sent, under way
            let arrives =
                other as f64 * message + distance + message + work_s + transfer_s + message + distance;
            now = now.max(arrives) + message;
        }
        now
    }

    /// A checkpoint of `bytes` a PE on `pes` PEs, each of which takes `local_s` for all but the transfer.
    #[must_use]
    pub fn simulate(&self, pes: u64, bytes: u64, local_s: f64) -> Simulated {
        let quiet_s = 2.0 * self.ask_all(pes, 0.0, 0.0);
        let transfer_s = self.latency_s + bytes as f64 / self.link_bytes_per_s;
        let copy_s = self.ask_all(pes, local_s, transfer_s);
        let commit_s = pes.saturating_sub(1) as f64 * self.message_s + self.distance_s(pes) + self.message_s;
        Simulated { pes, quiet_s, copy_s, commit_s, total_s: quiet_s + copy_s + commit_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pes_exchange_single_messages() {
        let network = Network { message_s: 1.0, latency_s: 10.0, hop_s: 5.0, link_bytes_per_s: 2.0 };
        let s = network.simulate(2, 20, 100.0);
        // a wave: four ends of messages and two ways; the hops of two nodes are less than one
        assert_eq!(s.quiet_s, 2.0 * (4.0 + 20.0));
        assert_eq!(s.copy_s, 4.0 + 20.0 + 100.0 + 10.0 + 10.0);
        assert_eq!(s.commit_s, 1.0 + 10.0 + 1.0);
        assert_eq!(s.total_s, s.quiet_s + s.copy_s + s.commit_s);
    }

    #[test]
    fn pe_0_needs_time_for_each_pe_whatever_the_size() {
        let network = Network::default();
        let small = |pes| network.simulate(pes, 0, 0.0).total_s;
        let per_pe = (small(20_480) - small(8192)) / (20_480.0 - 8192.0);
        // two waves and the copies have two messages a PE each, the commit has one
        assert!((per_pe / (7.0 * network.message_s) - 1.0).abs() < 0.01, "{per_pe}");
    }

    #[test]
    fn the_transfer_takes_the_time_of_one_link_on_any_number_of_pes() {
        let network = Network::default();
        for pes in [64, 8192, 20_480] {
            // answers that come late are taken while others are under way, so the time of PE 0 can hide some of it
            let more = network.simulate(pes, 175_000_000, 0.0).copy_s - network.simulate(pes, 0, 0.0).copy_s;
            assert!((0.9..=1.001).contains(&more), "{pes}: {more}");
        }
    }
}
